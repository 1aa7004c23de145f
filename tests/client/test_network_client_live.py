"""The network client against a broker in this process, and the same against Apache Kafka where it is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.requests import ClientRequest
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.both_brokers import Broker, broker_for_test
from tests.client.driving import Driver, now_ms

END_OF_LOG = -1


@pytest.fixture
def broker() -> Iterator[Broker]:
    with broker_for_test(topics={"orders": 3}) as running:
        yield running


def list_offsets(node_id: int, topic: str, partition: int) -> ClientRequest:
    rows = [ListOffsetsPartition(partition_index=partition, timestamp=END_OF_LOG)]
    body = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)])
    return ClientRequest(node_id, ApiKey.LIST_OFFSETS, body, now_ms())


def test_a_client_finds_the_leader_and_asks_it(broker: Broker) -> None:
    """PP-16, PP-18, PP-20, PP-23: bootstrap, versions, metadata, then a request and its answer."""
    with Driver(broker.bootstrap_servers) as driver:
        driver.learn("orders")
        cluster = driver.metadata.fetch()
        assert [info.partition for info in cluster.partitions_for("orders")] == [0, 1, 2]
        leader = cluster.leader_for("orders", 2)
        assert leader is not None
        assert cluster.topic_ids["orders"].int
        driver.connect(leader)
        response = driver.ask(list_offsets(leader.id, "orders", 2))
        assert response.was_answered
        (topic,) = response.body.topics
        assert (topic.partitions[0].error_code, topic.partitions[0].offset) == (0, 0)
