"""CreateTopics (key 19), versions 2-7.

Each topic is answered by itself: one bad topic does not keep the others from being created, and all good ones become
durable in one commit. On one node the replication factor is 1 (or -1), a manual assignment names this node only.
v4 -1 for partitions and replication factor (KIP-464); v5 configs in the answer (KIP-525); v7 topic id (KIP-516).
Thread: handler (writes the catalog, never inline). Lock: none of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.apis.config_entries import topic_entries
from barnabas.broker.apis.error_texts import ErrorTexts
from barnabas.broker.catalog import NewTopic, TopicInfo
from barnabas.broker.topic_names import INTERNAL_TOPICS
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

NEW_PARTITION = 50
"""How many elements of a list the creation of a partition weighs: it makes a directory and files."""

CONFIG_BYTES = 8
"""About what a config takes in an answer besides its texts."""

Outcome = TopicInfo | KafkaError | None


def handle(request: Request, broker: BrokerServices) -> CreateTopicsResponse:
    body: CreateTopicsRequest = request.body
    new_topics = _plan(body.topics, broker)
    wanted = [new for new in new_topics.values() if isinstance(new, NewTopic)]
    created = broker.topics.create(wanted, body.validate_only)
    outcomes: dict[str, Outcome] = dict(zip([new.name for new in wanted], created, strict=True))
    answer = _Answer(broker)
    return CreateTopicsResponse(
        topics=[answer.of(name, planned, outcomes.get(name)) for name, planned in new_topics.items()]
    )


def weigh(body: CreateTopicsRequest, broker: BrokerServices) -> int:
    """Those of which there are too many are refused, which costs little."""
    default: int = broker.config["num.partitions"]
    most: int = broker.config["barnabas.request.max.partitions"]
    counts = (topic.num_partitions if topic.num_partitions > 0 else default for topic in body.topics)
    return NEW_PARTITION * sum(min(most, count) for count in counts)


def error_response(body: CreateTopicsRequest, version: int, error: KafkaError) -> CreateTopicsResponse:
    texts = ErrorTexts()
    return CreateTopicsResponse(topics=[_failure(topic.name, error, texts) for topic in body.topics])


def _plan(topics: Sequence[CreatableTopic], broker: BrokerServices) -> dict[str, NewTopic | KafkaError]:
    """What to create, by name in the order of the request, or what is wrong with the request for that topic."""
    times = Counter(topic.name for topic in topics)
    plan: dict[str, NewTopic | KafkaError] = {}
    room = NewPartitions(broker)
    texts = ErrorTexts()
    for topic in topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            new = _new_topic(topic, broker)
            room.take(new.partition_count)
        except KafkaError as error:
            plan[topic.name] = texts.kept(error)
        else:
            plan[topic.name] = new
    return plan


class NewPartitions:
    """How many partitions one request may still create (`barnabas.request.max.partitions`)."""

    def __init__(self, broker: BrokerServices) -> None:
        self.most: int = broker.config["barnabas.request.max.partitions"]
        self.left = self.most

    def take(self, count: int) -> None:
        """Raises POLICY_VIOLATION, as Kafka does, when there are not so many left."""
        if count > self.left:
            text = f"A request may create {self.most} partitions at most (barnabas.request.max.partitions)."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        self.left -= count


def _new_topic(topic: CreatableTopic, broker: BrokerServices) -> NewTopic:
    count = _assigned_count(topic, broker.node.id) if topic.assignments else _partition_count(topic, broker)
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}")
        if config.name in configs:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Config {config.name} is given twice.")
        configs[config.name] = config.value
    return NewTopic(topic.name, count, configs, internal=topic.name in INTERNAL_TOPICS)


def _partition_count(topic: CreatableTopic, broker: BrokerServices) -> int:
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        text = f"Number of partitions was set to {topic.num_partitions}, it must be larger than 0 or -1."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    if topic.replication_factor not in (-1, 1):
        text = f"Replication factor is {topic.replication_factor}, but this cluster is one broker: use 1 or -1."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    count: int = broker.config["num.partitions"] if topic.num_partitions == -1 else topic.num_partitions
    return count


def _assigned_count(topic: CreatableTopic, node_id: int) -> int:
    """The number of partitions of a manual assignment."""
    if topic.replication_factor != -1:
        text = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if topic.num_partitions != -1:
        text = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    _check_partitions(topic.assignments)
    for assignment in topic.assignments:
        check_replicas(assignment.broker_ids, node_id)
    return len(topic.assignments)


def _check_partitions(assignments: Sequence[CreatableReplicaAssignment]) -> None:
    found = sorted(assignment.partition_index for assignment in assignments)
    if found != list(range(len(found))):
        text = "Partitions of a manual assignment must be 0, 1, 2 … without gaps, each of them once."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def check_replicas(broker_ids: Sequence[int], node_id: int) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT unless the partition is placed on this node, once."""
    if list(broker_ids) != [node_id]:
        text = (
            f"A partition was assigned to brokers {list(broker_ids[:10])}, but this cluster has only broker {node_id}."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


class _Answer:
    """The results of one request. Topics with the same configs share the list of them, which is left out when the answer is full."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._texts = ErrorTexts()
        self._room: int = broker.config["barnabas.response.max.bytes"]
        self._configs: dict[Hashable, tuple[list[CreatableTopicConfigs], int]] = {}

    def of(self, name: str, planned: NewTopic | KafkaError, outcome: Outcome) -> CreatableTopicResult:
        if isinstance(planned, KafkaError):
            return _failure(name, planned, self._texts)
        if isinstance(outcome, KafkaError):
            return _failure(name, outcome, self._texts)
        result = CreatableTopicResult(
            name=name,
            error_code=0,
            error_message=None,
            num_partitions=planned.partition_count,
            replication_factor=1,
            configs=self._configs_of(planned),
        )
        if outcome is not None:
            result.topic_id = outcome.topic_id
        return result

    def _configs_of(self, planned: NewTopic) -> list[CreatableTopicConfigs] | None:
        key = tuple(sorted(planned.configs.items()))
        found = self._configs.get(key)
        if found is None:
            configs = _configs(planned, self._broker)
            size = sum(CONFIG_BYTES + len(config.name) + len(config.value or "") for config in configs)
            found = self._configs[key] = (configs, size)
        configs, size = found
        self._room -= size
        return configs if self._room >= 0 else None


def _configs(planned: NewTopic, broker: BrokerServices) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in topic_entries(broker, planned.configs)
    ]


def _failure(name: str, error: KafkaError, texts: ErrorTexts) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=texts.of(error), configs=None)
