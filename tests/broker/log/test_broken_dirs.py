"""Log directories that are full, broken or away: what goes on, what is refused, and what must never be made anew (faults.md rows 9, 11)."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from barnabas.broker.catalog import NewTopic
from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.manager import LogManager, PartitionSpec
from barnabas.broker.log.results import LogDirNotWritable
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode, KafkaError
from tests.broker.log.stores import TOPIC_ID, Store, read_all
from tests.faults.faulty_disk import BROKEN, FULL, READ_ONLY, FaultyDisk, Rule
from tests.faults.storage import Storage
from tests.records.batches import batch, sequenced

SPEC = PartitionSpec(TOPIC_ID, LogConfig())
ROLLING = {"segment_bytes": 300, "index_interval_bytes": 1}


def refused(call: object, *arguments: object) -> bool:
    """Whether a call is answered with KAFKA_STORAGE_ERROR."""
    with pytest.raises(KafkaError) as caught:
        call(*arguments)  # type: ignore[operator]
    return caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def append_or_56(store: Store, sequence: int) -> bool:
    try:
        return not store.log.append(sequenced(1, 0, sequence)).duplicate
    except KafkaError as error:
        if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return False


# A full disk.


@pytest.mark.parametrize(
    "rule",
    [
        FULL,
        Rule(("pwritev",), "*.log", short=70),
        Rule(("pwritev",), "*.log", short=1),
        Rule(("create",), "*.log", error="ENOSPC"),
        Rule(("create",), "*.timeindex", error="ENOSPC"),
        Rule(("pwritev",), "*.index", error="ENOSPC"),
        Rule(("pwritev",), "*.snapshot", error="ENOSPC"),
        Rule(("pwritev",), "*.log", error="EDQUOT"),
    ],
    ids=["everything", "short", "one byte", "new segment", "new index", "index", "snapshot", "quota"],
)
def test_a_full_disk_refuses_writes_until_there_is_room_and_loses_nothing(tmp_path: Path, rule: Rule) -> None:
    disk = FaultyDisk()
    with Store(tmp_path, disk, **ROLLING) as store:
        sequence = 0
        for _ in range(5):
            disk.rules = ()
            for _ in range(3):
                store.log.append(sequenced(1, 0, sequence))
                sequence += 1
            disk.rules = [rule]
            written = 0
            for _ in range(4):
                written += append_or_56(store, sequence + written)  # a roll comes by one time in three
            assert written < 4
            sequence += written
            assert [header.base_offset for header in read_all(store.log)] == list(range(sequence))
        disk.rules = ()
        assert not store.manager.describe_dirs()[0].offline
        assert [header.base_offset for header in read_all(store.crash())] == list(range(sequence))


def test_a_full_disk_keeps_the_old_checkpoints_and_refuses_to_delete_records_durably(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with Store(tmp_path, disk) as store:
        for _ in range(3):
            store.log.append(batch(1))
        store.log.flush()
        store.manager.housekeeper.run_due()
        before = (tmp_path / "recovery-point-offset-checkpoint").read_text()
        store.log.append(batch(1))
        store.log.flush()
        disk.rules = [FULL]
        assert not store.manager._dirs[0].write_checkpoints()
        assert refused(store.log.delete_records_before, 2)
        assert store.log.log_start_offset == 2, "what room it made stays; the client asks again and gets it on disk"
        disk.rules = ()
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == before
        assert store.log.delete_records_before(2) == 2
        assert store.crash().log_start_offset == 2


def test_a_stop_on_a_full_disk_leaves_no_clean_marker_and_no_damage(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = Store(tmp_path, disk)
    for _ in range(3):
        store.log.append(batch(1))
    disk.rules = [FULL]
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    disk.rules = ()
    store.open()
    assert store.log.log_end_offset == 3
    store.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_half_a_partition_is_not_left_behind(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with Store(tmp_path, disk) as store:
        for rule in (FULL, Rule(("create",), "*.timeindex", error="ENOSPC"), Rule(("pwritev",), error="ENOSPC")):
            disk.rules = [rule]
            assert refused(store.manager.create, "new", 0, uuid.uuid4())
            disk.rules = ()
            assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("new")]
        assert store.manager.create("new", 0, uuid.uuid4()).append(batch(1)).base_offset == 0


def test_without_descriptors_a_flush_waits_and_the_directory_stays(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with Store(tmp_path, disk, **ROLLING) as store:
        told: list[ErrorCode] = []
        for _ in range(5):
            store.log.on_durable(store.log.append(batch(1)).last_offset + 1, told.append)
        disk.rules = [Rule(("open", "open_read_only", "create", "sync_directory"), error="EMFILE", plain=True)]
        store.manager.flusher.flush_now()
        assert told == []
        assert not store.manager.describe_dirs()[0].offline
        disk.rules = ()
        store.clock.advance(1)
        store.manager.flusher.flush_now()
        assert told == [ErrorCode.NONE] * 5


# A broken disk.


@pytest.mark.parametrize(
    "rule",
    [
        BROKEN,
        READ_ONLY,
        Rule(("pwritev",), "*.log", error="EIO"),
        Rule(("sync",), "*.log", error="EIO"),
        Rule(("sync",), "*.log", error="ENOSPC"),
        Rule(("sync_directory",), error="EIO"),
    ],
    ids=["everything", "read-only", "write", "sync", "sync without room", "directory sync"],
)
def test_a_broken_disk_takes_its_directory_offline_and_no_other(tmp_path: Path, rule: Rule) -> None:
    disk = FaultyDisk()
    manager = started(tmp_path, disk)
    logs = {Path(log.log_dir).name: log for log in (manager.create("t", number, TOPIC_ID) for number in range(2))}
    for log in logs.values():
        log.append(batch(1))
    told: list[ErrorCode] = []
    disk.rules = [Rule(rule.calls, f"{tmp_path}/b*{rule.path.removeprefix('*')}", rule.error)]
    try:
        logs["b"].on_durable(logs["b"].append(batch(1)).last_offset + 1, told.append)
    except KafkaError as error:
        told.append(error.code)
    manager.flusher.flush_now()
    disk.rules = ()
    manager.flusher.flush_now()
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert refused(logs["b"].append, batch(1))
    assert refused(logs["b"].read, 0, 100)
    assert [each.offline for each in manager.describe_dirs()] == [False, True]
    logs["a"].append(batch(1))
    logs["a"].flush()
    assert logs["a"].durable_offset == 2
    assert {manager.create("new", number, uuid.uuid4()).log_dir for number in range(3)} == {str(tmp_path / "a")}
    manager.shutdown()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_a_batch_that_is_flushed_by_its_append_is_not_acknowledged_when_that_fails(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with Store(tmp_path, disk, flush_messages=1) as store:
        assert store.log.append(batch(1)).base_offset == 0
        disk.rules = [Rule(("sync",), "*.log", error="EIO")]
        assert refused(store.log.append, batch(1))
        disk.rules = ()


def test_a_disk_that_breaks_while_a_partition_is_made_lets_another_one_have_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    manager = started(tmp_path, disk)
    disk.rules = [Rule(BROKEN.calls, f"{tmp_path}/a/*", "EIO")]
    assert manager.create("t", 0, TOPIC_ID).log_dir == str(tmp_path / "b")
    assert [each.offline for each in manager.describe_dirs()] == [True, False]
    disk.rules = ()
    manager.shutdown()


def test_without_any_directory_left_the_broker_is_told_to_end(tmp_path: Path) -> None:
    disk = FaultyDisk()
    fatal: list[str] = []
    manager = LogManager(settings(tmp_path), ManualClock(), disk, lambda who, error: fatal.append(f"{who}: {error}"))
    manager.startup(threads=False)
    logs = [manager.create("t", number, TOPIC_ID) for number in range(2)]
    disk.rules = [BROKEN]
    assert refused(logs[0].append, batch(1))
    assert fatal == []
    assert refused(logs[1].append, batch(1))
    assert len(fatal) == 1
    assert "every log directory failed" in fatal[0]
    manager.shutdown()


# A directory that is away at the start.


def settings(tmp_path: Path) -> LogManagerSettings:
    return LogManagerSettings((str(tmp_path / "a"), str(tmp_path / "b")))


def started(
    tmp_path: Path, disk: FileSystem, partitions: dict[tuple[str, int], PartitionSpec] | None = None
) -> LogManager:
    manager = LogManager(settings(tmp_path), ManualClock(), disk)
    manager.startup(partitions, threads=False)
    return manager


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Two directories with two partitions each, one record in each."""
    manager = started(tmp_path, FileSystem())
    for number in range(4):
        manager.create("t", number, TOPIC_ID).append(batch(1))
    manager.shutdown()
    return tmp_path


