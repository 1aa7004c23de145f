"""Configuration: rows, text, run-time changes."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.settings import BROKER, broker_config, inline_requests, log_directories
from barnabas.broker.topic_settings import TOPIC, topic_values
from barnabas.config import from_environment, load_properties, to_text
from barnabas.errors import ConfigError


def test_every_default_is_itself_an_allowed_value() -> None:
    for table in (BROKER, TOPIC):
        for row in table:
            if row.default is not None:
                assert row.parse(row.default) == row.default, row.name


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num.io.threads", "0", "must be from 1 to 512"),
        ("num.io.threads", "many", "whole number"),
        ("queued.max.requests", str(2**31), "from"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.cleanup.policy", "shred", "each must be one of delete, compact"),
        ("max.connections.per.ip.overrides", "127.0.0.1", "host:count"),
    ],
)
def test_a_bad_value_is_an_error_that_names_key_value_and_what_is_allowed(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        broker_config({key: value})
    assert key in str(caught.value)
    assert value in str(caught.value)
    assert words in str(caught.value)


def test_an_unknown_key_is_a_warning_with_the_nearest_known_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = broker_config({"num.io.thread": "4"})
    assert "num.io.thread is not known; did you mean num.io.threads?" in caplog.text
    assert config["num.io.threads"] == BROKER["num.io.threads"].default


def test_run_time_changes_reach_the_listeners_of_the_changed_keys_only() -> None:
    config = broker_config({"num.io.threads": "3"})
    seen: list[tuple[str, int]] = []
    config.follow(["num.io.threads"], lambda c: seen.append(("io", c["num.io.threads"])))
    config.follow(["num.network.threads"], lambda c: seen.append(("network", c["num.network.threads"])))
    seen.clear()
    config.set_dynamic({"num.io.threads": "5"})
    assert seen == [("io", 5)]
    config.set_dynamic({})
    assert seen == [("io", 5), ("io", 3)]


def test_a_run_time_change_that_cannot_be_used_changes_nothing() -> None:
    config = broker_config({})
    before = config["num.io.threads"]
    for changed in (
        {"num.io.threads": "4", "queued.max.requests": "9"},
        {"num.io.threads": "-1"},
        {"no.such.key": "1"},
    ):
        with pytest.raises(ConfigError):
            config.set_dynamic(changed)
    assert config["num.io.threads"] == before
    assert not config.dynamic


def test_limits_of_one_listener_are_accepted_and_dynamic() -> None:
    config = broker_config({"listener.name.plaintext.max.connections": "7"})
    assert config["listener.name.plaintext.max.connections"] == 7
    config.set_dynamic({"listener.name.plaintext.max.connections": "8"})
    assert config["listener.name.plaintext.max.connections"] == 8


def test_properties_files_are_read_as_java_reads_them() -> None:
    text = "# comment\n! other\n a = 1 \nb: 2\nlisteners=PLAINTEXT://:9092\nlong = x,\\\n   y\nempty=\n"
    assert load_properties(text) == {"a": "1", "b": "2", "listeners": "PLAINTEXT://:9092", "long": "x,y", "empty": ""}


def test_environment_names_are_those_of_kafkas_images() -> None:
    environ = {
        "KAFKA_NUM_IO_THREADS": "4",
        "KAFKA_A__B": "dash",
        "KAFKA_A___B": "underscore",
        "HOME": "x",
        "KAFKA_": "y",
    }
    assert from_environment(environ) == {"num.io.threads": "4", "a-b": "dash", "a_b": "underscore"}


def test_a_topic_takes_what_it_does_not_set_from_the_broker() -> None:
    config = broker_config({"message.max.bytes": "5000", "log.retention.hours": "1", "log.roll.hours": "2"})
    values = topic_values(config, {"segment.bytes": "4096"})
    assert values["max.message.bytes"] == 5000
    assert values["retention.ms"] == 3_600_000
    assert values["segment.ms"] == 7_200_000
    assert values["segment.bytes"] == 4096
    assert topic_values(broker_config({"log.retention.hours": "-1"}), {})["retention.ms"] == -1


def test_the_short_cut_is_off_as_soon_as_a_thread_count_is_set() -> None:
    assert not inline_requests(broker_config({"num.io.threads": "8"}))
    assert not inline_requests(broker_config({"num.network.threads": "3"}))
    assert not inline_requests(broker_config({"barnabas.request.inline": "false"}))
    assert inline_requests(broker_config({"barnabas.request.inline": "true", "num.io.threads": "8"}))


def test_log_directories_come_from_either_key() -> None:
    assert log_directories(broker_config({"log.dirs": "a, b", "log.dir": "c"})) == ("a", "b")
    assert log_directories(broker_config({"log.dir": "c"})) == ("c",)


def test_values_go_back_to_text_as_a_properties_file_has_them() -> None:
    assert [to_text(v) for v in (True, 5, ("a", "b"), None, "x")] == ["true", "5", "a,b", None, "x"]
