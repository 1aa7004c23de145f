"""From a topic and an index in a request to the partition's log, with the errors that Kafka has for each way to fail.

Thread: any. Lock: none; reads the catalog's snapshot and the log manager's table.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.catalog import TopicInfo
    from barnabas.broker.log.partition_log import PartitionLog
    from barnabas.broker.services import BrokerServices

NO_EPOCH = -1


def topic_by_name(broker: BrokerServices, name: str) -> TopicInfo:
    info = broker.catalog.snapshot.topics.get(name)
    if info is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return info


def topic_by_id(broker: BrokerServices, topic_id: uuid.UUID) -> TopicInfo:
    info = broker.catalog.snapshot.topics_by_id.get(topic_id)
    if info is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return info


def find_log(broker: BrokerServices, info: TopicInfo, partition: int) -> PartitionLog | ErrorCode:
    """The log of a partition of an existing topic, or why there is none. An answer, not an exception: one request may ask for very many.
    A partition that is in the catalog but has no log is being made or deleted."""
    log = broker.logs.get(info.name, partition)
    if log is None:
        inside = 0 <= partition < info.partition_count
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if inside else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if log.topic_id is not info.topic_id and log.topic_id != info.topic_id:
        # Deleted and created again under the same name: catalog and logs were read on two sides of it (KIP-516).
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return log


def log_of(broker: BrokerServices, info: TopicInfo, partition: int) -> PartitionLog:
    """As `find_log`; raises `KafkaError` when there is none."""
    log = find_log(broker, info, partition)
    if isinstance(log, ErrorCode):
        raise KafkaError(log)
    return log


def epoch_error(log: PartitionLog, requested: int) -> ErrorCode | None:
    """Compare the epoch that a client believes in with ours (KIP-320): FENCED (74) or UNKNOWN (75) when it is another."""
    if requested == NO_EPOCH:
        return None
    ours = log.leader_epoch
    if requested == ours:
        return None
    return ErrorCode.FENCED_LEADER_EPOCH if requested < ours else ErrorCode.UNKNOWN_LEADER_EPOCH


def check_leader_epoch(log: PartitionLog, requested: int) -> None:
    """As `epoch_error`; raises `KafkaError`."""
    error = epoch_error(log, requested)
    if error is not None:
        raise KafkaError(error)


def leader_epoch(broker: BrokerServices, topic: str, partition: int) -> int:
    """What clients are told: the newest epoch in the log, which is above 0 for directories that come from a Kafka cluster."""
    log = broker.logs.get(topic, partition)
    return 0 if log is None else log.leader_epoch
