"""The catalog object: readers take a snapshot, writers take turns.

Role: cluster metadata of one node (topics, ids, configs, quotas, producer ids), durable before it is visible.
Thread: any. Lock: `_write_lock` serialises changes and is held over the commit (its fsync is the point of it), but not while logs are
made; readers never take it: they read the attribute `snapshot`, which is replaced, never modified.

Order that makes create and delete safe against kill -9: the catalog decides. A topic exists from the commit here; its
logs are made afterwards (`prepare`), and a start makes those that are missing. A topic is gone from the commit here; its
id is kept among the deleted ones until a start has found no log of it, and that start removes what is left.
"""

from __future__ import annotations

import logging
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from barnabas.broker.catalog import database
from barnabas.broker.catalog.database import MetadataDatabase
from barnabas.broker.catalog.model import CatalogSnapshot, NewTopic, QuotaEntity, TopicInfo, uuid_text
from barnabas.broker.catalog.producer_ids import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlocks
from barnabas.broker.log.checkpoints import CATALOG_FILE
from barnabas.clock import Clock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.fair_lock import FairLock

T = TypeVar("T")
Change = Callable[[sqlite3.Connection], None]
Prepare = Callable[[Sequence[TopicInfo]], None]

CATALOG_FILE_NAME = CATALOG_FILE
SLOW_COMMIT_MS = 1000

log = logging.getLogger(__name__)


def new_id() -> uuid.UUID:
    """A random id whose text does not start with a dash, so that it can be typed as a command-line argument."""
    while True:
        candidate = uuid.uuid4()
        if not uuid_text(candidate).startswith("-"):
            return candidate


