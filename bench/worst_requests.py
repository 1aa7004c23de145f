"""For each API the requests that cost the broker most and are still legal: below the caps on elements and bytes, well formed.

Role: `worst_requests()` is the list, used by the test that walks the API table and by `make bench-neighbours`. `prepare` makes the topics
that they ask about. The bytes are the same for Barnabas and Apache Kafka.
Thread: the caller's. Each payload is built when it is asked for; some are several megabytes.
"""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec import decode_response, encode_request_frame
from barnabas.protocol.messages import alter_client_quotas as quotas
from barnabas.protocol.messages import alter_configs, create_partitions, create_topics, delete_records, delete_topics
from barnabas.protocol.messages import describe_client_quotas as described_quotas
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.schema import Message

MOST = 249_000
"""List elements of the largest requests: below the default of barnabas.request.max.elements, with room for the outer lists."""
WIDE, WIDE_PARTITIONS = "worst-wide", 500
NARROW = tuple(f"worst-narrow-{number}" for number in range(200))
TOPIC, BROKER = 2, 4
LONG_TEXT = "a" * 32_767
"""The longest string that the protocol can carry."""


@dataclass(frozen=True, slots=True)
class WorstRequest:
    """One request. `payload()` is the whole frame, ready for a socket, different each time where a second one like it would be cheap."""

    name: str
    api_key: int
    version: int
    body: Callable[[], Message]
    most_answer_bytes: int
    """What its answer may have at most."""
    changes: bool = False
    """Whether it leaves something behind that makes the next one like it cheaper, or the broker fuller."""

    def payload(self, correlation: int = 1) -> bytes:
        return _frame(self.body(), self.version, correlation)


def _frame(body: Message, version: int, correlation: int) -> bytes:
    return b"".join(bytes(cast(Any, part)) for part in encode_request_frame(body, version, correlation, "worst"))


def prepare(port: int, host: str = "127.0.0.1") -> None:
    """Create the topics that the requests ask about. Once for each broker."""
    topics = [(WIDE, WIDE_PARTITIONS), *((name, 1) for name in NARROW)]
    body = CreateTopicsRequest(topics=[_topic(name, count) for name, count in topics])
    with closing(socket.create_connection((host, port), timeout=120)) as connection:
        connection.sendall(_frame(body, 7, 1))
        with connection.makefile("rb") as stream:
            answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    decoded: Any = decode_response(ApiKey.CREATE_TOPICS, 7, answer, 5)
    failed = [topic for topic in decoded.topics if topic.error_code]
    if failed:
        raise RuntimeError(f"{len(failed)} topics could not be created: {failed[0].error_message}")


def worst_requests() -> list[WorstRequest]:
    """At least one for each API that the broker serves."""
    return [
        *_data(),
        *_lookups(),
        *_metadata_rows(),
        *_descriptions(),
        *_topics(),
        *_odd_topics(),
        *_grown_and_deleted_topics(),
        *_configs(),
        *_changed_configs(),
        *_quotas(),
    ]


KIB, MIB = 1 << 10, 1 << 20


def _data() -> list[WorstRequest]:
    partitions = range(MOST)
    dense_produce = [PartitionProduceData(index=index, records=memoryview(b"")) for index in range(100_000)]
    return [
        WorstRequest(
            "produce: 100 000 unknown partitions",
            ApiKey.PRODUCE,
            12,
            lambda: ProduceRequest(
                acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="none", partition_data=dense_produce)]
            ),
            16 * MIB,
        ),
        WorstRequest("fetch: unknown partitions", ApiKey.FETCH, 12, lambda: _fetch("none", partitions), 24 * MIB),
        WorstRequest("fetch: a wide topic", ApiKey.FETCH, 12, lambda: _fetch(WIDE, range(WIDE_PARTITIONS)), MIB),
        WorstRequest(
            "list offsets: unknown partitions", ApiKey.LIST_OFFSETS, 7, lambda: _offsets("none", partitions), 8 * MIB
        ),
        WorstRequest(
            "list offsets: by time in a wide topic",
            ApiKey.LIST_OFFSETS,
            7,
            lambda: _offsets(WIDE, range(WIDE_PARTITIONS)),
            MIB,
        ),
        WorstRequest(
            "list offsets: one partition again and again",
            ApiKey.LIST_OFFSETS,
            7,
            lambda: _offsets(WIDE, [0] * MOST),
            8 * MIB,
        ),
        WorstRequest(
            "offset for leader epoch: one partition again and again",
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            4,
            lambda: _epochs(WIDE, [0] * MOST),
            8 * MIB,
        ),
        WorstRequest(
            "delete records: one partition again and again",
            ApiKey.DELETE_RECORDS,
            2,
            lambda: _records(WIDE, [0] * MOST),
            8 * MIB,
        ),
        WorstRequest(
            "delete records: a wide topic",
            ApiKey.DELETE_RECORDS,
            2,
            lambda: _records(WIDE, range(WIDE_PARTITIONS)),
            MIB,
        ),
        WorstRequest("init producer id", ApiKey.INIT_PRODUCER_ID, 5, lambda: _producer(), KIB),
    ]


