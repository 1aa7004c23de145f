"""Dynamic broker settings: two layers, stored, applied in order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas.broker.catalog import Catalog
from barnabas.broker.dynamic_config import CLUSTER_DEFAULT, DynamicBrokerConfig
from barnabas.broker.settings import broker_config
from barnabas.clock import SystemClock
from barnabas.config import Config
from barnabas.errors import ErrorCode, KafkaError

ME = "1"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog.open(tmp_path / "metadata", SystemClock())
    yield opened
    opened.close()


@pytest.fixture
def config() -> Config:
    return broker_config({"num.io.threads": 4})


@pytest.fixture
def dynamic(config: Config, catalog: Catalog) -> DynamicBrokerConfig:
    return DynamicBrokerConfig(config, catalog, 1)


def test_the_nodes_own_layer_wins_over_the_default_and_that_over_the_file(
    config: Config, dynamic: DynamicBrokerConfig
) -> None:
    dynamic.edit(CLUSTER_DEFAULT, lambda _: {"num.io.threads": "5"})
    assert config["num.io.threads"] == 5
    dynamic.edit(ME, lambda _: {"num.io.threads": "6"})
    assert config["num.io.threads"] == 6
    dynamic.edit(ME, lambda _: {})
    assert config["num.io.threads"] == 5
    dynamic.edit(CLUSTER_DEFAULT, lambda _: {})
    assert config["num.io.threads"] == 4


def test_stored_values_are_applied_at_start(catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig) -> None:
    catalog.set_broker_configs(ME, {"num.io.threads": "9"})
    dynamic.load()
    assert config["num.io.threads"] == 9


def test_a_stored_value_that_is_no_longer_accepted_is_left_out_with_a_warning(
    catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.set_broker_configs(CLUSTER_DEFAULT, {"num.io.threads": "nine", "node.id": "3", "max.connections": "7"})
    with caplog.at_level(logging.WARNING):
        dynamic.load()
    assert (config["num.io.threads"], config["max.connections"]) == (4, 7)
    assert "num.io.threads" in caplog.text
    dynamic.edit(ME, lambda _: {"num.io.threads": "6"})
    assert config["num.io.threads"] == 6


def test_what_cannot_be_applied_is_undone_refused_with_the_reason_and_not_stored(
    catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig
) -> None:
    """Issue 18, C1: it was stored, and then no start came to an end."""
    applied: list[int] = []

    def follow(now: Config) -> None:
        applied.append(now["num.io.threads"])
        if now["num.io.threads"] == 6:
            raise RuntimeError("no threads left")

    config.follow(["num.io.threads"], follow)
    with pytest.raises(KafkaError, match="no threads left") as caught:
        dynamic.edit(ME, lambda _: {"num.io.threads": "6"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert config["num.io.threads"] == 4
    assert applied == [4, 6, 4]
    assert catalog.snapshot.broker_configs == {}


def test_what_cannot_be_stored_is_undone(catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig) -> None:
    applied: list[int] = []
    config.follow(["num.io.threads"], lambda now: applied.append(now["num.io.threads"]))
    catalog.close()
    with pytest.raises(KafkaError) as caught:
        dynamic.edit(ME, lambda _: {"num.io.threads": "6"})
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert config["num.io.threads"] == 4
    assert applied == [4, 6, 4]


BAD = [
    ("listener.name.plaintext.max.connections", "abc"),
    ("listener.name.plaintext.max.connections", "-5"),
    ("listener.name.plaintext.max.connections", "0"),
    ("listener.name.plaintext.max.connection.creation.rate", "²"),
    ("listener.name.plaintext.no.such.key", "1"),
    ("listener.name.elsewhere.max.connections", "7"),
    ("listener.name.elsewhere.max.connection.creation.rate", "7"),
    ("max.connections.per.ip.overrides", "127.0.0.9:²"),
    ("max.connections.per.ip.overrides", "127.0.0.9:-1"),
    ("max.connections.per.ip.overrides", "127.0.0.9:2147483648"),
    ("max.connections.per.ip.overrides", f"{'a' * 64}.example:1"),
    ("max.connections.per.ip.overrides", ",".join(["a:1"] * 1001)),
    ("max.connections.per.ip", "0"),
    ("max.connections.per.ip", "1"),
    ("max.connections", "0"),
    ("max.connections", "1_0"),
    ("max.connections", "٣"),
    ("max.connection.creation.rate", "0"),
    ("num.io.threads", "1000000"),
    ("num.io.threads", "9"),
    ("num.io.threads", "1"),
    ("log.cleaner.threads", "20000"),
    ("num.network.threads", "3000"),
    ("log.cleaner.min.cleanable.ratio", "nan"),
    ("log.cleaner.io.max.bytes.per.second", "inf"),
    ("message.max.bytes", "1" * 40_000),
    ("compression.type", "gzip\0"),
]


@pytest.mark.parametrize(("key", "value"), BAD, ids=[f"{key}={value[:12]}" for key, value in BAD])
def test_a_value_that_does_not_fit_is_refused_and_not_stored(
    catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig, key: str, value: str
) -> None:
    """Issue 18, C1, C2 and row L."""
    with pytest.raises(KafkaError) as caught:
        dynamic.edit(ME, lambda _: {"message.max.bytes": "5000", key: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert key in caught.value.message
    assert len(caught.value.message) < 1000
    assert catalog.snapshot.broker_configs == {}
    assert config.dynamic == {}


def test_limits_of_a_listener_have_the_bounds_of_the_brokers(config: Config, dynamic: DynamicBrokerConfig) -> None:
    dynamic.edit(ME, lambda _: {"listener.name.plaintext.max.connections": "3"})
    assert config["listener.name.plaintext.max.connections"] == 3


def test_nobody_from_any_address_needs_exceptions(config: Config, dynamic: DynamicBrokerConfig) -> None:
    """As Kafka: max.connections.per.ip=0 makes sense only with a list of those who may."""
    dynamic.edit(ME, lambda _: {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"})
    assert config["max.connections.per.ip"] == 0
    with pytest.raises(KafkaError, match="nobody could connect"):
        dynamic.edit(ME, lambda _: {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:0"})


def test_stored_values_that_do_not_fit_any_more_are_one_line_each_and_gone_with_the_next_change(
    catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 18, C1: an older program had taken them, or somebody edited the file."""
    bad = {"listener.name.plaintext.max.connections": "abc", "num.io.threads": "1000000", "of.a.newer.program": "\n"}
    catalog.set_broker_configs(ME, {**bad, "max.connections": "7"})
    with caplog.at_level(logging.WARNING):
        dynamic.load()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(bad)
    assert all(any(key in line for line in lines) for key in bad)
    assert not any("\n" in line for line in lines)
    assert config.dynamic == dynamic.layer(ME) == {"max.connections": "7"}
    dynamic.edit(ME, lambda before: before)
    assert catalog.snapshot.broker_configs == {ME: {"max.connections": "7"}}


