"""Consumer and admin client with the API versions of brokers from 2.1 to 4.3: a live broker that says it knows no more than that."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import confluent_kafka
import pytest

from barnabas.client import network_client
from barnabas.client.admin import Admin
from barnabas.client.admin_results import ConfigResource, NewTopic
from barnabas.client.api_versions import NodeApiVersions
from barnabas.client.errors import UnsupportedVersion
from barnabas.consumer import Consumer
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from bench.brokers import BrokerProcess
from tests.waiting import wait_until

K = ApiKey
RELEASES: Mapping[str, Mapping[int, int]] = {
    "2.1": {
        K.PRODUCE: 7, K.FETCH: 10, K.LIST_OFFSETS: 4, K.METADATA: 7, K.CREATE_TOPICS: 3, K.DELETE_TOPICS: 3,
        K.DELETE_RECORDS: 1, K.DESCRIBE_CONFIGS: 2, K.DESCRIBE_LOG_DIRS: 1, K.CREATE_PARTITIONS: 1,
    },
    "2.8": {
        K.PRODUCE: 9, K.FETCH: 12, K.LIST_OFFSETS: 6, K.METADATA: 11, K.CREATE_TOPICS: 7, K.DELETE_TOPICS: 6,
        K.DELETE_RECORDS: 2, K.DESCRIBE_CONFIGS: 4, K.DESCRIBE_LOG_DIRS: 2, K.CREATE_PARTITIONS: 3,
        K.INCREMENTAL_ALTER_CONFIGS: 1,
    },
    "3.5": {
        K.PRODUCE: 9, K.FETCH: 15, K.LIST_OFFSETS: 8, K.METADATA: 12, K.CREATE_TOPICS: 7, K.DELETE_TOPICS: 6,
        K.DELETE_RECORDS: 2, K.DESCRIBE_CONFIGS: 4, K.DESCRIBE_LOG_DIRS: 4, K.CREATE_PARTITIONS: 3,
        K.INCREMENTAL_ALTER_CONFIGS: 1,
    },
}  # fmt: skip


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The broker's answer to ApiVersions, cut down to what that release knew."""
    known = RELEASES[request.param]

    def cut(answer: ApiVersionsResponse) -> NodeApiVersions:
        answer.api_keys = [row for row in answer.api_keys if row.api_key in known]
        for row in answer.api_keys:
            row.max_version = min(row.max_version, known[row.api_key])
        return NodeApiVersions(answer)

    monkeypatch.setattr(network_client, "NodeApiVersions", cut)
    return str(request.param)


def test_topics_are_made_read_and_deleted(live: BrokerProcess, release: str) -> None:
    """PP-18: everything that the release has works in its versions; what it lacks fails with that call only."""
    name = f"old-{uuid.uuid4().hex[:10]}"
    given: dict[str, Any] = {"bootstrap.servers": live.bootstrap}
    with Admin(given) as admin, Consumer({**given, "auto.offset.reset": "earliest"}) as consumer:
        admin.create_topics([NewTopic(name, 2, 1)])
        wait_until(lambda: name in admin.list_topics(), what="the topic")
        producer = confluent_kafka.Producer({"bootstrap.servers": live.bootstrap})
        for number in range(100):
            producer.produce(name, value=b"%d" % number, partition=number % 2)
        assert producer.flush(30) == 0
        consumer.assign([(name, 0), (name, 1)])
        found: list[bytes] = []
        wait_until(lambda: found.extend(r.value for r in consumer.poll(0.5)) or len(found) >= 100, what="all records")
        assert sorted(map(int, found)) == list(range(100))
        assert consumer.end_offsets([(name, 0)]) == {(name, 0): 50}
        assert admin.delete_records({(name, 0): 10}) == {(name, 0): 10}
        topic = ConfigResource.topic(name)
        assert admin.describe_configs([topic])[topic]["retention.ms"].value
        if release == "2.1":
            with pytest.raises(UnsupportedVersion, match="IncrementalAlterConfigs"):
                admin.alter_configs(topic, {"retention.ms": "1000"})
        assert admin.describe_log_dirs()
        admin.delete_topics([name])