def break_b(filled: Path, how: str, disk: FaultyDisk) -> None:
    if how == "no directory":
        shutil.move(filled / "b", filled / "b-kept")
        (filled / "b").write_text("not a directory")
    elif how == "not writable":
        disk.rules = [Rule(READ_ONLY.calls, f"{filled}/b*", "EROFS")]
    elif how == "unreadable":
        disk.rules = [Rule(("list",), f"{filled}/b*", "EIO")]
    else:
        disk.rules = [Rule(("open_read_only", "open", "pread"), f"{filled}/b/t-*", "EIO")]


def mend_b(filled: Path, disk: FaultyDisk) -> None:
    disk.rules = ()
    if (filled / "b-kept").exists():
        (filled / "b").unlink()
        shutil.move(filled / "b-kept", filled / "b")


@pytest.mark.parametrize("how", ["no directory", "not writable", "unreadable", "a log is unreadable"])
def test_a_directory_that_is_away_at_the_start_is_refused_and_not_made_anew(filled: Path, how: str) -> None:
    """Its partitions answer KAFKA_STORAGE_ERROR; with the directory back, everything is there."""
    disk = FaultyDisk()
    break_b(filled, how, disk)
    partitions = {("t", number): SPEC for number in range(4)}
    manager = started(filled, disk, partitions)
    assert [each.offline for each in manager.describe_dirs()] == [False, True]
    for number in range(4):
        log = manager.get("t", number)
        assert log is not None
        if log.log_dir == str(filled / "a"):
            assert log.log_end_offset == 1
        else:
            assert refused(log.append, batch(1))
            assert refused(log.read, 0, 100)
            assert refused(log.offset_for_timestamp, -1)
    assert len([path for path in (filled / "a").iterdir() if path.is_dir()]) == 2
    assert manager.create("new", 0, uuid.uuid4()).log_dir == str(filled / "a")
    manager.shutdown()
    mend_b(filled, disk)
    manager = started(filled, FileSystem(), partitions)
    ends = [log.log_end_offset for log in (manager.get("t", number) for number in range(4)) if log is not None]
    assert ends == [1, 1, 1, 1]
    manager.shutdown()


