"""The catalog: what it stores, what a reader sees, and what is left after kill -9."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.catalog import Catalog, CatalogSnapshot, NewTopic, TopicInfo, quota_entity, uuid_text
from barnabas.broker.catalog.catalog import CATALOG_FILE_NAME
from barnabas.broker.log.results import LogDirLocked, LogDirNotWritable
from barnabas.clock import SystemClock
from barnabas.errors import BarnabasError, ErrorCode, KafkaError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / CATALOG_FILE_NAME


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    opened = Catalog.open(path, SystemClock())
    yield opened
    opened.close()


def reopened(catalog: Catalog, path: Path) -> CatalogSnapshot:
    catalog.close()
    again = Catalog.open(path, SystemClock())
    try:
        return again.snapshot
    finally:
        again.close()


def test_the_cluster_id_is_made_once_and_is_kafkas_22_characters(catalog: Catalog, path: Path) -> None:
    cluster_id = catalog.snapshot.cluster_id
    assert len(cluster_id) == 22
    assert reopened(catalog, path).cluster_id == cluster_id


def test_a_given_cluster_id_is_taken_only_by_a_new_file(path: Path) -> None:
    first = Catalog.open(path, SystemClock(), cluster_id="mine")
    first.close()
    second = Catalog.open(path, SystemClock(), cluster_id="other")
    second.close()
    assert (first.snapshot.cluster_id, second.snapshot.cluster_id) == ("mine", "mine")


def test_a_created_topic_is_found_by_name_and_by_id_and_survives_a_restart(catalog: Catalog, path: Path) -> None:
    topic = catalog.create_topic("orders", 3, {"retention.ms": "1000"})
    assert catalog.snapshot.topics["orders"] is topic
    assert catalog.snapshot.topics_by_id[topic.topic_id] is topic
    assert reopened(catalog, path).topics["orders"] == topic


def test_creating_a_topic_twice_is_refused_and_changes_nothing(catalog: Catalog) -> None:
    before = catalog.create_topic("orders", 3)
    with pytest.raises(KafkaError) as caught:
        catalog.create_topics([NewTopic("new", 1), NewTopic("orders", 5)])
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert dict(catalog.snapshot.topics) == {"orders": before}


def test_a_recreated_topic_has_another_id(catalog: Catalog) -> None:
    ids = set()
    for _ in range(20):
        ids.add(catalog.create_topic("orders", 1).topic_id)
        catalog.delete_topic("orders")
    assert len(ids) == 20
    assert not catalog.snapshot.topics
    assert not catalog.snapshot.topics_by_id


def test_topic_ids_can_be_typed_as_a_command_line_argument(catalog: Catalog) -> None:
    created = catalog.create_topics([NewTopic(f"t{number}", 1) for number in range(500)])
    assert not [topic for topic in created if uuid_text(topic.topic_id).startswith("-")]


def test_a_deleted_topic_is_remembered_until_its_logs_are_gone(catalog: Catalog, path: Path) -> None:
    topic = catalog.create_topic("orders", 1, {"retention.ms": "1"})
    catalog.delete_topic("orders")
    assert dict(catalog.deleted_topics()) == {topic.topic_id: "orders"}
    catalog.close()
    again = Catalog.open(path, SystemClock())
    assert dict(again.deleted_topics()) == {topic.topic_id: "orders"}
    again.forget_deleted([topic.topic_id])
    assert not again.deleted_topics()
    assert not reopened(again, path).topics


def test_deleting_an_unknown_topic_is_refused(catalog: Catalog) -> None:
    catalog.create_topic("here", 1)
    with pytest.raises(KafkaError) as caught:
        catalog.delete_topics(["here", "nowhere"])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(catalog.snapshot.topics) == ["here"]


def test_partitions_only_ever_increase(catalog: Catalog, path: Path) -> None:
    topic = catalog.create_topic("orders", 3)
    for count in (3, 2, 0, -1):
        with pytest.raises(KafkaError) as caught:
            catalog.add_partitions("orders", count)
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    changed = catalog.add_partitions("orders", 5)
    assert (changed.partition_count, changed.topic_id) == (5, topic.topic_id)
    assert catalog.snapshot.topics_by_id[topic.topic_id] is changed
    assert reopened(catalog, path).topics["orders"] == changed


def test_topic_configs_are_replaced_as_a_whole(catalog: Catalog, path: Path) -> None:
    catalog.create_topic("orders", 1, {"retention.ms": "1", "segment.bytes": "2000000"})
    catalog.set_topic_configs("orders", {"retention.ms": "2"})
    assert reopened(catalog, path).topics["orders"].configs == {"retention.ms": "2"}


def test_broker_configs_are_kept_by_resource(catalog: Catalog, path: Path) -> None:
    catalog.set_broker_configs("", {"num.io.threads": "4"})
    catalog.set_broker_configs("1", {"num.io.threads": "5"})
    catalog.set_broker_configs("2", {"num.io.threads": "6"})
    catalog.set_broker_configs("2", {})
    expected = {"": {"num.io.threads": "4"}, "1": {"num.io.threads": "5"}}
    assert catalog.snapshot.broker_configs == expected
    assert reopened(catalog, path).broker_configs == expected


def test_quotas_merge_and_an_entity_without_values_disappears(catalog: Catalog, path: Path) -> None:
    alice = quota_entity([("user", "alice"), ("client-id", None)])
    assert alice == (("client-id", None), ("user", "alice"))
    catalog.set_quota(alice, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 5.5})
    catalog.set_quota(alice, {"producer_byte_rate": None, "request_percentage": 50.0})
    address = quota_entity([("ip", "10.0.0.1")])
    catalog.set_quota(address, {"connection_creation_rate": 3.0})
    catalog.set_quota(address, {"connection_creation_rate": None})
    expected = {alice: {"consumer_byte_rate": 5.5, "request_percentage": 50.0}}
    assert catalog.snapshot.quotas == expected
    assert reopened(catalog, path).quotas == expected


def test_a_snapshot_never_changes_under_its_reader(catalog: Catalog) -> None:
    before = catalog.snapshot
    catalog.create_topic("orders", 1)
    assert not before.topics
    assert before.sorted_names == ()
    assert catalog.snapshot.sorted_names == ("orders",)
    assert catalog.snapshot.epoch == before.epoch + 1


def test_readers_see_name_and_id_together_while_writers_work(catalog: Catalog) -> None:
    stop = threading.Event()
    torn: list[TopicInfo] = []

    def read() -> None:
        while not stop.is_set():
            snapshot = catalog.snapshot
            torn.extend(t for t in snapshot.topics.values() if snapshot.topics_by_id.get(t.topic_id) is not t)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        catalog.create_topic(f"t{number}", 1)
        if number % 3 == 0:
            catalog.delete_topic(f"t{number}")
    stop.set()
    reader.join(10)
    assert not torn


def test_producer_ids_never_repeat_over_restarts_and_threads(path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        catalog = Catalog.open(path, SystemClock())

        def take(catalog: Catalog = catalog) -> None:
            seen.extend([catalog.next_producer_id() for _ in range(600)])

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        catalog.close()
    assert len(seen) == len(set(seen)) == 3 * 4 * 600


def test_a_failed_write_answers_a_storage_error_and_leaves_the_snapshot(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    before = catalog.snapshot
    monkeypatch.setattr("barnabas.broker.catalog.database.insert_topics", full)
    with pytest.raises(KafkaError) as caught:
        catalog.create_topic("orders", 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert catalog.snapshot is before
    monkeypatch.undo()
    assert catalog.create_topic("orders", 1).name == "orders"


def test_nobody_sees_a_topic_before_its_logs_are_prepared(catalog: Catalog, path: Path) -> None:
    seen: list[bool] = []
    catalog.create_topics([NewTopic("a", 1)], lambda _: seen.append("a" in catalog.snapshot.topics))
    catalog.add_partitions("a", 2, lambda _: seen.append(catalog.snapshot.topics["a"].partition_count == 2))
    assert seen == [False, False]
    assert reopened(catalog, path).topics["a"].partition_count == 2


def test_what_could_not_be_prepared_is_undone(catalog: Catalog, path: Path) -> None:
    def fail(_: object) -> None:
        raise OSError("no space left on device")

    catalog.create_topic("a", 1)
    with pytest.raises(OSError, match="no space"):
        catalog.create_topics([NewTopic("b", 1)], fail)
    with pytest.raises(OSError, match="no space"):
        catalog.add_partitions("a", 3, fail)
    assert list(catalog.deleted_topics().values()) == ["b"]
    snapshot = reopened(catalog, path)
    assert {name: topic.partition_count for name, topic in snapshot.topics.items()} == {"a": 1}


def test_a_closed_catalog_refuses_writes_but_still_answers_readers(catalog: Catalog) -> None:
    catalog.create_topic("orders", 1)
    catalog.close()
    catalog.close()
    with pytest.raises(KafkaError):
        catalog.create_topic("more", 1)
    assert "orders" in catalog.snapshot.topics


def test_a_second_opener_is_told_at_once(catalog: Catalog, path: Path) -> None:
    catalog.create_topic("orders", 1)
    with pytest.raises(LogDirLocked, match="another broker"):
        Catalog.open(path, SystemClock())


def test_missing_directories_are_made_and_impossible_ones_are_named(path: Path) -> None:
    Catalog.open(path.parent / "a" / "b" / "metadata", SystemClock()).close()
    for wrong in (path.parent / "a" / "b" / "metadata" / "below-a-file", path.parent / "a"):
        with pytest.raises(LogDirNotWritable):
            Catalog.open(wrong, SystemClock())


def test_a_file_of_a_newer_program_is_refused_by_name(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(BarnabasError, match="format 99"):
        Catalog.open(path, SystemClock())


def test_a_damaged_file_is_an_error_with_its_name(path: Path) -> None:
    path.write_bytes(os.urandom(8192))
    with pytest.raises(BarnabasError, match=CATALOG_FILE_NAME):
        Catalog.open(path, SystemClock())


def test_the_slow_commit_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class SlowClock(SystemClock):
        ticks = 0

        def monotonic_ns(self) -> int:  # type: ignore[override]
            SlowClock.ticks += 2_000_000_000
            return SlowClock.ticks

    Catalog.open(path, SlowClock()).close()
    assert "took 2000 ms" in caplog.text


WRITER = """
import sys
from barnabas.broker.catalog import Catalog
from barnabas.broker.log.results import LogDirLocked, LogDirNotWritable
from barnabas.clock import SystemClock
catalog = Catalog.open(sys.argv[1], SystemClock())
start = int(sys.argv[2])
for number in range(start, start + 100_000):
    topic = catalog.create_topic(f"t{number}", 1, {"retention.ms": str(number)})
    if number % 2:
        catalog.delete_topic(f"t{number}")
    print(number, topic.topic_id, catalog.next_producer_id(), flush=True)
"""


def test_what_was_confirmed_before_kill_9_is_there_afterwards(path: Path) -> None:
    confirmed: dict[int, uuid.UUID] = {}
    producer_ids: list[int] = []
    for round_number in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(round_number * 100_000)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(10 + 7 * round_number):
                number, topic_id, producer_id = writer.stdout.readline().split()
                confirmed[int(number)] = uuid.UUID(topic_id)
                producer_ids.append(int(producer_id))
            writer.send_signal(signal.SIGKILL)
        catalog = Catalog.open(path, SystemClock())
        snapshot, deleted = catalog.snapshot, catalog.deleted_topics()
        producer_ids.append(catalog.next_producer_id())
        catalog.close()
        for number, key in confirmed.items():
            if number % 2:
                assert deleted[key] == f"t{number}"
                assert key not in snapshot.topics_by_id
            else:
                assert snapshot.topics[f"t{number}"].topic_id == key
                assert snapshot.topics[f"t{number}"].configs == {"retention.ms": str(number)}
    assert len(producer_ids) == len(set(producer_ids))