class Catalog:
    """Thread-safe. Open with `Catalog.open`, end with `close`."""

    __slots__ = ("_clock", "_closed", "_database", "_write_lock", "producer_ids", "snapshot")

    def __init__(self, metadata: MetadataDatabase, clock: Clock, cluster_id: str | None) -> None:
        self._database = metadata
        self._clock = clock
        self._write_lock = FairLock()
        self._closed = False
        self.snapshot: CatalogSnapshot = metadata.load()
        self.producer_ids = ProducerIdBlocks(self._reserve_producer_ids)
        if not self.snapshot.cluster_id:
            self._set_cluster_id(cluster_id or uuid_text(new_id()))

    @classmethod
    def open(cls, path: Path | str, clock: Clock, cluster_id: str | None = None) -> Catalog:
        """Open or make the file at `path`. `cluster_id` is used only when the file has none yet."""
        metadata = MetadataDatabase(Path(path))
        try:
            return cls(metadata, clock, cluster_id)
        except BaseException:
            metadata.close()
            raise

    def close(self, timeout: float = 30.0) -> bool:
        """False when a change was not finished after `timeout` seconds; what it has not committed yet is lost."""
        if not self._write_lock.acquire(timeout=timeout):
            return False
        try:
            if not self._closed:
                self._closed = True
                self._database.close()
        finally:
            self._write_lock.release()
        return True

    # -- topics ----------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partition_count: int,
        configs: Mapping[str, str] | None = None,
        *,
        internal: bool = False,
        topic_id: uuid.UUID | None = None,
    ) -> TopicInfo:
        return self.create_topics([NewTopic(name, partition_count, configs or {}, internal, topic_id)])[0]

    def create_topics(self, new_topics: Sequence[NewTopic], prepare: Prepare | None = None) -> list[TopicInfo]:
        """All of them in one commit, or none: TOPIC_ALREADY_EXISTS names the first that is there already.

        `prepare(created)` makes the logs: after the commit, before any reader sees the topics, so that nobody can ask for
        a topic whose log is not there yet. When it raises, the commit is undone. It may take long, so other changes go on
        meanwhile; the caller sees to it that there is none to the same topics.
        """
        with self._write_lock:
            created = self._new_topics(new_topics)
            self._commit(lambda connection: database.insert_topics(connection, created))
        self._prepare(prepare, created, lambda connection: database.bury_topics(connection, created))
        with self._write_lock:
            self._publish_topics(created)
        return created

    def delete_topic(self, name: str) -> TopicInfo:
        """From now on nobody sees the topic; its id stays in `deleted_topics()` until `forget_deleted`."""
        return self.delete_topics([name])[0]

    def delete_topics(self, names: Sequence[str]) -> list[TopicInfo]:
        with self._write_lock:
            doomed = [self._topic(name) for name in names]
            self._commit(lambda connection: database.bury_topics(connection, doomed))
            topics, by_id = dict(self.snapshot.topics), dict(self.snapshot.topics_by_id)
            for topic in doomed:
                del topics[topic.name], by_id[topic.topic_id]
            self._publish(topics=topics, by_id=by_id)
            return doomed

    def deleted_topics(self) -> Mapping[uuid.UUID, str]:
        """Ids and names of topics that are deleted but whose logs may still be on disk."""
        with self._write_lock:
            return self._database.load_deleted_topics()

    def forget_deleted(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """The logs of these deleted topics are gone."""
        with self._write_lock:
            self._commit(lambda connection: database.forget_deleted(connection, topic_ids))

    def add_partitions(self, name: str, partition_count: int, prepare: Prepare | None = None) -> TopicInfo:
        """Let the topic have `partition_count` partitions in total; fewer or as many is INVALID_PARTITIONS. `prepare` as above."""
        with self._write_lock:
            topic = self._topic(name)
            if partition_count <= topic.partition_count:
                text = f"Topic '{name}' has {topic.partition_count} partitions, {partition_count} is not an increase."
                raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
            changed = replace(topic, partition_count=partition_count)
            self._commit(lambda connection: database.set_partition_count(connection, changed))
        self._prepare(prepare, [changed], lambda connection: database.set_partition_count(connection, topic))
        with self._write_lock:
            changed = replace(self._topic(name), partition_count=partition_count)  # its configs may be others now
            self._publish_topics([changed])
        return changed

    def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> TopicInfo:
        """Let these be all of the topic's own configs."""
        with self._write_lock:
            changed = replace(self._topic(name), configs=dict(configs))
            self._commit(lambda connection: database.replace_topic_configs(connection, changed))
            self._publish_topics([changed])
            return changed

    def leave_out_topic_configs(self, unusable: Mapping[str, Iterable[str]]) -> None:
        """By topic, keys of configs that readers do not see any more. They stay stored until the topic's configs are changed."""
        with self._write_lock:
            found = [(self._topic(name), frozenset(keys)) for name, keys in unusable.items()]
            self._publish_topics(
                [
                    replace(topic, configs={key: value for key, value in topic.configs.items() if key not in keys})
                    for topic, keys in found
                ]
            )

    # -- broker configs, quotas, producer ids ----------------------------------------------------------------------

    def set_broker_configs(self, resource: str, configs: Mapping[str, str]) -> None:
        """Let these be all dynamic configs of `resource`: a node id as text, or "" for every broker."""
        with self._write_lock:
            self._commit(lambda connection: database.replace_broker_configs(connection, resource, configs))
            every = dict(self.snapshot.broker_configs)
            every[resource] = dict(configs)
            if not configs:
                del every[resource]
            self._publish(broker_configs=every)

    def set_quota(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        self.set_quotas({entity: changes})

    def set_quotas(self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]) -> None:
        """Merge: a number sets that quota of that entity, None removes it. All in one commit."""
        with self._write_lock:
            quotas = dict(self.snapshot.quotas)
            merged = {entity: _merge(quotas.get(entity, {}), edits) for entity, edits in changes.items()}

            def store(connection: sqlite3.Connection) -> None:
                for entity, values in merged.items():
                    database.replace_quota(connection, entity, values)

            self._commit(store)
            quotas.update(merged)
            self._publish(quotas={entity: values for entity, values in quotas.items() if values})

    def next_producer_id(self) -> int:
        """An id that no producer of this cluster has had or will get."""
        return self.producer_ids.next_producer_id()

    def skip_producer_ids(self, largest_known: int) -> None:
        """Never give away an id that the logs know: a catalog that was lost or is an old copy has forgotten who got it.

        Called before the first id is given away. The rest of that id's block is left out too: producers may have it that have not
        written yet. While the catalog is whole nothing changes, since it is always ahead by a block.
        """
        first = (largest_known // PRODUCER_ID_BLOCK_SIZE + 1) * PRODUCER_ID_BLOCK_SIZE
        with self._write_lock:
            if self._commit(lambda connection: database.raise_producer_ids(connection, first)):
                log.warning(
                    "The logs know producer ids up to %d, the catalog did not: %d is next", largest_known, first
                )

    def _reserve_producer_ids(self, count: int) -> int:
        with self._write_lock:
            return self._commit(lambda connection: database.reserve_producer_ids(connection, count))

    def _prepare(self, prepare: Prepare | None, topics: Sequence[TopicInfo], undo: Change) -> None:
        if prepare is None:
            return
        try:
            prepare(topics)
        except BaseException:
            with self._write_lock:
                self._commit(undo)
            raise

    # -- under the write lock --------------------------------------------------------------------------------------

    def _new_topics(self, new_topics: Sequence[NewTopic]) -> list[TopicInfo]:
        created: dict[str, TopicInfo] = {}
        for new in new_topics:
            if new.name in self.snapshot.topics or new.name in created:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
            topic_id = new.topic_id or new_id()
            created[new.name] = TopicInfo(new.name, topic_id, new.partition_count, dict(new.configs), new.internal)
        return list(created.values())

    def _topic(self, name: str) -> TopicInfo:
        topic = self.snapshot.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic

    def _commit(self, change: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The catalog is closed.")
        start = self._clock.monotonic_ns()
        result = self._database.transaction(change)
        took_ms = (self._clock.monotonic_ns() - start) // 1_000_000
        if took_ms > SLOW_COMMIT_MS:
            log.warning("A commit to %s took %d ms: the disk is slow", self._database.path.name, took_ms)
        return result

    def _set_cluster_id(self, cluster_id: str) -> None:
        self._commit(lambda connection: database.set_cluster_id(connection, cluster_id))
        self.snapshot = self._database.load()

    def _publish_topics(self, changed: Sequence[TopicInfo]) -> None:
        topics, by_id = dict(self.snapshot.topics), dict(self.snapshot.topics_by_id)
        for topic in changed:
            topics[topic.name] = by_id[topic.topic_id] = topic
        self._publish(topics=topics, by_id=by_id)

    def _publish(
        self,
        topics: Mapping[str, TopicInfo] | None = None,
        by_id: Mapping[uuid.UUID, TopicInfo] | None = None,
        broker_configs: Mapping[str, Mapping[str, str]] | None = None,
        quotas: Mapping[QuotaEntity, Mapping[str, float]] | None = None,
    ) -> None:
        """One attribute store makes the change visible: a reader sees all of it or nothing."""
        old = self.snapshot
        self.snapshot = CatalogSnapshot(
            cluster_id=old.cluster_id,
            topics=old.topics if topics is None else topics,
            topics_by_id=old.topics_by_id if by_id is None else by_id,
            broker_configs=old.broker_configs if broker_configs is None else broker_configs,
            quotas=old.quotas if quotas is None else quotas,
            epoch=old.epoch + 1,
        )

    def __repr__(self) -> str:
        return f"Catalog(path={str(self._database.path)!r}, snapshot={self.snapshot!r})"


def _merge(old: Mapping[str, float], edits: Mapping[str, float | None]) -> dict[str, float]:
    merged = dict(old)
    for key, value in edits.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged
