"""Between the admin client's types and the messages of the protocol.

Role: a function per request that builds it, and one per response that reads it into {item: result or KafkaError}.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from barnabas.client.admin_results import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    LogDir,
    NewTopic,
    Quota,
    Replica,
    ResourceType,
    TopicDescription,
)
from barnabas.client.cluster import EMPTY_CLUSTER, Partition
from barnabas.client.metadata_answer import LeaderEpochs, read_answer
from barnabas.errors import KafkaError, error_of
from barnabas.protocol.messages import alter_client_quotas, describe_client_quotas
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import ZERO_UUID, Message

Outcome = dict[Any, Any]
"""By item: the result, or a KafkaError."""

_FIRST_DELETE_BY_STATE = 6
_SET, _DELETE = 0, 1
_EXACT, _DEFAULT = 0, 1


def _error(number: int, message: str | None = None) -> KafkaError:
    return KafkaError(error_of(number), message or "")


# -------------------------------------------------------------------- topics


def metadata_of(names: Iterable[str]) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)


def read_topics(answer: MetadataResponse) -> Outcome:
    cluster, _ = read_answer(answer, EMPTY_CLUSTER, LeaderEpochs(), lambda _: True)
    found: Outcome = {
        name: TopicDescription(name, info.id, info.partitions, info.internal) for name, info in cluster.topics.items()
    }
    return found | {name: _error(code) for name, code in cluster.topic_errors.items()}


def read_cluster(answer: MetadataResponse) -> ClusterDescription:
    cluster, _ = read_answer(answer, EMPTY_CLUSTER, LeaderEpochs(), lambda _: True)
    nodes = tuple(sorted(cluster.nodes, key=lambda node: node.id))
    return ClusterDescription(cluster.cluster_id or "", cluster.controller, nodes)


def create_topics(topics: Sequence[NewTopic], timeout_ms: int, validate_only: bool) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics], timeout_ms=timeout_ms, validate_only=validate_only
    )


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = topic.assignments or {}
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=str(value)) for name, value in topic.configs.items()],
    )


def read_created_topics(answer: Any) -> Outcome:
    return {
        row.name: _error(row.error_code, row.error_message)
        if row.error_code
        else TopicDescription(row.name, None if row.topic_id == ZERO_UUID else row.topic_id, ())
        for row in answer.topics
    }


def delete_topics(names: Sequence[str], timeout_ms: int) -> Callable[[int], Message]:
    def build(version: int) -> Message:
        if version >= _FIRST_DELETE_BY_STATE:
            return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)

    return build


def read_deleted_topics(answer: Any) -> Outcome:
    return {row.name: _error(row.error_code, row.error_message) if row.error_code else None for row in answer.responses}


def create_partitions(totals: Mapping[str, int], timeout_ms: int, validate_only: bool) -> CreatePartitionsRequest:
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in totals.items()]
    return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


def read_created_partitions(answer: Any) -> Outcome:
    return {row.name: _error(row.error_code, row.error_message) if row.error_code else None for row in answer.results}


# -------------------------------------------------------------------- settings


def describe_configs(resources: Iterable[ConfigResource]) -> DescribeConfigsRequest:
    rows = [
        DescribeConfigsResource(resource_type=int(item.type), resource_name=item.name, configuration_keys=None)
        for item in resources
    ]
    return DescribeConfigsRequest(resources=rows)


def read_configs(answer: Any) -> Outcome:
    found: Outcome = {}
    for row in answer.results:
        resource = ConfigResource(ResourceType(row.resource_type), row.resource_name)
        if row.error_code:
            found[resource] = _error(row.error_code, row.error_message)
            continue
        found[resource] = {
            item.name: ConfigEntry(
                item.name,
                item.value,
                ConfigSource(item.config_source),
                item.read_only,
                item.is_sensitive,
                item.documentation,
            )
            for item in row.configs
        }
    return found


def alter_configs(
    resource: ConfigResource, changes: Mapping[str, str | None], validate_only: bool
) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(
            name=name,
            config_operation=_DELETE if value is None else _SET,
            value=None if value is None else str(value),
        )
        for name, value in changes.items()
    ]
    row = AlterConfigsResource(resource_type=int(resource.type), resource_name=resource.name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[row], validate_only=validate_only)


def read_altered_configs(answer: Any) -> Outcome:
    return {
        ConfigResource(ResourceType(row.resource_type), row.resource_name): _error(row.error_code, row.error_message)
        if row.error_code
        else None
        for row in answer.responses
    }


# -------------------------------------------------------------------- records, log directories


def delete_records(before: Mapping[Partition, int], timeout_ms: int) -> DeleteRecordsRequest:
    rows: dict[str, list[DeleteRecordsPartition]] = defaultdict(list)
    for (topic, number), offset in before.items():
        rows[topic].append(DeleteRecordsPartition(partition_index=number, offset=offset))
    topics = [DeleteRecordsTopic(name=topic, partitions=parts) for topic, parts in rows.items()]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def read_deleted_records(answer: Any) -> Outcome:
    return {
        (topic.name, row.partition_index): _error(row.error_code) if row.error_code else row.low_watermark
        for topic in answer.topics
        for row in topic.partitions
    }


def describe_log_dirs() -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=None)


def read_log_dirs(answer: Any) -> list[LogDir] | KafkaError:
    if answer.error_code:
        return _error(answer.error_code)
    return [
        LogDir(
            row.log_dir,
            {
                (topic.name, part.partition_index): Replica(part.partition_size, part.offset_lag, part.is_future_key)
                for topic in row.topics
                for part in topic.partitions
            },
            row.total_bytes,
            row.usable_bytes,
            _error(row.error_code) if row.error_code else None,
        )
        for row in answer.results
    ]


# -------------------------------------------------------------------- quotas


def describe_quotas(
    entity: Mapping[str, str | None] | None,
) -> describe_client_quotas.DescribeClientQuotasRequest:
    components = [
        describe_client_quotas.ComponentData(
            entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
        )
        for kind, name in (entity or {}).items()
    ]
    return describe_client_quotas.DescribeClientQuotasRequest(components=components, strict=bool(entity))


def read_quotas(answer: Any) -> list[Quota]:
    if answer.error_code:
        raise _error(answer.error_code, answer.error_message)
    return [
        Quota(
            {part.entity_type: part.entity_name for part in row.entity}, {item.key: item.value for item in row.values}
        )
        for row in answer.entries or ()
    ]


def alter_quotas(
    entity: Mapping[str, str | None], limits: Mapping[str, float | None]
) -> alter_client_quotas.AlterClientQuotasRequest:
    row = alter_client_quotas.EntryData(
        entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            alter_client_quotas.OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
            for key, value in limits.items()
        ],
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=[row])


def read_altered_quotas(answer: Any) -> Outcome:
    return {
        tuple((part.entity_type, part.entity_name) for part in row.entity): _error(row.error_code, row.error_message)
        if row.error_code
        else None
        for row in answer.entries
    }
