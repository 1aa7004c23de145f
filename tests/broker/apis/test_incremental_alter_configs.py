"""IncrementalAlterConfigs: single changes of topics and of the running broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis.config_resources import BROKER, CLIENT_METRICS, TOPIC
from barnabas.broker.apis.incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT
from barnabas.broker.catalog import NewTopic
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.admin_broker import NODE_ID, AdminBroker

VERSIONS = range(2)
ME = str(NODE_ID)
Operation = tuple[int, str, str | None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def resource(kind: int, name: str, *operations: Operation) -> AlterConfigsResource:
    entries = [AlterableConfig(config_operation=what, name=key, value=value) for what, key, value in operations]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)


def alter(
    broker: AdminBroker, *resources: AlterConfigsResource, version: int = 1, validate_only: bool = False
) -> list[int]:
    body = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    answer: Any = broker.ask(body, version)
    assert all(bool(found.error_code) == bool(found.error_message) for found in answer.responses)
    return [found.error_code for found in answer.responses]


def topic_configs(broker: AdminBroker, name: str = "orders") -> dict[str, str]:
    return dict(broker.catalog.snapshot.topics[name].configs)


@pytest.mark.parametrize("version", VERSIONS)
def test_set_and_delete_leave_other_configs_alone(broker: AdminBroker, version: int) -> None:
    broker.topics.create([NewTopic("orders", 1, {"retention.ms": "1", "segment.bytes": "2000000"})])
    operations: list[Operation] = [(SET, "max.message.bytes", "500"), (DELETE, "retention.ms", None)]
    assert alter(broker, resource(TOPIC, "orders", *operations), version=version) == [0]
    assert topic_configs(broker) == {"segment.bytes": "2000000", "max.message.bytes": "500"}
    partition_log = broker.logs.get("orders", 0)
    assert partition_log is not None
    assert (partition_log.config.max_message_bytes, partition_log.config.retention_ms) == (500, 604_800_000)


def test_lists_grow_from_their_default_and_shrink(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("orders", 1)])
    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
    ):
        assert alter(broker, resource(TOPIC, "orders", (operation, "cleanup.policy", value))) == [0]
        assert topic_configs(broker) == {"cleanup.policy": expected}


def test_a_list_of_the_broker_can_be_appended_to(broker: AdminBroker) -> None:
    key = "max.connections.per.ip.overrides"
    assert alter(broker, resource(BROKER, ME, (APPEND, key, "127.0.0.1:5"))) == [0]
    assert alter(broker, resource(BROKER, ME, (APPEND, key, "10.0.0.1:6"))) == [0]
    assert broker.config[key] == ("127.0.0.1:5", "10.0.0.1:6")
    assert alter(broker, resource(BROKER, ME, (SUBTRACT, key, "127.0.0.1:5"))) == [0]
    assert broker.config[key] == ("10.0.0.1:6",)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ((SET, "retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
        ((SET, "no.such.key", "1"), ErrorCode.INVALID_CONFIG),
        ((SET, "cleanup.policy", "shred"), ErrorCode.INVALID_CONFIG),
        ((APPEND, "cleanup.policy", "shred"), ErrorCode.INVALID_CONFIG),
        ((APPEND, "retention.ms", "1"), ErrorCode.INVALID_CONFIG),
        ((SUBTRACT, "no.such.key", "1"), ErrorCode.INVALID_CONFIG),
        ((SET, "retention.ms", None), ErrorCode.INVALID_REQUEST),
        ((9, "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_operation_leaves_the_whole_resource_as_it_was(
    broker: AdminBroker, operation: Operation, code: ErrorCode
) -> None:
    broker.topics.create([NewTopic("orders", 1)])
    assert alter(broker, resource(TOPIC, "orders", (SET, "segment.bytes", "2000000"), operation)) == [code]
    assert topic_configs(broker) == {}


def test_a_key_or_a_resource_that_appears_twice_is_refused(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("orders", 1), NewTopic("good", 1)])
    twice: list[Operation] = [(SET, "retention.ms", "1"), (DELETE, "retention.ms", None)]
    assert alter(broker, resource(TOPIC, "orders", *twice)) == [ErrorCode.INVALID_REQUEST]
    once = resource(TOPIC, "orders", (SET, "retention.ms", "1"))
    good = resource(TOPIC, "good", (SET, "retention.ms", "1"))
    assert alter(broker, once, once, good) == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]
    assert (topic_configs(broker), topic_configs(broker, "good")) == ({}, {"retention.ms": "1"})


def test_broker_settings_change_while_it_runs_and_listeners_hear_of_it(broker: AdminBroker) -> None:
    """RP-8, RP-9, RP-35: thread counts and connection limits are changed through this API."""
    heard: list[tuple[int, int]] = []
    broker.config.follow(
        ["num.network.threads", "num.io.threads"],
        lambda config: heard.append((config["num.network.threads"], config["num.io.threads"])),
    )
    heard.clear()
    threads = broker.config["num.network.threads"]
    assert alter(broker, resource(BROKER, "", (SET, "num.io.threads", "4"))) == [0]
    assert alter(broker, resource(BROKER, ME, (SET, "num.io.threads", "5"))) == [0]
    assert alter(broker, resource(BROKER, ME, (SET, "max.connections", "9"))) == [0]
    assert alter(broker, resource(BROKER, ME, (DELETE, "num.io.threads", None))) == [0]
    assert heard == [(threads, 4), (threads, 5), (threads, 4)]
    assert broker.config["max.connections"] == 9


@pytest.mark.parametrize(
    ("name", "operation", "code"),
    [
        (ME, (SET, "node.id", "3"), ErrorCode.INVALID_REQUEST),
        (ME, (SET, "log.dirs", "elsewhere"), ErrorCode.INVALID_REQUEST),
        ("", (SET, "listener.name.plaintext.max.connections", "3"), ErrorCode.INVALID_REQUEST),
        (str(NODE_ID + 1), (SET, "num.io.threads", "3"), ErrorCode.INVALID_REQUEST),
        (ME, (SET, "num.io.threads", "none"), ErrorCode.INVALID_CONFIG),
        (ME, (SET, "num.io.threads", "0"), ErrorCode.INVALID_CONFIG),
        (ME, (SET, "no.such.setting", "0"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_only_good_values_of_dynamic_settings_are_taken(
    broker: AdminBroker, name: str, operation: Operation, code: ErrorCode
) -> None:
    assert alter(broker, resource(BROKER, name, (SET, "max.connections", "9"), operation)) == [code]
    assert broker.config.dynamic == {}
    assert not broker.catalog.snapshot.broker_configs


def test_broker_settings_survive_a_restart(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data") as broker:
        assert alter(broker, resource(BROKER, ME, (SET, "num.io.threads", "4"))) == [0]
    with AdminBroker(tmp_path / "data") as broker:
        assert broker.config["num.io.threads"] == 4


def test_a_broker_default_reaches_the_logs_of_topics_that_do_not_set_it(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("plain", 1), NewTopic("own", 1, {"retention.ms": "77"})])
    assert alter(broker, resource(BROKER, "", (SET, "log.retention.ms", "1234"))) == [0]
    plain, own = broker.logs.get("plain", 0), broker.logs.get("own", 0)
    assert plain is not None
    assert own is not None
    assert (plain.config.retention_ms, own.config.retention_ms) == (1234, 77)
    broker.topics.create([NewTopic("later", 1)])
    later = broker.logs.get("later", 0)
    assert later is not None
    assert later.config.retention_ms == 1234


def test_other_resource_types_are_refused(broker: AdminBroker) -> None:
    assert alter(broker, resource(CLIENT_METRICS, "m", (SET, "a", "b"))) == [ErrorCode.INVALID_REQUEST]


def test_validate_only_changes_nothing(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("orders", 1)])
    good = resource(TOPIC, "orders", (SET, "retention.ms", "1"))
    bad = resource(BROKER, ME, (SET, "num.io.threads", "x"))
    assert alter(broker, good, bad, validate_only=True) == [0, ErrorCode.INVALID_CONFIG]
    assert topic_configs(broker) == {}
