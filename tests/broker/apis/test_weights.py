"""What requests weigh that touch more than they name (`broker/budget.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.apis.list_offsets import TIME_LOOKUP
from barnabas.broker.apis.table import TABLE
from barnabas.broker.catalog import NewTopic
from barnabas.protocol.messages import alter_configs, delete_records, incremental_alter_configs
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.schema import Message
from tests.broker.admin_broker import AdminBroker

WIDE = 12
LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path_factory.mktemp("weights") / "data", num_partitions=2) as opened:
        opened.topics.create([NewTopic("wide", WIDE), NewTopic("narrow", 1)])
        opened.catalog.set_quota((("client-id", "a"),), {"producer_byte_rate": 1e6})
        yield opened


def metadata(*names: str, creates: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=creates)


def topics_of(*counts: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=count, replication_factor=1) for count in counts]
    )


def offsets(*timestamps: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in timestamps]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="wide", partitions=partitions)])


CHANGED = alter_configs.AlterConfigsRequest(resources=[alter_configs.AlterConfigsResource()] * 2)
CHANGED_BY_PARTS = incremental_alter_configs.IncrementalAlterConfigsRequest(
    resources=[incremental_alter_configs.AlterConfigsResource()] * 2
)
CUT = delete_records.DeleteRecordsRequest(
    topics=[delete_records.DeleteRecordsTopic(name="wide", partitions=[delete_records.DeleteRecordsPartition()] * 3)]
)


@pytest.mark.parametrize(
    ("body", "weight"),
    [
        (MetadataRequest(topics=None), WIDE + 1),
        (metadata("wide"), WIDE),
        (metadata("none", "none either"), 2),
        (metadata("none", creates=True), 50 * 2),
        (topics_of(1, 4), 50 * 5),
        (topics_of(-1), 50 * 2),
        (topics_of(2**31 - 1), 50 * 10_000),
        (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="wide", count=20)]), 50 * 20),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="wide"), DeleteTopicState(name="none")]), 10 * WIDE),
        (CUT, 200 * 3),
        (CHANGED, 200 * 2),
        (CHANGED_BY_PARTS, 200 * 2),
        (DescribeConfigsRequest(resources=[DescribeConfigsResource()] * 3), 50 * 3),
        (offsets(0, MAX_TIMESTAMP, LATEST), TIME_LOOKUP * 2),
        (DescribeLogDirsRequest(topics=[]), WIDE + 1),
        (DescribeTopicPartitionsRequest(response_partition_limit=5), 5),
        (DescribeTopicPartitionsRequest(response_partition_limit=2000), WIDE + 1),
        (ListConfigResourcesRequest(), 2),
        (DescribeClientQuotasRequest(components=[]), 1),
    ],
)
def test_a_request_weighs_what_it_touches(broker: AdminBroker, body: Message, weight: int) -> None:
    assert body.schema.api_key is not None
    row = TABLE[body.schema.api_key]
    row.load()
    assert row.weigh is not None
    assert row.weigh(body, broker.services) == weight