def test_a_stored_value_that_cannot_be_applied_at_the_start_is_left_out(
    catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.set_broker_configs(ME, {"num.io.threads": "9", "max.connections": "7"})
    dynamic.load()

    def follow(now: Config) -> None:
        if now["num.io.threads"] == 9:
            raise RuntimeError("no threads left")

    config.follow(["num.io.threads"], follow)
    assert config["num.io.threads"] == 4
    assert config.dynamic == dynamic.layer(ME) == {"max.connections": "7"}
    assert "num.io.threads=9" in caplog.text
    assert "no threads left" in caplog.text
    dynamic.edit(ME, lambda before: {**before, "num.io.threads": "5"})
    assert catalog.snapshot.broker_configs == {ME: {"num.io.threads": "5", "max.connections": "7"}}
    assert dynamic.layer(ME) == {"num.io.threads": "5", "max.connections": "7"}


def test_a_broker_starts_without_the_stored_settings_when_it_is_told_to(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """The way in after a change that locked everybody out."""
    catalog.set_broker_configs(ME, {"max.connections": "2"})
    config = broker_config({"barnabas.dynamic.settings.enable": "false"})
    dynamic = DynamicBrokerConfig(config, catalog, 1)
    dynamic.load()
    assert config.dynamic == {}
    assert "max.connections=2" in caplog.text
    assert dynamic.layer(ME) == {"max.connections": "2"}
    dynamic.edit(ME, lambda _: {"message.max.bytes": "7"})
    assert config["message.max.bytes"] != 7
    assert catalog.snapshot.broker_configs == {ME: {"message.max.bytes": "7"}}


def test_who_cannot_wait_for_another_change_is_told_so(
    dynamic: DynamicBrokerConfig, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 18, C2: a change that is slow to apply does not hold up the handlers for ever."""
    monkeypatch.setattr("barnabas.broker.dynamic_config.PATIENCE_SECONDS", 0.05)
    entered, go_on = threading.Event(), threading.Event()

    def slow(now: Config) -> None:
        if now["num.io.threads"] == 5:
            entered.set()
            go_on.wait(30)

    config.follow(["num.io.threads"], slow)
    first = threading.Thread(target=lambda: dynamic.edit(ME, lambda _: {"num.io.threads": "5"}))
    first.start()
    try:
        assert entered.wait(30)
        with pytest.raises(KafkaError) as caught:
            dynamic.edit(ME, lambda _: {"num.partitions": "2"})
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    finally:
        go_on.set()
        first.join(30)
    assert config["num.io.threads"] == 5


def test_concurrent_edits_lose_nothing(catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig) -> None:
    keys = ["num.partitions", "message.max.bytes", "max.connections", "max.connection.creation.rate"]

    def count(key: str) -> None:
        for number in range(2, 11):

            def edit(before: Mapping[str, str], number: int = number) -> dict[str, str]:
                return {**before, key: str(number)}

            dynamic.edit(ME, edit)

    threads = [threading.Thread(target=count, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert catalog.snapshot.broker_configs == {ME: dict.fromkeys(keys, "10")}
    assert [config[key] for key in keys] == [10, 10, 10, 10]
