"""DescribeConfigs: every config, with its default, where it comes from and what it means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis.config_entries import ConfigEntry, ConfigSource, Synonym
from barnabas.broker.apis.config_resources import BROKER, GROUP, TOPIC
from barnabas.broker.catalog import NewTopic
from barnabas.broker.settings import BROKER as BROKER_ROWS
from barnabas.broker.topic_settings import TOPIC as TOPIC_ROWS
from barnabas.config import ConfigKey, ConfigType, to_text
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.admin_broker import NODE_ID, AdminBroker

VERSIONS = range(1, 5)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def describe(broker: AdminBroker, kind: int, name: str, *keys: str, version: int = 4, **flags: bool) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    (result,) = broker.ask(DescribeConfigsRequest(resources=[resource], **flags), version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def configs(result: Any) -> dict[str, Any]:
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_topic_config_is_listed_with_its_default(broker: AdminBroker, version: int) -> None:
    broker.topics.create([NewTopic("orders", 1)])
    found = configs(describe(broker, TOPIC, "orders", version=version))
    assert set(found) == {row.name for row in TOPIC_ROWS}
    assert found["retention.ms"].value == "604800000"
    assert found["cleanup.policy"].value == "delete"
    assert {config.config_source for config in found.values()} == {ConfigSource.DEFAULT}
    assert not any(config.read_only or config.is_sensitive for config in found.values())
    if version >= 3:
        assert found["retention.ms"].config_type == ConfigType.LONG
        assert found["cleanup.policy"].config_type == ConfigType.LIST


def test_a_topic_config_shows_all_layers_below_it(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data", log_segment_bytes=2_000_000) as broker:
        broker.topics.create([NewTopic("orders", 1, {"segment.bytes": "5000000"})])
        broker.services.dynamic_config.edit("", lambda _: {"log.segment.bytes": "3000000"})
        broker.services.dynamic_config.edit(str(NODE_ID), lambda _: {"log.segment.bytes": "4000000"})
        found = configs(describe(broker, TOPIC, "orders", include_synonyms=True))["segment.bytes"]
        assert (found.value, found.config_source) == ("5000000", ConfigSource.TOPIC)
        assert [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms] == [
            ("segment.bytes", "5000000", ConfigSource.TOPIC),
            ("log.segment.bytes", "4000000", ConfigSource.DYNAMIC_BROKER),
            ("log.segment.bytes", "3000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
            ("log.segment.bytes", "2000000", ConfigSource.STATIC_BROKER),
            ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
        ]
        broker.topics.edit_configs("orders", lambda _: {})
        found = configs(describe(broker, TOPIC, "orders"))["segment.bytes"]
        assert (found.value, found.config_source, found.synonyms) == ("4000000", ConfigSource.DYNAMIC_BROKER, [])


def test_retention_in_hours_is_shown_in_milliseconds(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data", log_retention_hours=2) as broker:
        broker.topics.create([NewTopic("orders", 1)])
        (found,) = describe(broker, TOPIC, "orders", "retention.ms", include_synonyms=True).configs
        assert (found.value, found.config_source) == ("7200000", ConfigSource.STATIC_BROKER)
        assert [(synonym.name, synonym.value) for synonym in found.synonyms] == [
            ("log.retention.hours", "2"),
            ("log.retention.hours", "168"),
        ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_broker_setting_is_listed_with_value_and_source(tmp_path: Path, version: int) -> None:
    with AdminBroker(tmp_path / "data", num_partitions=6) as broker:
        found = configs(describe(broker, BROKER, str(NODE_ID), version=version))
        assert set(found) == {row.name for row in BROKER_ROWS}
        assert (found["num.partitions"].value, found["num.partitions"].config_source) == (
            "6",
            ConfigSource.STATIC_BROKER,
        )
        for row in BROKER_ROWS:
            assert found[row.name].read_only is not row.dynamic
            if found[row.name].config_source == ConfigSource.DEFAULT:
                assert found[row.name].value == to_text(row.default)


def test_documentation_comes_only_when_asked_for(broker: AdminBroker) -> None:
    assert all(config.documentation is None for config in describe(broker, BROKER, str(NODE_ID)).configs)
    found = configs(describe(broker, BROKER, str(NODE_ID), include_documentation=True))
    assert found["num.io.threads"].documentation == BROKER_ROWS["num.io.threads"].doc


def test_only_the_asked_keys_are_answered(broker: AdminBroker) -> None:
    found = configs(describe(broker, BROKER, str(NODE_ID), "num.io.threads", "no.such.key"))
    assert set(found) == {"num.io.threads"}


def test_the_broker_without_a_name_is_the_default_of_all(broker: AdminBroker) -> None:
    assert configs(describe(broker, BROKER, "")) == {}
    broker.services.dynamic_config.edit("", lambda _: {"num.io.threads": "3"})
    (found,) = describe(broker, BROKER, "").configs
    assert (found.name, found.value, found.config_source) == (
        "num.io.threads",
        "3",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )


def test_limits_of_a_listener_are_shown_when_set(broker: AdminBroker) -> None:
    key = "listener.name.plaintext.max.connections"
    broker.services.dynamic_config.edit(str(NODE_ID), lambda _: {key: "5"})
    found = configs(describe(broker, BROKER, str(NODE_ID)))[key]
    assert (found.value, found.config_source, found.read_only) == ("5", ConfigSource.DYNAMIC_BROKER, False)


def test_what_does_not_exist_is_told_resource_by_resource(broker: AdminBroker) -> None:
    expected = {
        (TOPIC, "unknown"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (TOPIC, "bad name"): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (BROKER, str(NODE_ID + 1)): ErrorCode.INVALID_REQUEST,
        (BROKER, "nobody"): ErrorCode.INVALID_REQUEST,
        (GROUP, "g"): ErrorCode.INVALID_REQUEST,
        (0, ""): ErrorCode.INVALID_REQUEST,
    }
    for (kind, name), code in expected.items():
        result = describe(broker, kind, name)
        assert (result.error_code, result.configs) == (code, [])
        assert result.error_message


def test_a_secret_is_never_shown() -> None:
    layers = (Synonym("ssl.keystore.password", "hunter2", ConfigSource.STATIC_BROKER),)
    row = ConfigKey("ssl.keystore.password", ConfigType.PASSWORD, None, "")
    entry = ConfigEntry(row, True, "hunter2", layers)
    assert entry.sensitive
    assert entry.value is None
    assert [synonym.value for synonym in entry.synonyms] == [None]


def resource(kind: int, name: str, *keys: str) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)


def test_a_resource_that_is_named_again_and_again_is_answered_once(broker: AdminBroker) -> None:
    """150 000 times this broker was an answer of 1.7 GB."""
    resources = [resource(BROKER, str(NODE_ID)) for _ in range(2_000)]
    answer = broker.ask(DescribeConfigsRequest(resources=resources, include_synonyms=True), 4)
    assert [result.resource_name for result in answer.results] == [str(NODE_ID)]


def test_different_configs_of_one_resource_are_answered_together(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("orders", 1)])
    named = [resource(TOPIC, "orders", "retention.ms"), resource(TOPIC, "orders", "segment.ms", "retention.ms")]
    (result,) = broker.ask(DescribeConfigsRequest(resources=named), 4).results
    assert set(configs(result)) == {"retention.ms", "segment.ms"}
    (result,) = broker.ask(DescribeConfigsRequest(resources=[*named, resource(TOPIC, "orders")]), 4).results
    assert len(configs(result)) == len(list(TOPIC_ROWS))


def test_resources_that_make_the_answer_too_large_are_refused(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data", barnabas_response_max_bytes=20_000) as broker:
        names = [f"t{number}" for number in range(20)]
        broker.topics.create([NewTopic(name, 1) for name in names])
        body = DescribeConfigsRequest(resources=[resource(TOPIC, name) for name in names], include_documentation=True)
        results = broker.ask(body, 4).results
        codes = [result.error_code for result in results]
        given = codes.index(ErrorCode.INVALID_REQUEST)
        assert 0 < given < 20
        assert codes[given:] == [ErrorCode.INVALID_REQUEST] * (20 - given)
        assert "barnabas.response.max.bytes" in results[-1].error_message