def _lookups() -> list[WorstRequest]:
    return [
        WorstRequest(
            "api versions: long names",
            ApiKey.API_VERSIONS,
            4,
            lambda: ApiVersionsRequest(client_software_name=LONG_TEXT, client_software_version=LONG_TEXT),
            4 * KIB,
        ),
        WorstRequest(
            "find coordinator: many keys",
            ApiKey.FIND_COORDINATOR,
            6,
            lambda: FindCoordinatorRequest(coordinator_keys=_names(MOST)),
            8 * MIB,
        ),
        WorstRequest(
            "find coordinator: one key again and again",
            ApiKey.FIND_COORDINATOR,
            6,
            lambda: FindCoordinatorRequest(coordinator_keys=["a"] * MOST),
            KIB,
        ),
        WorstRequest(
            "find coordinator: an unknown kind",
            ApiKey.FIND_COORDINATOR,
            6,
            lambda: FindCoordinatorRequest(coordinator_keys=_names(MOST), key_type=77),
            8 * MIB,
        ),
    ]


def _metadata_rows() -> list[WorstRequest]:
    return [
        WorstRequest("metadata: all topics", ApiKey.METADATA, 13, lambda: _metadata(None), 4 * MIB),
        WorstRequest("metadata: unknown topics", ApiKey.METADATA, 13, lambda: _metadata(_names(MOST)), 12 * MIB),
        WorstRequest("metadata: one topic again and again", ApiKey.METADATA, 13, lambda: _metadata([WIDE] * MOST), MIB),
        WorstRequest(
            "metadata: impossible names",
            ApiKey.METADATA,
            13,
            lambda: _metadata([f"{n} " for n in range(MOST)]),
            12 * MIB,
        ),
        WorstRequest(
            "metadata: topics that are created",
            ApiKey.METADATA,
            13,
            lambda: _metadata(_names(200, f"auto-{uuid.uuid4().hex}-"), creates=True),
            MIB,
            changes=True,
        ),
    ]


def _descriptions() -> list[WorstRequest]:
    return [
        WorstRequest(
            "describe cluster",
            ApiKey.DESCRIBE_CLUSTER,
            2,
            lambda: DescribeClusterRequest(include_cluster_authorized_operations=True),
            KIB,
        ),
        WorstRequest(
            "describe topic partitions: all",
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            lambda: DescribeTopicPartitionsRequest(response_partition_limit=2**31 - 1),
            MIB,
        ),
        WorstRequest(
            "describe topic partitions: unknown topics",
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in _names(MOST)]),
            MIB,
        ),
        WorstRequest(
            "describe log directories: all",
            ApiKey.DESCRIBE_LOG_DIRS,
            4,
            lambda: DescribeLogDirsRequest(topics=None),
            MIB,
        ),
        WorstRequest(
            "describe log directories: unknown partitions",
            ApiKey.DESCRIBE_LOG_DIRS,
            4,
            lambda: DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="none", partitions=list(range(MOST)))]),
            KIB,
        ),
        WorstRequest(
            "list reassignments",
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            0,
            lambda: ListPartitionReassignmentsRequest(
                topics=[ListPartitionReassignmentsTopics(name=WIDE, partition_indexes=list(range(MOST)))]
            ),
            KIB,
        ),
    ]


