"""AlterConfigs: what is given replaces what was set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis.config_resources import BROKER, GROUP, TOPIC
from barnabas.broker.catalog import NewTopic
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tests.broker.admin_broker import NODE_ID, AdminBroker

VERSIONS = range(3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def resource(kind: int, name: str, *configs: tuple[str, str | None]) -> AlterConfigsResource:
    entries = [AlterableConfig(name=key, value=value) for key, value in configs]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)


def alter(
    broker: AdminBroker, *resources: AlterConfigsResource, version: int = 2, validate_only: bool = False
) -> list[int]:
    answer: Any = broker.ask(AlterConfigsRequest(resources=list(resources), validate_only=validate_only), version)
    assert [(found.resource_type, found.resource_name) for found in answer.responses] == [
        (asked.resource_type, asked.resource_name) for asked in resources
    ]
    return [found.error_code for found in answer.responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_given_configs_replace_those_of_the_topic_and_reach_its_log(broker: AdminBroker, version: int) -> None:
    broker.topics.create([NewTopic("orders", 2, {"retention.ms": "1", "segment.bytes": "2000000"})])
    assert alter(broker, resource(TOPIC, "orders", ("retention.ms", "99")), version=version) == [0]
    assert broker.catalog.snapshot.topics["orders"].configs == {"retention.ms": "99"}
    for partition in range(2):
        partition_log = broker.logs.get("orders", partition)
        assert partition_log is not None
        assert (partition_log.config.retention_ms, partition_log.config.segment_bytes) == (99, 1_073_741_824)


def test_dynamic_settings_of_the_broker_are_replaced(broker: AdminBroker) -> None:
    broker.services.dynamic_config.edit(str(NODE_ID), lambda _: {"num.io.threads": "3"})
    assert alter(broker, resource(BROKER, str(NODE_ID), ("max.connections", "10"))) == [0]
    assert broker.config.dynamic == {"max.connections": "10"}


def test_each_resource_is_answered_by_itself(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("orders", 1), NewTopic("twice", 1)])
    codes = alter(
        broker,
        resource(TOPIC, "orders", ("retention.ms", "99")),
        resource(TOPIC, "unknown", ("retention.ms", "99")),
        resource(TOPIC, "bad name", ("retention.ms", "99")),
        resource(TOPIC, "twice", ("retention.ms", "99")),
        resource(TOPIC, "twice", ("retention.ms", "98")),
        resource(BROKER, str(NODE_ID), ("node.id", "9")),
        resource(BROKER, str(NODE_ID + 1), ("num.io.threads", "4")),
        resource(GROUP, "group", ("x", "y")),
    )
    assert codes == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert broker.catalog.snapshot.topics["orders"].configs == {"retention.ms": "99"}
    assert broker.catalog.snapshot.topics["twice"].configs == {}


def test_bad_configs_change_nothing(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("orders", 1, {"retention.ms": "1"})])
    for configs, code in (
        ([("retention.ms", "2"), ("no.such.key", "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", "-5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", "2"), ("retention.ms", "3")], ErrorCode.INVALID_REQUEST),
        ([("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")], ErrorCode.INVALID_CONFIG),
    ):
        assert alter(broker, resource(TOPIC, "orders", *configs)) == [code]
    assert broker.catalog.snapshot.topics["orders"].configs == {"retention.ms": "1"}


def test_validate_only_changes_nothing(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("orders", 1)])
    assert alter(broker, resource(TOPIC, "orders", ("retention.ms", "9")), validate_only=True) == [0]
    assert alter(broker, resource(BROKER, "", ("num.io.threads", "4")), validate_only=True) == [0]
    assert broker.catalog.snapshot.topics["orders"].configs == {}
    assert broker.config.dynamic == {}
