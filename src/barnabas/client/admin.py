"""`Admin`: topics, partitions, settings, records, offsets, cluster, log directories and quotas, one call per task.

Role: each call sends what its task needs to the right nodes, tries again what time cures, and returns typed results
(admin_results.py). When a part of it fails, the rest is done all the same and `AdminError` has both.
Thread: one at a time; a second one gets an error. Lock: none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.client import admin_messages as messages
from barnabas.client.admin_config import ADMIN_ROWS
from barnabas.client.admin_results import (
    AdminError,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    LogDir,
    NewTopic,
    Quota,
    ResourceType,
    TopicDescription,
)
from barnabas.client.blocking import BlockingClient, Deadline, SingleThread
from barnabas.client.cluster import Node, Partition
from barnabas.client.config import client_config
from barnabas.client.errors import ClientClosed
from barnabas.client.offsets import LEAST_TIME, OffsetAndTimestamp, OffsetFinder
from barnabas.client.partition_check import PartitionCheck
from barnabas.client.times import milliseconds
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.schema import Message

__all__ = ["Admin"]

Outcome = dict[Any, Any]
Item = TypeVar("Item")
"""By item: the result, or a KafkaError."""


class Admin:
    """Looks after a cluster.

    with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        admin.create_topics([NewTopic("orders", partitions=3)])
        print(admin.list_topics())
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = client_config("admin", config, ADMIN_ROWS)
        self._client = BlockingClient(self._config, auto_create=False)
        self._default_timeout_s: float = self._config["default.api.timeout.ms"] / 1000
        self._request_timeout_ms: int = self._config["request.timeout.ms"]
        self._owner = SingleThread("admin client")
        self._closed = False

    def reach(self, timeout: float | None = None) -> None:
        """Wait until a broker has answered. Where nobody listens at any of the bootstrap servers this fails at once, other calls go on
        trying until their time-out.

        admin.reach(timeout=5)
        """
        with self._owner:
            self._client.reach(self._deadline(timeout))

    # ---------------------------------------------------------------- topics

    def list_topics(self, internal: bool = False, timeout: float | None = None) -> list[str]:
        """The names of all topics, with the internal ones when asked for."""
        body = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        with self._owner:
            answer = self._client.send_anywhere(ApiKey.METADATA, body, self._deadline(timeout))
        return sorted(row.name for row in answer.topics if internal or not row.is_internal)

    def describe_topics(self, names: Iterable[str], timeout: float | None = None) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of topics."""
        body = messages.metadata_of(_several(names))
        with self._owner:
            answer = self._client.send_anywhere(ApiKey.METADATA, body, self._deadline(timeout))
        return _all_or_error(messages.read_topics(answer))

    def create_topics(
        self, topics: Iterable[NewTopic | str], validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Make topics; the results have no partitions, because their leaders are chosen later."""
        wanted = [topic if isinstance(topic, NewTopic) else NewTopic(topic) for topic in _several(topics)]
        body = messages.create_topics(wanted, self._request_timeout_ms, validate_only)
        return self._ask_controller(ApiKey.CREATE_TOPICS, body, messages.read_created_topics, timeout)

    def delete_topics(self, names: Iterable[str], timeout: float | None = None) -> None:
        """Delete topics with all their records."""
        body = messages.delete_topics(_several(names), self._request_timeout_ms)
        self._ask_controller(ApiKey.DELETE_TOPICS, body, messages.read_deleted_topics, timeout)

    def create_partitions(
        self, totals: Mapping[str, int], validate_only: bool = False, timeout: float | None = None
    ) -> None:
        """Let topics have this many partitions in all.

        admin.create_partitions({"orders": 6})
        """
        body = messages.create_partitions(totals, self._request_timeout_ms, validate_only)
        self._ask_controller(ApiKey.CREATE_PARTITIONS, body, messages.read_created_partitions, timeout)

    # ---------------------------------------------------------------- settings

    def describe_configs(
        self, resources: Iterable[ConfigResource], timeout: float | None = None
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """All settings of topics and brokers, by name.

        admin.describe_configs([ConfigResource.topic("orders")])
        """
        found: Outcome = {}
        with self._owner:
            deadline = self._deadline(timeout)
            for node, part in self._by_node(resources, deadline):
                answer = self._send(node, ApiKey.DESCRIBE_CONFIGS, messages.describe_configs(part), deadline)
                found |= messages.read_configs(answer)
        return _all_or_error(found)

    def alter_configs(
        self,
        resource: ConfigResource,
        changes: Mapping[str, str | None],
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set settings of one resource; None takes a setting back to its default. Others stay as they are.

        admin.alter_configs(ConfigResource.topic("orders"), {"retention.ms": "60000"})
        """
        body = messages.alter_configs(resource, changes, validate_only)
        with self._owner:
            deadline = self._deadline(timeout)
            ((node, _),) = self._by_node([resource], deadline)
            answer = self._send(node, ApiKey.INCREMENTAL_ALTER_CONFIGS, body, deadline)
        _all_or_error(messages.read_altered_configs(answer))

    def _by_node(
        self, resources: Iterable[ConfigResource], deadline: Deadline
    ) -> list[tuple[Node | None, list[ConfigResource]]]:
        """A broker answers for itself, any node (None) for the rest."""
        parts: dict[Node | None, list[ConfigResource]] = defaultdict(list)
        for resource in resources:
            own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
            parts[self._node(int(resource.name), deadline) if own else None].append(resource)
        return list(parts.items())

    # ---------------------------------------------------------------- records and offsets

    def delete_records(self, before: Mapping[Partition, int], timeout: float | None = None) -> dict[Partition, int]:
        """Delete the records below an offset (-1: all) of partitions; the offsets at which they begin now."""
        with self._owner:
            deadline = self._deadline(timeout)
            self._client.topics(sorted({topic for topic, _ in before}), deadline)
            check = PartitionCheck()
            found = self._client.retry(lambda: self._delete_records(before, check, deadline), deadline)
        return _all_or_error(found)

    def _delete_records(self, before: Mapping[Partition, int], check: PartitionCheck, deadline: Deadline) -> Outcome:
        cluster = self._client.metadata.fetch()
        by_leader: dict[Node, dict[Partition, int]] = defaultdict(dict)
        for partition, offset in before.items():
            leader = cluster.leader_for(*partition)
            if leader is None:
                check.look(cluster, *partition)
                code = ErrorCode.LEADER_NOT_AVAILABLE
                raise KafkaError(code, f"{code.text}: {partition[0]}-{partition[1]}")
            by_leader[leader][partition] = offset
        found: Outcome = {}
        for leader, part in by_leader.items():
            body = messages.delete_records(part, self._request_timeout_ms)
            found |= messages.read_deleted_records(self._client.send(leader, ApiKey.DELETE_RECORDS, body, deadline))
        _raise_if_retriable(found)
        return found

    def list_offsets(
        self, times: Mapping[Partition, int], timeout: float | None = None, read_committed: bool = False
    ) -> dict[Partition, OffsetAndTimestamp]:
        """The offset of the first record at or after a time; -2 asks for the oldest record, -1 for the end. Offset -1: none is there.

        With `read_committed` a partition ends where its first open transaction begins.
        """
        wanted = {partition: milliseconds("a time", time, LEAST_TIME) for partition, time in times.items()}
        with self._owner:
            return OffsetFinder(self._client, read_committed).find(wanted, self._deadline(timeout))

    # ---------------------------------------------------------------- brokers

    def describe_cluster(self, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        with self._owner:
            body = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            return messages.read_cluster(self._client.send_anywhere(ApiKey.METADATA, body, self._deadline(timeout)))

    def describe_log_dirs(
        self, node_ids: Sequence[int] | None = None, timeout: float | None = None
    ) -> dict[int, list[LogDir]]:
        """The log directories of brokers (None: of all) and what is in them."""
        found: Outcome = {}
        with self._owner:
            deadline = self._deadline(timeout)
            nodes = self._nodes(deadline) if node_ids is None else [self._node(number, deadline) for number in node_ids]
            for node in nodes:
                answer = self._send(node, ApiKey.DESCRIBE_LOG_DIRS, messages.describe_log_dirs(), deadline)
                found[node.id] = messages.read_log_dirs(answer)
        return _all_or_error(found)

    # ---------------------------------------------------------------- quotas

    def describe_quotas(
        self, entity: Mapping[str, str | None] | None = None, timeout: float | None = None
    ) -> list[Quota]:
        """The quotas of an entity, for example {"client-id": "app"}; a name of None is the default. Without one: all."""
        body = messages.describe_quotas(entity)
        with self._owner:
            answer = self._client.send_anywhere(ApiKey.DESCRIBE_CLIENT_QUOTAS, body, self._deadline(timeout))
        return messages.read_quotas(answer)

    def alter_quotas(
        self, entity: Mapping[str, str | None], limits: Mapping[str, float | None], timeout: float | None = None
    ) -> None:
        """Set limits of an entity; None removes one.

        admin.alter_quotas({"client-id": "app"}, {"producer_byte_rate": 1_000_000})
        """
        body = messages.alter_quotas(entity, limits)
        self._ask_controller(ApiKey.ALTER_CLIENT_QUOTAS, body, messages.read_altered_quotas, timeout)

    # ---------------------------------------------------------------- the rest

    def close(self) -> None:
        """Close the connections; a second time does nothing, nor does a forked child, whose connections are the parent's."""
        if self._owner.is_forked:
            return
        with self._owner:
            if not self._closed:
                self._closed = True
                self._client.close()

    def _ask_controller(
        self,
        api_key: int,
        body: Message | Callable[[int], Message],
        read: Callable[[Any], Outcome],
        timeout: float | None,
    ) -> Outcome:
        with self._owner:
            deadline = self._deadline(timeout)

            def attempt() -> Outcome:
                found = read(self._client.send_to_controller(api_key, body, deadline))
                if any(_code(item) is ErrorCode.NOT_CONTROLLER for item in found.values()):
                    raise KafkaError(ErrorCode.NOT_CONTROLLER)
                return found

            return _all_or_error(self._client.retry(attempt, deadline))

    def _send(self, node: Node | None, api_key: int, body: Message, deadline: Deadline) -> Any:
        if node is None:
            return self._client.send_anywhere(api_key, body, deadline)
        return self._client.retry(lambda: self._client.send(node, api_key, body, deadline), deadline)

    def _nodes(self, deadline: Deadline) -> list[Node]:
        metadata = self._client.metadata
        self._client.wait_until(lambda: not metadata.fetch().is_bootstrap, deadline, "the brokers of the cluster")
        return sorted(metadata.fetch().nodes, key=lambda node: node.id)

    def _node(self, node_id: int, deadline: Deadline) -> Node:
        for node in self._nodes(deadline):
            if node.id == node_id:
                return node
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {node_id}")

    def _deadline(self, timeout: float | None) -> Deadline:
        if self._closed:
            raise ClientClosed("this admin client is closed")
        return self._client.deadline(self._default_timeout_s if timeout is None else timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Admin {self._config['client.id']!r} {self._client.metadata!r}>"


def _several(given: Iterable[Item]) -> list[Item]:
    """A single text is a list of letters to Python: nobody wants a topic of each."""
    if isinstance(given, str):
        raise TypeError(f"give a list: [{given!r}]")
    return list(given)


def _code(item: object) -> ErrorCode | None:
    return item.code if isinstance(item, KafkaError) else None


def _raise_if_retriable(found: Outcome) -> None:
    for item in found.values():
        if isinstance(item, KafkaError) and item.retriable:
            raise item


def _all_or_error(found: Outcome) -> Outcome:
    """The results; AdminError when some are errors."""
    failures = {key: item for key, item in found.items() if isinstance(item, KafkaError)}
    if failures:
        raise AdminError(failures, {key: item for key, item in found.items() if key not in failures})
    return found
