"""A directory, a FIFO or a link that leads nowhere where a file of the log should be; directories that are gone or another's."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.catalog import CATALOG_FILE_NAME, Catalog
from barnabas.broker.log.checkpoints import read_offsets
from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.file_kinds import NotAFile
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.manager import LogManager, PartitionSpec
from barnabas.broker.log.results import ForeignLogDir, LogDirNotWritable
from barnabas.clock import ManualClock, SystemClock
from barnabas.errors import ErrorCode, KafkaError
from tests.broker.log.misplaced import KINDS, of_every_kind, put, take_away
from tests.broker.log.stores import TOPIC_ID, Store, read_all
from tests.records.batches import batch, sequenced

FIRST = "0" * 20
SPEC = PartitionSpec(TOPIC_ID, LogConfig(segment_bytes=300, index_interval_bytes=1))
WANTED = {("t", number): SPEC for number in range(3)}
RECORDS = 12


def manager(*paths: Path, node_id: int = 1, cluster_id: str = "") -> LogManager:
    settings = LogManagerSettings(tuple(map(str, paths)), node_id=node_id, cluster_id=cluster_id)
    return LogManager(settings, ManualClock())


def started(*paths: Path) -> LogManager:
    logs = manager(*paths)
    logs.startup(WANTED, threads=False)
    return logs


def fill(path: Path) -> None:
    logs = started(path)
    for log in logs.logs():
        for _ in range(RECORDS):
            log.append(batch(1))
    logs.shutdown()


def offsets(logs: LogManager, partition: int) -> list[int]:
    log = logs.get("t", partition)
    assert log is not None
    return [header.base_offset for header in read_all(log)]


def is_refused(logs: LogManager, partition: int) -> bool:
    log = logs.get("t", partition)
    assert log is not None
    with pytest.raises(KafkaError) as caught:
        log.read(0, 1000)
    return caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


# Opening.


@of_every_kind
def test_what_is_no_file_is_refused_at_once_with_its_name(tmp_path: Path, kind: str) -> None:
    path, files = tmp_path / "it", FileSystem()
    KINDS[kind](path)
    before = set(os.listdir("/proc/self/fd"))
    calls: list[Callable[[str], object]] = [files.open, files.open_read_only, files.read_file]
    for call in calls:
        with pytest.raises(NotAFile) as caught:
            call(str(path))
        assert str(caught.value) == f"{path} is {kind}, not a file"
        assert caught.value.filename == str(path)
    assert set(os.listdir("/proc/self/fd")) == before, "no descriptor is left open"


def test_regular_files_and_links_to_them_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    files = FileSystem()
    assert files.read_file(str(tmp_path / "link")) == b"text"
    with files.open(str(tmp_path / "new"), create=True) as file:
        assert stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    with pytest.raises(FileNotFoundError):
        files.open_read_only(str(tmp_path / "nothing"))


def test_only_names_of_the_log_must_be_files(tmp_path: Path) -> None:
    (tmp_path / "backup.log").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / f"{FIRST}.log").write_text("12345")
    names, sizes = FileSystem().list_sizes(str(tmp_path), ".log")
    assert sorted(names) == [f"{FIRST}.log", "backup.log", "notes"]
    assert sizes == {f"{FIRST}.log": 5}


# In the directory of a partition.

FILES_OF_A_PARTITION = (
    f"{FIRST}.log",
    f"{FIRST}.index",
    f"{FIRST}.timeindex",
    f"{FIRST}.txnindex",
    f"{FIRST[2:]}12.snapshot",
    f"{FIRST}.log.swap",
    "leader-epoch-checkpoint",
    "partition.metadata",
)


@of_every_kind
@pytest.mark.parametrize("name", FILES_OF_A_PARTITION)
@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_one_partition_is_offline_and_comes_back_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, name: str, clean: bool
) -> None:
    fill(tmp_path)
    if not clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    misplaced = tmp_path / "t-1" / name
    saved = put(misplaced, kind)
    before = {
        checkpoint.name: read_offsets(FileSystem(), str(checkpoint)) for checkpoint in tmp_path.glob("*-checkpoint")
    }
    listing = sorted(os.listdir(tmp_path / "t-1"))

    caplog.clear()
    logs = started(tmp_path)
    assert is_refused(logs, 1)
    assert offsets(logs, 0) == offsets(logs, 2) == list(range(RECORDS))
    (line,) = messages(caplog, logging.ERROR)
    assert f"t-1 is offline until the next start: {misplaced} is {kind}, not a file" in line
    log = logs.get("t", 0)
    assert log is not None
    log.append(batch(1))
    logs.flusher.flush_now()
    logs.housekeeper.apply_retention()
    logs.directories[0].write_checkpoints()
    logs.shutdown()
    assert sorted(os.listdir(tmp_path / "t-1")) == listing, "nothing there was touched"
    for checkpoint, known in before.items():
        assert read_offsets(FileSystem(), str(tmp_path / checkpoint)).get(("t", 1)) == known.get(("t", 1)), checkpoint
    assert (tmp_path / ".kafka_cleanshutdown").exists() == clean, "a stop promises no more than was known"

    take_away(misplaced, saved)
    logs = started(tmp_path)
    assert offsets(logs, 1) == offsets(logs, 2) == list(range(RECORDS))
    assert not logs.strays
    logs.shutdown()


def test_a_log_that_no_checkpoint_knew_stays_unknown(tmp_path: Path) -> None:
    """Else its gaps would be taken for what a power cut took."""
    fill(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    saved = put(tmp_path / "t-1" / f"{FIRST}.index", "a FIFO")
    started(tmp_path).shutdown()
    known = read_offsets(FileSystem(), str(tmp_path / "recovery-point-offset-checkpoint"))
    assert sorted(known) == [("t", 0), ("t", 2)]
    take_away(tmp_path / "t-1" / f"{FIRST}.index", saved)
    logs = started(tmp_path)
    assert offsets(logs, 1) == list(range(RECORDS))
    logs.shutdown()


@of_every_kind
def test_the_topic_of_an_offline_partition_can_be_deleted_and_made_again(tmp_path: Path, kind: str) -> None:
    fill(tmp_path)
    put(tmp_path / "t-1" / f"{FIRST}.index", kind)
    logs = started(tmp_path)
    logs.delete("t", 1)
    logs.housekeeper.run_due()
    assert not list(tmp_path.glob("t-1*")), "with the directory and all that is in it"
    assert logs.create("t", 1, TOPIC_ID, SPEC.config).append(batch(1)).base_offset == 0
    logs.shutdown()
    assert read_offsets(FileSystem(), str(tmp_path / "recovery-point-offset-checkpoint"))["t", 1] == 1


@pytest.mark.parametrize("kind", ["a loop of links", "a link to nothing"])
def test_a_partition_behind_a_link_that_leads_nowhere_is_not_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    fill(tmp_path)
    saved = put(tmp_path / "t-1", kind)
    logs = started(tmp_path)
    assert is_refused(logs, 1)
    assert f"{tmp_path / 't-1'} is {kind}, not a directory" in caplog.text
    logs.shutdown()
    take_away(tmp_path / "t-1", saved)
    logs = started(tmp_path)
    assert offsets(logs, 1) == list(range(RECORDS))
    logs.shutdown()


# While the broker runs.


@of_every_kind
@pytest.mark.parametrize("ending", [".log", ".index", ".snapshot"])
def test_a_roll_that_finds_something_in_its_place_waits_until_it_is_gone(
    tmp_path: Path, kind: str, ending: str
) -> None:
    with Store(tmp_path, segment_bytes=300, index_interval_bytes=1) as store:
        store.log.append(sequenced(1, 0, 0))
        others = store.manager.create("t", 1, TOPIC_ID)
        ahead = [tmp_path / "t-0" / f"{offset:020d}{ending}" for offset in range(1, 6)]
        for path in ahead:
            KINDS[kind](path)
        assert refused_appends(store, 8) > 2
        assert not store.manager.describe_dirs()[0].offline
        assert others.append(batch(1)).base_offset == 0
        for path in ahead:
            take_away(path, tmp_path / "nothing")
        assert refused_appends(store, 8) == 0
        end = store.log.log_end_offset
        assert [header.base_offset for header in read_all(store.crash())] == list(range(end))


def refused_appends(store: Store, count: int) -> int:
    """How many of some appends are answered with KAFKA_STORAGE_ERROR."""
    refusals = 0
    for _ in range(count):
        try:
            store.log.append(sequenced(1, 0, store.log.log_end_offset))
        except KafkaError as error:
            refusals += error.code is ErrorCode.KAFKA_STORAGE_ERROR
    return refusals


def test_a_checkpoint_that_became_a_directory_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    with Store(tmp_path) as store:
        store.log.append(batch(1))
        store.log.flush()
        (directory,) = store.manager.directories
        put(path, "a directory")
        assert not directory.write_checkpoints()
        assert not directory.offline
        assert f"{path} is a directory, not a file" in caplog.text
        take_away(path, tmp_path / "nothing")
        assert directory.write_checkpoints()
    assert read_offsets(FileSystem(), str(path)) == {("t", 0): 1}


# In the log directory.

FILES_OF_A_DIRECTORY = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "barnabas-aborted-checkpoint",
    "meta.properties",
    ".kafka_cleanshutdown",
    ".lock",
)


@of_every_kind
@pytest.mark.parametrize("name", FILES_OF_A_DIRECTORY)
def test_a_start_is_refused_with_the_name(tmp_path: Path, kind: str, name: str) -> None:
    fill(tmp_path)
    saved = put(tmp_path / name, kind)
    with pytest.raises(LogDirNotWritable) as caught:
        started(tmp_path)
    assert f"{tmp_path / name} is {kind}, not a file: move it away and start again" in str(caught.value)
    take_away(tmp_path / name, saved)
    logs = started(tmp_path)
    assert offsets(logs, 1) == list(range(RECORDS))
    logs.shutdown()


def test_other_directories_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    logs = started(first, second)
    here = {log.partition for log in logs.logs() if log.log_dir == str(first)}
    assert here
    assert here < {0, 1, 2}
    logs.shutdown()
    put(second / "recovery-point-offset-checkpoint", "a FIFO")
    logs = started(first, second)
    assert logs.offline_count() == 1
    assert {log.partition for log in logs.logs() if log.available} == here
    assert str(second / "recovery-point-offset-checkpoint") in caplog.text
    logs.shutdown()


@of_every_kind
@pytest.mark.parametrize("ending", ["", "-wal"])
def test_a_catalog_that_is_no_file_is_named(tmp_path: Path, kind: str, ending: str) -> None:
    path = tmp_path / (CATALOG_FILE_NAME + ending)
    KINDS[kind](path)
    with pytest.raises(LogDirNotWritable) as caught:
        Catalog.open(tmp_path / CATALOG_FILE_NAME, SystemClock())
    assert f"{path} is {kind}, not a file" in str(caught.value)


# Directories of partitions that are gone.


def test_a_partition_without_its_directory_begins_anew_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path)
    shutil.rmtree(tmp_path / "t-1")
    logs = started(tmp_path)
    assert offsets(logs, 1) == []
    (line,) = messages(caplog, logging.WARNING)
    assert f"{tmp_path / 't-1'} has no directory of its own any more and begins anew at offset 0" in line
    assert f"{tmp_path / 'recovery-point-offset-checkpoint'} knew it up to offset {RECORDS}" in line
    logs.shutdown()
    caplog.clear()
    started(tmp_path).shutdown()
    assert not messages(caplog, logging.WARNING), "said once"


def test_a_new_partition_is_no_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logs = manager(tmp_path)
    logs.startup({("t", 0): SPEC}, threads=False)
    logs.shutdown()
    started(tmp_path).shutdown()
    assert not messages(caplog, logging.WARNING)


@pytest.mark.parametrize("kind", ["a plain file", "a FIFO"])
def test_what_stands_in_place_of_a_partition_is_named_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    fill(tmp_path)
    path = tmp_path / "t-1"
    shutil.rmtree(path)
    if kind == "a FIFO":
        os.mkfifo(path)
    else:
        path.write_text("mine")
    logs = started(tmp_path)
    assert offsets(logs, 1) == []
    (stray,) = tmp_path.glob("t-1.*-stray")
    assert f"{path} is {kind} that belongs to no known topic; it is renamed to {stray}" in caplog.text
    assert f"knew it up to offset {RECORDS}" in caplog.text
    logs.shutdown()


# Directories of another broker.


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    text = (tmp_path / "meta.properties").read_text()
    logs = manager(tmp_path, node_id=2)
    with pytest.raises(ForeignLogDir) as caught:
        logs.startup(WANTED, threads=False)
    assert str(caught.value).startswith(f"node.id = '2': {tmp_path / 'meta.properties'} says node.id=1")
    assert (tmp_path / "meta.properties").read_text() == text
    started(tmp_path).shutdown()


@pytest.mark.parametrize("old", ["version=0\nbroker.id=7\n", "version=1\nnode.id=7\ncluster.id=x\n"])
def test_the_directory_of_an_apache_kafka_of_another_node_is_refused(tmp_path: Path, old: str) -> None:
    (tmp_path / "meta.properties").write_text(old)
    with pytest.raises(ForeignLogDir, match=r"says node\.id=7"):
        started(tmp_path)


def test_the_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    first = manager(tmp_path, cluster_id="one")
    first.startup(WANTED, threads=False)
    first.shutdown()
    second = manager(tmp_path)
    second.lock_directories()
    assert second.stored_cluster_id() == "one"
    for arguments in (("two",), ("one", "two")):
        with pytest.raises(ForeignLogDir, match=r"cluster.id = 'two': .*meta.properties says cluster.id=one"):
            second.claim_directories(*arguments)
    second.claim_directories("one", "one")
    second.shutdown()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xfe\x00 not text",
        b"",
        b"hello\n",
        b"version=1\nnode.id=seven\n",
        b"version=1\nnode.id=%s\n" % (b"9" * 5000),
    ],
)
def test_damaged_meta_properties_are_written_anew_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    fill(tmp_path)
    path = tmp_path / "meta.properties"
    old = path.read_text()
    path.write_bytes(garbage)
    (tmp_path / "meta.properties.damaged").write_text("of an earlier time")
    logs = started(tmp_path)
    assert offsets(logs, 1) == list(range(RECORDS))
    logs.shutdown()
    assert "node.id=1" in path.read_text()
    assert path.read_text() != old
    assert (tmp_path / "meta.properties.1.damaged").read_bytes() == garbage
    (line,) = messages(caplog, logging.WARNING)
    assert f"{path} is damaged" in line
    assert "new directory.id" in line
