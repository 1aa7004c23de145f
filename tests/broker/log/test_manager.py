"""The manager: directories, locks, create, delete, and a quick start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from barnabas.broker.log.checkpoints import decode_topic_id, encode_topic_id
from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.manager import LogManager, PartitionSpec
from barnabas.broker.log.results import LogDirLocked, LogDirNotWritable
from barnabas.clock import ManualClock
from barnabas.errors import ConfigError, ErrorCode, KafkaError
from tests.broker.log.stores import TOPIC_ID, Store, read_all
from tests.records.batches import batch

OTHER_ID = uuid.UUID(int=0x5678)


def manager_on(*paths: Path, files: FileSystem | None = None) -> LogManager:
    return LogManager(LogManagerSettings(tuple(str(path) for path in paths), cluster_id="c1"), ManualClock(), files)


def started(*paths: Path) -> LogManager:
    manager = manager_on(*paths)
    manager.startup(threads=False)
    return manager


def test_the_files_have_kafkas_names_and_content(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(2))
        store.close()
        names = {path.name for path in store.directory.iterdir()}
        assert names == {
            "00000000000000000000.log",
            "00000000000000000000.index",
            "00000000000000000000.timeindex",
            "00000000000000000002.snapshot",
            "leader-epoch-checkpoint",
            "partition.metadata",
        }
        metadata = (store.directory / "partition.metadata").read_text()
        assert metadata == f"version: 0\ntopic_id: {encode_topic_id(TOPIC_ID)}\n"
        assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version": 0, "brokerEpoch": -1}'
        assert {path.name for path in tmp_path.iterdir()} == {
            ".kafka_cleanshutdown",
            ".lock",
            "log-start-offset-checkpoint",
            "meta.properties",
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
            "t-0",
        }
        store.open()


def test_a_topic_id_is_written_as_kafka_writes_it() -> None:
    topic_id = uuid.UUID("f7a2f0c5-3a7e-4f5b-9a1e-2b8f6d1c0e4f")
    assert encode_topic_id(topic_id) == "96LwxTp-T1uaHiuPbRwOTw"
    assert decode_topic_id("96LwxTp-T1uaHiuPbRwOTw") == topic_id


def test_a_second_manager_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    """faults.md row 36, in one process."""
    first = started(tmp_path)
    with pytest.raises(LogDirLocked, match="another broker") as caught:
        started(tmp_path)
    assert isinstance(caught.value, ConfigError)
    assert str(tmp_path) in str(caught.value)
    first.create("t", 0, TOPIC_ID).append(batch(1))
    first.shutdown()
    started(tmp_path).shutdown()


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    """faults.md row 36."""
    first = started(tmp_path)
    code = (
        "import sys; from barnabas.broker.log.manager import LogManager, LogManagerSettings\n"
        "from barnabas.clock import SystemClock\n"
        "LogManager(LogManagerSettings((sys.argv[1],)), SystemClock()).startup(threads=False)\n"
    )
    second = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False
    )
    assert second.returncode != 0
    assert "LogDirLocked" in second.stderr
    first.create("t", 0, TOPIC_ID).append(batch(1))
    first.shutdown()


def test_when_one_of_several_directories_is_locked_the_others_are_given_back(tmp_path: Path) -> None:
    holder = started(tmp_path / "b")
    with pytest.raises(LogDirLocked):
        started(tmp_path / "a", tmp_path / "b")
    started(tmp_path / "a").shutdown()
    holder.shutdown()


def test_what_was_only_locked_is_left_as_it_was(tmp_path: Path) -> None:
    """A start that fails before the logs are loaded must not write checkpoints or a clean marker for them."""
    with Store(tmp_path) as store:
        store.log.append(batch(10))
        store.log.delete_records_before(4)
        store.abandon()
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        manager = manager_on(tmp_path)
        manager.lock_directories()
        manager.shutdown()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
        store.open()
        assert (store.log.log_start_offset, store.log.log_end_offset) == (4, 10)


def test_a_path_that_is_a_file_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogDirNotWritable, match="can write"):
        started(tmp_path / "file")
    with pytest.raises(LogDirNotWritable):
        started(tmp_path / "file" / "below")


class ReadOnlyFiles(FileSystem):
    def open(self, path: str, create: bool = False) -> object:  # type: ignore[override]
        raise PermissionError(13, "Permission denied")


def test_a_directory_without_permission_is_not_writable(tmp_path: Path) -> None:
    with pytest.raises(LogDirNotWritable, match="Permission denied"):
        manager_on(tmp_path, files=ReadOnlyFiles()).startup(threads=False)


def test_partitions_are_spread_over_the_directories(tmp_path: Path) -> None:
    manager = started(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for number in range(9):
        manager.create("t", number, TOPIC_ID).append(batch(1))
    assert [len(each.sizes) for each in manager.describe_dirs()] == [3, 3, 3]
    assert all(each.total_bytes > each.usable_bytes > 0 for each in manager.describe_dirs())
    assert sum(sum(each.sizes.values()) for each in manager.describe_dirs()) == 9 * len(batch(1))
    manager.shutdown()
    again = started(tmp_path / "c", tmp_path / "a", tmp_path / "b")
    assert sorted(log.partition for log in again.logs()) == list(range(9))
    again.shutdown()


def test_creating_twice_gives_the_same_log(tmp_path: Path) -> None:
    manager = started(tmp_path)
    assert manager.create("t", 0, TOPIC_ID) is manager.create("t", 0, TOPIC_ID)
    assert manager.get("t", 0) is manager.create("t", 0, TOPIC_ID)
    assert manager.get("t", 1) is None
    manager.shutdown()


def test_a_deleted_partition_is_gone_at_once_and_its_files_soon(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(1))
        store.manager.delete("t", 0)
        assert store.manager.get("t", 0) is None
        names = [path.name for path in tmp_path.iterdir() if path.name.startswith("t-0")]
        assert len(names) == 1
        assert names[0].endswith("-delete")
        assert len(names[0]) == len("t-0.") + 32 + len("-delete")
        for call in (lambda: store.log.append(batch(1)), lambda: store.log.read(0, 10)):
            with pytest.raises(KafkaError) as caught:
                call()
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        store.manager.housekeeper.run_due()
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("t-0")]
        store.manager.delete("t", 0)


def test_what_a_crash_left_of_a_deletion_is_removed_on_start(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.manager.delete("t", 0)
        store.crash()
        store.manager.housekeeper.run_due()
        assert not [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]


def test_startup_creates_what_is_missing_and_leaves_strays_alone(tmp_path: Path) -> None:
    manager = started(tmp_path)
    manager.create("kept", 0, TOPIC_ID).append(batch(2))
    manager.create("unknown", 0, OTHER_ID).append(batch(3))
    manager.shutdown()
    manager = manager_on(tmp_path)
    spec = PartitionSpec(TOPIC_ID, LogConfig(segment_bytes=5000))
    manager.startup({("kept", 0): spec, ("kept", 1): spec}, threads=False)
    kept = manager.get("kept", 0)
    assert kept is not None
    assert (kept.log_end_offset, kept.config.segment_bytes, kept.topic_id) == (2, 5000, TOPIC_ID)
    assert manager.get("kept", 1) is not None
    assert manager.get("unknown", 0) is None
    assert manager.strays == [str(tmp_path / "unknown-0")]
    manager.shutdown()
    manager = started(tmp_path)
    stray = manager.get("unknown", 0)
    assert stray is not None
    assert (stray.log_end_offset, stray.topic_id) == (3, OTHER_ID)
    manager.shutdown()


def test_a_directory_of_another_topic_id_is_never_mixed_with_the_new_topic(tmp_path: Path) -> None:
    manager = started(tmp_path)
    manager.create("t", 0, OTHER_ID).append(batch(3))
    manager.shutdown()
    manager = manager_on(tmp_path)
    manager.startup({("t", 0): PartitionSpec(TOPIC_ID, LogConfig())}, threads=False)
    log = manager.get("t", 0)
    assert log is not None
    assert (log.log_end_offset, log.topic_id) == (0, TOPIC_ID)
    assert len([path for path in tmp_path.iterdir() if path.name.endswith("-stray")]) == 1
    manager.shutdown()


def test_topic_names_may_contain_dashes_dots_and_digits(tmp_path: Path) -> None:
    manager = started(tmp_path)
    for topic in ("a-1", "a-1-2", "x.y_z", "7"):
        manager.create(topic, 3, TOPIC_ID)
    manager.shutdown()
    manager = started(tmp_path)
    assert {(log.topic, log.partition) for log in manager.logs()} == {
        ("a-1", 3),
        ("a-1-2", 3),
        ("x.y_z", 3),
        ("7", 3),
    }
    manager.shutdown()


def test_the_directory_id_is_kept_and_the_node_is_noted(tmp_path: Path) -> None:
    started(tmp_path).shutdown()
    first = (tmp_path / "meta.properties").read_text()
    assert "version=1\nnode.id=1\ncluster.id=c1\ndirectory.id=" in first
    started(tmp_path).shutdown()
    assert (tmp_path / "meta.properties").read_text() == first


def test_a_closed_manager_refuses_everything(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.close()
    with pytest.raises(KafkaError):
        store.log.append(batch(1))
    with pytest.raises(KafkaError):
        store.log.read(0, 1)
    with pytest.raises(KafkaError):
        store.log.offset_for_timestamp(-1)
    store.close()


@pytest.mark.serial
def test_a_thousand_partitions_start_within_a_second_after_a_clean_stop(tmp_path: Path) -> None:
    manager = started(tmp_path)
    for number in range(1000):
        manager.create("t", number, TOPIC_ID)
    for number in range(0, 1000, 10):
        log = manager.get("t", number)
        assert log is not None
        log.append(batch(1))
    manager.shutdown()
    began = time.perf_counter()
    manager = started(tmp_path)
    seconds = time.perf_counter() - began
    assert len(manager.logs()) == 1000
    assert sum(log.log_end_offset for log in manager.logs()) == 100
    assert len([fd for fd in os.listdir("/proc/self/fd") if _points_into(fd, tmp_path)]) < 10, "files are opened on use"
    manager.shutdown()
    assert seconds <= 1.0


def _points_into(fd: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith(str(path))
    except FileNotFoundError:
        return False


def test_live_objects_say_what_they_are(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(2))
        read_all(store.log)
        assert repr(store.log) == "<PartitionLog t-0 0..2 in 1 segments, durable 0>"
        assert repr(store.manager) == "<LogManager 1 logs in 1 directories>"
        for thing in (store.manager.flusher, store.manager.flush_stats, store.log.segments[0], store.log.epochs):
            assert type(thing).__name__ in repr(thing)