def _topics() -> list[WorstRequest]:
    return [
        WorstRequest(
            "create topics: a wide one",
            ApiKey.CREATE_TOPICS,
            7,
            lambda: CreateTopicsRequest(topics=[_topic(f"wide-{uuid.uuid4().hex}", 500)]),
            8 * KIB,
            changes=True,
        ),
        WorstRequest(
            "create topics: one far too wide",
            ApiKey.CREATE_TOPICS,
            7,
            lambda: CreateTopicsRequest(topics=[_topic("far-too-wide", 2**31 - 1)]),
            KIB,
        ),
        WorstRequest(
            "create topics: only checked",
            ApiKey.CREATE_TOPICS,
            7,
            lambda: CreateTopicsRequest(topics=[_topic(name, 1) for name in _names(120_000)], validate_only=True),
            32 * MIB,
        ),
        WorstRequest(
            "create topics: impossible names",
            ApiKey.CREATE_TOPICS,
            7,
            lambda: CreateTopicsRequest(topics=[_topic(f"{number} ", 1) for number in range(MOST)]),
            16 * MIB,
        ),
    ]


def _odd_topics() -> list[WorstRequest]:
    return [
        WorstRequest(
            "create topics: many configs",
            ApiKey.CREATE_TOPICS,
            7,
            lambda: CreateTopicsRequest(
                topics=[_topic("configured", 1, [("retention.ms", "1"), *((name, "1") for name in _names(MOST))])]
            ),
            KIB,
        ),
        WorstRequest(
            "create topics: an assignment",
            ApiKey.CREATE_TOPICS,
            7,
            lambda: CreateTopicsRequest(
                topics=[
                    create_topics.CreatableTopic(
                        name="assigned",
                        num_partitions=-1,
                        replication_factor=-1,
                        assignments=[
                            create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1] * (MOST - 1))
                        ],
                        configs=[],
                    )
                ]
            ),
            KIB,
        ),
    ]


def _grown_and_deleted_topics() -> list[WorstRequest]:
    return [
        WorstRequest(
            "create partitions: many topics",
            ApiKey.CREATE_PARTITIONS,
            3,
            lambda: CreatePartitionsRequest(
                topics=[create_partitions.CreatePartitionsTopic(name=name, count=10_001) for name in NARROW],
                validate_only=True,
            ),
            256 * KIB,
        ),
        WorstRequest(
            "create partitions: unknown topics",
            ApiKey.CREATE_PARTITIONS,
            3,
            lambda: CreatePartitionsRequest(
                topics=[create_partitions.CreatePartitionsTopic(name=name, count=2) for name in _names(MOST)]
            ),
            16 * MIB,
        ),
        WorstRequest(
            "delete topics: unknown ones",
            ApiKey.DELETE_TOPICS,
            6,
            lambda: delete_topics.DeleteTopicsRequest(
                topics=[delete_topics.DeleteTopicState(name=name) for name in _names(MOST)]
            ),
            12 * MIB,
        ),
    ]


def _configs() -> list[WorstRequest]:
    return [
        WorstRequest(
            "describe configs: this broker again and again",
            ApiKey.DESCRIBE_CONFIGS,
            4,
            lambda: _described([(BROKER, "1")] * 150_000),
            256 * KIB,
        ),
        WorstRequest(
            "describe configs: all topics",
            ApiKey.DESCRIBE_CONFIGS,
            4,
            lambda: _described([(TOPIC, name) for name in (WIDE, *NARROW)]),
            33 * MIB,
        ),
        WorstRequest(
            "describe configs: unknown topics",
            ApiKey.DESCRIBE_CONFIGS,
            4,
            lambda: _described([(TOPIC, name) for name in _names(MOST)]),
            16 * MIB,
        ),
    ]


