"""The SQLite file behind the catalog: schema, loading, and one durable transaction per change.

Role: the only module that speaks SQL. Thread: whoever holds the catalog's write lock. Lock: the catalog's.

Write-ahead log with synchronous=FULL: a commit is one fsync of the log, and a commit that returned survives kill -9
and power loss. locking_mode=EXCLUSIVE keeps the log's index in our memory (no -shm file, works on every file system)
and makes a second process fail at once instead of waiting.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from barnabas.broker.catalog.model import CatalogSnapshot, QuotaEntity, TopicInfo
from barnabas.broker.log.file_kinds import require_file
from barnabas.broker.log.files import DIRECTORY_MODE, create_private
from barnabas.broker.log.results import LogDirLocked, LogDirNotWritable
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, shown

log = logging.getLogger(__name__)

T = TypeVar("T")

SCHEMA_VERSION = 1

SCHEMA = """
CREATE TABLE cluster (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topic (
    topic_id BLOB PRIMARY KEY, name TEXT NOT NULL UNIQUE, partition_count INTEGER NOT NULL, internal INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE topic_config (
    topic_id BLOB NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (topic_id, key)
) WITHOUT ROWID;
CREATE TABLE deleted_topic (topic_id BLOB PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE broker_config (
    resource TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (resource, key)
) WITHOUT ROWID;
CREATE TABLE client_quota (
    entity TEXT NOT NULL, key TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (entity, key)
) WITHOUT ROWID;
CREATE TABLE producer_id (only_row INTEGER PRIMARY KEY CHECK (only_row = 0), next_id INTEGER NOT NULL);
INSERT INTO producer_id VALUES (0, 0);
"""


class MetadataDatabase:
    """One connection, used by one thread at a time (the catalog's write lock sees to that)."""

    __slots__ = ("_connection", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            for ending in ("", "-wal", "-journal"):
                require_file(f"{path}{ending}")  # SQLite would wait for a FIFO, and does not name a directory
            create_private(str(path))  # SQLite gives its other files the same mode
            # Handlers take turns under the catalog's lock, which is what check_same_thread would guard.
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
            self._connection.text_factory = _text  # what was edited by hand need not be UTF-8
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise
        except OSError as error:
            raise LogDirNotWritable(str(path.parent), error) from error
        except sqlite3.Error as error:
            raise _open_error(path, error) from error

    def _prepare(self) -> None:
        execute = self._connection.execute
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            execute(f"PRAGMA {pragma}").fetchall()
        version = execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            # One transaction, so that a kill leaves either no schema or all of it.
            self._connection.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version={SCHEMA_VERSION};COMMIT;")
        elif version != SCHEMA_VERSION:
            raise BarnabasError(
                f"{self.path} has metadata format {version}, this program knows {SCHEMA_VERSION}: use the newer one"
            )

    def transaction(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Run `change` in one durable transaction; on any failure nothing of it remains."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = change(connection)
            connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write {self.path.name}: {error}") from error
            raise
        return result

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()

    # -- what was stored -------------------------------------------------------------------------------------------

    def load(self) -> CatalogSnapshot:
        topics = self._load_topics()
        return CatalogSnapshot(
            cluster_id=self._cluster_id(),
            topics={topic.name: topic for topic in topics},
            topics_by_id={topic.topic_id: topic for topic in topics},
            broker_configs=self._load_broker_configs(),
            quotas=self._load_quotas(),
        )

    def _cluster_id(self) -> str:
        row = self._connection.execute("SELECT value FROM cluster WHERE key = 'id'").fetchone()
        return str(row[0]) if row else ""

    def _load_topics(self) -> list[TopicInfo]:
        configs: dict[bytes, dict[str, str]] = {}
        for topic_id, key, value in self._connection.execute("SELECT topic_id, key, value FROM topic_config"):
            configs.setdefault(topic_id, {})[_text(key)] = _text(value)
        rows = self._connection.execute("SELECT topic_id, name, partition_count, internal FROM topic")
        return [
            TopicInfo(name, uuid.UUID(bytes=topic_id), partition_count, configs.get(topic_id, {}), bool(internal))
            for topic_id, name, partition_count, internal in rows
        ]

    def _load_broker_configs(self) -> dict[str, dict[str, str]]:
        configs: dict[str, dict[str, str]] = {}
        for resource, key, value in self._connection.execute("SELECT resource, key, value FROM broker_config"):
            configs.setdefault(_text(resource), {})[_text(key)] = _text(value)
        return configs

    def _load_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        quotas: dict[QuotaEntity, dict[str, float]] = {}
        for entity, key, value in self._connection.execute("SELECT entity, key, value FROM client_quota"):
            try:
                quotas.setdefault(_parse_entity(entity), {})[_text(key)] = float(value)
            except (ValueError, TypeError):
                text = "a stored client quota is left out, it was edited by hand: %s %s=%s"
                log.warning(text, shown(entity), shown(key), shown(value))
        return {entity: values for entity, values in quotas.items() if values}

    def load_deleted_topics(self) -> dict[uuid.UUID, str]:
        rows = self._connection.execute("SELECT topic_id, name FROM deleted_topic")
        return {uuid.UUID(bytes=topic_id): name for topic_id, name in rows}


# -- statements that a transaction is made of --------------------------------------------------------------------------


def insert_topics(connection: sqlite3.Connection, topics: Sequence[TopicInfo]) -> None:
    connection.executemany(
        "INSERT INTO topic VALUES (?, ?, ?, ?)",
        [(topic.topic_id.bytes, topic.name, topic.partition_count, int(topic.internal)) for topic in topics],
    )
    for topic in topics:
        insert_topic_configs(connection, topic)


def insert_topic_configs(connection: sqlite3.Connection, topic: TopicInfo) -> None:
    rows = [(topic.topic_id.bytes, key, value) for key, value in topic.configs.items()]
    connection.executemany("INSERT INTO topic_config VALUES (?, ?, ?)", rows)


def replace_topic_configs(connection: sqlite3.Connection, topic: TopicInfo) -> None:
    connection.execute("DELETE FROM topic_config WHERE topic_id = ?", (topic.topic_id.bytes,))
    insert_topic_configs(connection, topic)


def bury_topics(connection: sqlite3.Connection, topics: Sequence[TopicInfo]) -> None:
    """Remove topics and remember their ids until their logs are gone too."""
    ids = [(topic.topic_id.bytes,) for topic in topics]
    connection.executemany("DELETE FROM topic WHERE topic_id = ?", ids)
    connection.executemany("DELETE FROM topic_config WHERE topic_id = ?", ids)
    rows = [(topic.topic_id.bytes, topic.name) for topic in topics]
    connection.executemany("INSERT OR REPLACE INTO deleted_topic VALUES (?, ?)", rows)


def forget_deleted(connection: sqlite3.Connection, topic_ids: Iterable[uuid.UUID]) -> None:
    connection.executemany("DELETE FROM deleted_topic WHERE topic_id = ?", [(key.bytes,) for key in topic_ids])


def set_partition_count(connection: sqlite3.Connection, topic: TopicInfo) -> None:
    values = (topic.partition_count, topic.topic_id.bytes)
    connection.execute("UPDATE topic SET partition_count = ? WHERE topic_id = ?", values)


def set_cluster_id(connection: sqlite3.Connection, cluster_id: str) -> None:
    connection.execute("INSERT INTO cluster VALUES ('id', ?)", (cluster_id,))


def replace_broker_configs(connection: sqlite3.Connection, resource: str, configs: Mapping[str, str]) -> None:
    connection.execute("DELETE FROM broker_config WHERE resource = ?", (resource,))
    rows = [(resource, key, value) for key, value in configs.items()]
    connection.executemany("INSERT INTO broker_config VALUES (?, ?, ?)", rows)


def replace_quota(connection: sqlite3.Connection, entity: QuotaEntity, values: Mapping[str, float]) -> None:
    text = json.dumps(entity)
    connection.execute("DELETE FROM client_quota WHERE entity = ?", (text,))
    connection.executemany("INSERT INTO client_quota VALUES (?, ?, ?)", [(text, key, values[key]) for key in values])


def reserve_producer_ids(connection: sqlite3.Connection, count: int) -> int:
    first = connection.execute("SELECT next_id FROM producer_id").fetchone()[0]
    connection.execute("UPDATE producer_id SET next_id = ?", (first + count,))
    return int(first)


def raise_producer_ids(connection: sqlite3.Connection, first: int) -> bool:
    """The next id is at least this one from now on; whether it was below."""
    return connection.execute("UPDATE producer_id SET next_id = ? WHERE next_id < ?", (first, first)).rowcount > 0


def _open_error(path: Path, error: sqlite3.Error) -> BarnabasError:
    """The catalog is opened before the logs, so it is here that a second broker or a read-only disk is noticed first."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_BUSY:
        return LogDirLocked(str(path.parent))
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return LogDirNotWritable(str(path.parent), str(error))
    remedy = "move it away (with its -wal and -shm), and the start makes it anew from the logs: topics stay, settings and quotas do not"
    return BarnabasError(f"cannot open the metadata file {path}: {error}; bring back a copy, or {remedy}")


def _parse_entity(text: str) -> QuotaEntity:
    return tuple((kind, name) for kind, name in json.loads(text))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
