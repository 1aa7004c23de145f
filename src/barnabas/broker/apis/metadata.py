"""Metadata (key 3), versions 0-13.

One broker, which is leader of everything and the controller; its address is that of the listener the request came through.
v0 empty = all topics; v1+ null = all, empty = none; v4 auto-creation flag (v0-3: as the broker is configured);
v8 authorized operations; v10 topic ids (KIP-516); v12 look-up by id; v13 top-level error.
An unknown topic is created at once when that is allowed, so that the client needs no second request.
Thread: handler; auto-creation writes the catalog. Lock: none of its own, reads one snapshot.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from barnabas.broker.apis.authorized_operations import cluster_operations, topic_operations
from barnabas.broker.apis.create_topics import NEW_PARTITION
from barnabas.broker.apis.partition_lookup import leader_epoch
from barnabas.broker.catalog import CatalogSnapshot, TopicInfo
from barnabas.broker.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, name_problem
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

NO_ID = uuid.UUID(int=0)
WAITS = 1 << 20
"""More elements than any light request has: it may wait for another one, which the handlers of light ones must not."""
FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_WITH_IDS = 12


def handle(request: Request, broker: BrokerServices) -> MetadataResponse:
    body: MetadataRequest = request.body
    version: int = request.header.api_version
    operations = topic_operations(body.include_topic_authorized_operations)
    if body.topics is None or (not body.topics and version < FIRST_VERSION_WITH_NULL_FOR_ALL):
        topics = _all_topics(broker.catalog.snapshot, broker, operations)
    else:
        topics = _asked_topics(body, version, broker, operations)
    node = broker.node
    host, port = node.endpoint(request.connection.listener)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node.id, host=host, port=port, rack=node.rack)],
        cluster_id=broker.catalog.snapshot.cluster_id,
        controller_id=node.id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(body.include_cluster_authorized_operations),
    )


def weigh(body: MetadataRequest, broker: BrokerServices) -> int:
    """The partitions that are described, and those that may be created."""
    snapshot = broker.catalog.snapshot
    if body.topics is None:
        return snapshot.partition_count
    creates = body.allow_auto_topic_creation and broker.config["auto.create.topics.enable"]
    new: int = NEW_PARTITION * broker.config["num.partitions"] if creates else 1
    names, ids = snapshot.topics, snapshot.topics_by_id
    weight = 0
    for asked in body.topics:
        topic = ids.get(asked.topic_id) if asked.name is None else names.get(asked.name)
        if topic is not None:
            weight += topic.partition_count
        elif creates and asked.name is not None and broker.topics.is_changing(asked.name):
            weight += WAITS
        else:
            weight += new
    return weight


def error_response(body: MetadataRequest, version: int, error: KafkaError) -> MetadataResponse:
    """Before v13 an error can only be told topic by topic."""
    topics = [_failure(topic, version, error.code) for topic in body.topics or ()]
    return MetadataResponse(topics=topics, error_code=error.code)


# -- all topics --------------------------------------------------------------------------------------------------------


def _all_topics(snapshot: CatalogSnapshot, broker: BrokerServices, operations: int) -> list[MetadataResponseTopic]:
    """Described once per snapshot: with many topics this is most of the work of the request."""
    key = ("metadata", operations)
    topics: list[MetadataResponseTopic] | None = snapshot.derived.get(key)
    if topics is None:
        topics = [_describe(topic, broker, operations) for topic in snapshot.topics.values()]
        snapshot.derived[key] = topics
    return topics


def _describe(topic: TopicInfo, broker: BrokerServices, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            _partition(broker.node.id, index, leader_epoch(broker, topic.name, index))
            for index in range(topic.partition_count)
        ],
        topic_authorized_operations=operations,
    )


@lru_cache(maxsize=16384)
def _partition(node_id: int, index: int, epoch: int) -> MetadataResponsePartition:
    """Partition 3 of one topic looks like partition 3 of every other, so they share one object that nobody changes."""
    return MetadataResponsePartition(
        error_code=0,
        partition_index=index,
        leader_id=node_id,
        leader_epoch=epoch,
        replica_nodes=[node_id],
        isr_nodes=[node_id],
        offline_replicas=[],
    )


# -- topics by name or id ----------------------------------------------------------------------------------------------


def _asked_topics(
    body: MetadataRequest, version: int, broker: BrokerServices, operations: int
) -> list[MetadataResponseTopic]:
    asked: Sequence[MetadataRequestTopic] = body.topics or ()
    if version < FIRST_VERSION_WITH_IDS:
        _refuse_ids(asked, version)
    snapshot = broker.catalog.snapshot
    by_name = _find_names([topic.name for topic in asked if topic.name is not None], body, snapshot, broker)
    described: dict[object, MetadataResponseTopic] = {}
    for topic in asked:
        key = topic.topic_id if topic.name is None else topic.name
        if key in described:
            continue
        found = _find_id(topic.topic_id, snapshot) if topic.name is None else by_name[topic.name]
        if isinstance(found, TopicInfo):
            described[key] = _describe(found, broker, operations)
        else:
            described[key] = _failure(topic, version, found)
    return list(described.values())


def _refuse_ids(asked: Sequence[MetadataRequestTopic], version: int) -> None:
    if any(topic.name is None or topic.topic_id != NO_ID for topic in asked):
        text = f"Topic IDs are not supported in requests for version {version}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _find_id(topic_id: uuid.UUID, snapshot: CatalogSnapshot) -> TopicInfo | ErrorCode:
    return snapshot.topics_by_id.get(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID


def _find_names(
    names: Sequence[str], body: MetadataRequest, snapshot: CatalogSnapshot, broker: BrokerServices
) -> dict[str, TopicInfo | ErrorCode]:
    found: dict[str, TopicInfo | ErrorCode] = {
        name: snapshot.topics.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name in names
    }
    for name, topic in found.items():
        if isinstance(topic, ErrorCode) and name_problem(name) is not None:
            found[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
    if body.allow_auto_topic_creation and broker.config["auto.create.topics.enable"]:
        _create_missing(found, broker)
    return found


def _create_missing(found: dict[str, TopicInfo | ErrorCode], broker: BrokerServices) -> None:
    """Internal topics are made by those who use them, with configs of their own. The number is bounded as CreateTopics is: the first
    topics are made, the others stay unknown, and a client that asks again gets them."""
    missing = (
        name
        for name, topic in found.items()
        if topic is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        and name not in INTERNAL_TOPICS
        and name != CLUSTER_METADATA_TOPIC
    )
    limit = broker.config["barnabas.request.max.partitions"] // broker.config["num.partitions"]
    names = list(islice(missing, limit))
    if not limit:
        found.update(
            dict.fromkeys(missing, ErrorCode.POLICY_VIOLATION)
        )  # num.partitions is more than a request may create
    elif names:
        for name, made in broker.topics.auto_create(names).items():
            found[name] = made.code if isinstance(made, KafkaError) else made


def _failure(topic: MetadataRequestTopic, version: int, code: ErrorCode) -> MetadataResponseTopic:
    name = topic.name
    if name is None and version < FIRST_VERSION_WITH_IDS:
        name = ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic.topic_id)
