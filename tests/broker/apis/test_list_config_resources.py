"""ListConfigResources: what has configs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.apis.config_resources import BROKER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.broker.catalog import NewTopic
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.admin_broker import NODE_ID, AdminBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def listed(broker: AdminBroker, *types: int) -> list[tuple[int, str]]:
    answer = broker.ask(ListConfigResourcesRequest(resource_types=list(types)), 1)
    assert answer.error_code == 0
    return [(found.resource_type, found.resource_name) for found in answer.config_resources]


def test_topics_and_this_broker_are_listed_by_type(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("b", 1), NewTopic("a", 1)])
    me = (BROKER, str(NODE_ID))
    assert listed(broker) == [(TOPIC, "a"), (TOPIC, "b"), me]
    assert listed(broker, TOPIC) == [(TOPIC, "a"), (TOPIC, "b")]
    assert listed(broker, BROKER) == [me]
    assert listed(broker, GROUP, CLIENT_METRICS) == []


def test_version_0_asks_for_client_metrics_only(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("a", 1)])
    answer = broker.ask(ListConfigResourcesRequest(), 0)
    assert (answer.error_code, answer.config_resources) == (0, [])


def test_an_unknown_type_is_refused(broker: AdminBroker) -> None:
    answer = broker.ask(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