def test_with_no_usable_directory_nothing_starts(filled: Path) -> None:
    disk = FaultyDisk(READ_ONLY)
    with pytest.raises(LogDirNotWritable, match="Read-only file system") as caught:
        started(filled, disk)
    assert str(filled / "a") in str(caught.value)
    assert str(filled / "b") in str(caught.value)
    disk.rules = ()
    started(filled, disk).shutdown()  # no lock was left behind


def test_a_topic_that_is_deleted_while_a_directory_is_away_does_not_come_back_with_it(tmp_path: Path) -> None:
    storage = Storage(tmp_path, FileSystem())
    storage.topics.create([NewTopic("gone", 4), NewTopic("kept", 4)])
    storage.stop()
    disk = FaultyDisk(Rule(READ_ONLY.calls, f"{tmp_path}/b*", "EROFS"))
    for _ in range(2):  # the second start must not forget it either
        storage = Storage(tmp_path, disk)
        storage.topics.delete(["gone"])
        storage.stop()
    storage = Storage(tmp_path, disk)
    storage.topics.create([NewTopic("gone", 1)])
    new = storage.catalog.snapshot.topics["gone"].topic_id
    storage.stop()
    for _ in range(2):
        storage = Storage(tmp_path, FileSystem())
        assert storage.catalog.snapshot.topics.keys() == {"gone", "kept"}
        assert storage.catalog.snapshot.topics["gone"].topic_id == new
        assert storage.catalog.snapshot.topics["gone"].partition_count == 1
        assert all(storage.log("kept", number).available for number in range(4))
        storage.logs.housekeeper.run_due()
        storage.stop()
    assert len(list(tmp_path.glob("b/gone-*"))) == 0


@pytest.mark.parametrize("again", [False, True], ids=["", "made again"])
def test_a_topic_that_is_deleted_while_there_is_no_room_takes_nothing_offline(tmp_path: Path, again: bool) -> None:
    """Its directory keeps its name until the next start, which removes it; a new topic of that name sets it aside."""
    disk = FaultyDisk()
    storage = Storage(tmp_path, disk)
    storage.topics.create([NewTopic("gone", 1), NewTopic("kept", 1)])
    disk.rules = [Rule(("rename",), "*gone-0*", error="ENOSPC")]
    storage.topics.delete(["gone"])
    assert storage.logs.offline_count() == 0
    disk.rules = ()
    assert storage.log("kept", 0).append(batch()).base_offset == 0
    if again:
        storage.topics.create([NewTopic("gone", 1)])
        assert storage.log("gone", 0).append(batch()).base_offset == 0
    storage.stop()
    storage = Storage(tmp_path, FileSystem())
    assert storage.log("kept", 0).log_end_offset == 1
    assert not again or storage.log("gone", 0).log_end_offset == 1
    storage.logs.housekeeper.run_due()
    storage.stop()
    left = [path.name for path in tmp_path.glob("*/gone-*") if not path.name.endswith("-stray")]
    assert left == ["gone-0"] * again