def _changed_configs() -> list[WorstRequest]:
    return [
        WorstRequest(
            "alter configs: unknown topics",
            ApiKey.ALTER_CONFIGS,
            2,
            lambda: _altered([(name, [("retention.ms", "1000")]) for name in _names(MOST // 2)]),
            16 * MIB,
        ),
        WorstRequest(
            "alter configs: one topic, many unknown configs",
            ApiKey.ALTER_CONFIGS,
            2,
            lambda: _altered([(WIDE, [(name, LONG_TEXT[:64]) for name in _names(MOST - 1)])]),
            KIB,
        ),
        WorstRequest(
            "alter configs: all topics",
            ApiKey.ALTER_CONFIGS,
            2,
            lambda: _altered([(name, [("retention.ms", str(10**9))]) for name in (WIDE, *NARROW)], validate_only=True),
            MIB,
        ),
        WorstRequest(
            "incremental alter configs: long lists",
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            lambda: _appended(
                [(WIDE, ",".join(_names(5_500, "x")))] + [(name, "delete," * 4_000) for name in NARROW[:100]]
            ),
            64 * KIB,
        ),
        WorstRequest(
            "incremental alter configs: unknown topics",
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            lambda: _appended([(name, "delete") for name in _names(MOST // 2)]),
            16 * MIB,
        ),
        WorstRequest(
            "list config resources",
            ApiKey.LIST_CONFIG_RESOURCES,
            1,
            lambda: ListConfigResourcesRequest(resource_types=[TOPIC, BROKER] * (MOST // 2)),
            4 * MIB,
        ),
    ]


def _quotas() -> list[WorstRequest]:
    return [
        WorstRequest(
            "alter client quotas: many clients",
            ApiKey.ALTER_CLIENT_QUOTAS,
            1,
            lambda: quotas.AlterClientQuotasRequest(entries=[_quota(name) for name in _names(20_000)]),
            4 * MIB,
            changes=True,
        ),
        WorstRequest(
            "alter client quotas: unknown kinds",
            ApiKey.ALTER_CLIENT_QUOTAS,
            1,
            lambda: quotas.AlterClientQuotasRequest(
                entries=[
                    quotas.EntryData(entity=[quotas.EntityData(entity_type=name, entity_name=None)], ops=[])
                    for name in _names(MOST // 2)
                ]
            ),
            12 * MIB,
        ),
        WorstRequest(
            "describe client quotas: all",
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            1,
            lambda: described_quotas.DescribeClientQuotasRequest(components=[]),
            4 * MIB,
        ),
        WorstRequest(
            "describe client quotas: many filters",
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            1,
            lambda: described_quotas.DescribeClientQuotasRequest(
                components=[
                    described_quotas.ComponentData(entity_type=name, match_type=0, match="x") for name in _names(MOST)
                ]
            ),
            KIB,
        ),
    ]


# -- bodies ----------------------------------------------------------------------------------------------------------------------------


def _names(count: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def _fetch(topic: str, partitions: Sequence[int]) -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in partitions]
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=wanted)])


def _offsets(topic: str, partitions: Sequence[int]) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=1) for index in partitions]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])


def _epochs(topic: str, partitions: Sequence[int]) -> OffsetForLeaderEpochRequest:
    wanted = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in partitions]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=wanted)])


def _records(topic: str, partitions: Sequence[int]) -> delete_records.DeleteRecordsRequest:
    wanted = [delete_records.DeleteRecordsPartition(partition_index=index, offset=-1) for index in partitions]
    return delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=30_000
    )


def _producer() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


def _metadata(names: Sequence[str] | None, creates: bool = False) -> MetadataRequest:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=creates, include_topic_authorized_operations=True)


def _topic(name: str, partitions: int, configs: Sequence[tuple[str, str]] = ()) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def _described(resources: Sequence[tuple[int, str]]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in resources
        ],
        include_synonyms=True,
        include_documentation=True,
    )


def _altered(
    resources: Sequence[tuple[str, Sequence[tuple[str, str]]]], validate_only: bool = False
) -> alter_configs.AlterConfigsRequest:
    return alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=topic,
                configs=[alter_configs.AlterableConfig(name=name, value=value) for name, value in configs],
            )
            for topic, configs in resources
        ],
        validate_only=validate_only,
    )


def _appended(resources: Sequence[tuple[str, str]]) -> incremental.IncrementalAlterConfigsRequest:
    """`cleanup.policy` of each topic is made longer by a list."""
    append = 2
    return incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=topic,
                configs=[incremental.AlterableConfig(name="cleanup.policy", config_operation=append, value=value)],
            )
            for topic, value in resources
        ]
    )


def _quota(client: str) -> quotas.EntryData:
    return quotas.EntryData(
        entity=[quotas.EntityData(entity_type="client-id", entity_name=client)],
        ops=[quotas.OpData(key="producer_byte_rate", value=1e9, remove=False)],
    )
