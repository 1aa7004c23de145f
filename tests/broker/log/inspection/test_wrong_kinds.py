"""The tools and what is no file: named as damage, moved away where it can be made anew, and nobody waits for a FIFO."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection import targets
from barnabas.broker.log.inspection.dump import PARTS, Row, Selection, rows
from barnabas.broker.log.inspection.findings import Severity
from barnabas.broker.log.inspection.targets import NotALog
from tests.broker.log.inspection.logs import ReadOnlyFiles, damage, make_log, repair, segments, verify
from tests.broker.log.misplaced import KINDS, of_every_kind, put, take_away
from tests.broker.log.stores import TOPIC_ID, Store, read_all
from tests.records.batches import batch

FIRST = "0" * 20
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
DERIVED = (
    f"{FIRST}.index",
    f"{FIRST}.timeindex",
    f"{FIRST}.txnindex",
    "leader-epoch-checkpoint",
    "partition.metadata",
    f"{FIRST}.log.tmp",
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two partitions; only the first one is ever damaged."""
    path = make_log(tmp_path / "data")
    with Store(path) as store:
        store.manager.create("t", 1, TOPIC_ID).append(batch(5))
    return path


def texts(path: Path) -> list[str]:
    report = verify(path, ReadOnlyFiles())
    parts = (report.directory, *report.partitions)
    return [f"{each.file} {each.text}" for part in parts for each in part.findings if each.severity is Severity.DAMAGE]


def dumped(path: Path) -> list[Row]:
    files = FileSystem()
    return list(rows(files, targets.find(files, str(path)), Selection(frozenset(PARTS), repr)))


def reopened_offsets(path: Path) -> list[int]:
    """What a broker that starts there finds."""
    with Store(path) as store:
        return [header.base_offset for header in read_all(store.log)]


# In the directory of a partition.


@of_every_kind
@pytest.mark.parametrize("name", DERIVED)
def test_what_can_be_made_anew_is_found_moved_away_and_made_anew(log: Path, kind: str, name: str) -> None:
    before = reopened_offsets(log)
    put(log / "t-0" / name, kind)
    assert texts(log) == [f"{name} is {kind}, not a file"]
    assert [report.records for report in verify(log).partitions] == [180, 5], "everything else is looked at"
    assert name in {row["file"] for row in dumped(log) if row["kind"] == "damage"}

    assert not repair(log, dry_run=True).clean
    assert texts(log) == [f"{name} is {kind}, not a file"], "a dry run writes nothing"
    report = repair(log)
    assert report.clean
    assert (name, "moved away") in {(action.file, action.what) for action in report.actions}
    assert os.path.lexists(log / "t-0" / f"{name}.damaged"), "nothing is destroyed"
    assert not texts(log)
    assert not repair(log).actions
    assert reopened_offsets(log) == before


@of_every_kind
def test_a_snapshot_is_moved_away_and_made_anew(log: Path, kind: str) -> None:
    snapshot = sorted((log / "t-0").glob("*.snapshot"))[0]
    content = snapshot.read_bytes()
    put(snapshot, kind)
    assert texts(log) == [f"{snapshot.name} is {kind}, not a file"]
    assert repair(log).clean
    assert snapshot.is_file()
    assert len(snapshot.read_bytes()) == len(content)


@of_every_kind
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_log_of_a_segment_is_left_and_its_partition_with_it(log: Path, kind: str, number: int) -> None:
    before = reopened_offsets(log)
    segment = segments(log)[number]
    listing = {path.name for path in (log / "t-0").iterdir()}
    points = (log / RECOVERY_POINTS).read_text()
    saved = put(segment, kind)
    assert texts(log) == [f"{segment.name} is {kind}, not a file"], "one cause, one finding"
    report = repair(log)
    assert damage(report) == [("unreadable", segment.name)]
    assert not report.actions
    assert (log / RECOVERY_POINTS).read_text() == points
    assert {path.name for path in (log / "t-0").iterdir()} == listing | {saved.name}
    take_away(segment, saved)
    assert not texts(log)
    assert reopened_offsets(log) == before


@pytest.mark.parametrize("garbage", [b"garbage\n", b"\xff\xfe", b"version: 0\ntopic_id: !\n"])
def test_a_partition_metadata_that_says_nothing_is_moved_away(log: Path, garbage: bytes) -> None:
    path = log / "t-0" / "partition.metadata"
    path.write_bytes(garbage)
    assert texts(log) == ["partition.metadata has no topic id that can be read"]
    assert repair(log).clean
    assert (log / "t-0" / "partition.metadata.damaged").read_bytes() == garbage
    assert not path.exists()


def test_an_empty_partition_metadata_is_what_a_power_cut_leaves(log: Path) -> None:
    (log / "t-0" / "partition.metadata").write_bytes(b"")
    assert not texts(log)


@of_every_kind
def test_a_single_file_that_is_none_is_refused(log: Path, kind: str) -> None:
    path = log / "t-0" / f"{FIRST}.index"
    put(path, kind)
    with pytest.raises(NotALog) as caught:
        targets.find(FileSystem(), str(path))
    assert str(caught.value) == f"{path} is {kind}, not a file"


# In the log directory.


@of_every_kind
@pytest.mark.parametrize("name", [RECOVERY_POINTS, "log-start-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_a_checkpoint_that_is_no_file_is_replaced(log: Path, kind: str, name: str) -> None:
    before = reopened_offsets(log)
    put(log / name, kind)
    assert texts(log) == [f"{name} it is {kind}, not a file"]
    assert name in {row["file"] for row in dumped(log) if row["kind"] == "damage"}
    assert repair(log).clean
    assert (log / name).read_text() == "0\n0\n"
    assert os.path.lexists(log / f"{name}.damaged")
    assert reopened_offsets(log) == before


@of_every_kind
@pytest.mark.parametrize("name", ["meta.properties", ".kafka_cleanshutdown", "barnabas-aborted-checkpoint"])
def test_other_files_that_the_broker_writes_anew_are_moved_away(log: Path, kind: str, name: str) -> None:
    before = reopened_offsets(log)
    put(log / name, kind)
    assert texts(log) == [f"{name} it is {kind}, not a file"]
    assert repair(log).clean
    assert os.path.lexists(log / f"{name}.damaged")
    assert reopened_offsets(log) == before


@of_every_kind
@pytest.mark.parametrize("name", [".lock", "barnabas-metadata.sqlite"])
def test_the_lock_and_the_catalog_are_named(log: Path, kind: str, name: str) -> None:
    put(log / name, kind)
    assert texts(log) == [f"{name} it is {kind}, not a file"]


# Partitions whose directory is gone.


def test_a_directory_that_is_gone_is_damage_after_a_stop_in_order(log: Path) -> None:
    shutil.rmtree(log / "t-0")
    assert texts(log) == [f"t-0 has no directory; {RECOVERY_POINTS} knew it up to offset 180"]
    assert damage(repair(log)) == [("missing", "t-0")], "nobody can make it anew"
    (log / ".kafka_cleanshutdown").unlink()
    report = verify(log)
    assert report.clean
    (note,) = report.directory.findings
    assert note.text.endswith("knew it up to offset 180, unless its topic was deleted")


def test_beside_a_broker_it_is_a_note(log: Path) -> None:
    with Store(log) as store:
        store.manager.delete("t", 1)
        store.manager.housekeeper.run_due()
        report = verify(log)
        assert report.owner.held
        assert report.clean
        assert [finding.code.value for finding in report.directory.findings] == ["missing"]
    assert not verify(log).directory.findings


def test_a_deleted_topic_is_not_missed_after_a_stop_in_order(log: Path) -> None:
    with Store(log) as store:
        store.manager.delete("t", 1)
    assert (log / ".kafka_cleanshutdown").exists()
    report = verify(log)
    assert report.clean
    assert [finding.code.value for finding in report.directory.findings] == ["orphan"], "only the files that go later"


@pytest.mark.parametrize("kind", ["a plain file", "a FIFO", "a link to nothing", "a loop of links"])
def test_what_stands_in_place_of_a_directory_is_named(log: Path, kind: str) -> None:
    shutil.rmtree(log / "t-0")
    if kind == "a plain file":
        (log / "t-0").write_text("mine")
    else:
        KINDS[kind](log / "t-0")
    text = f"t-0 is {kind}, not the directory of a partition; {RECOVERY_POINTS} knew it up to offset 180"
    assert texts(log) == [text]
    (log / ".kafka_cleanshutdown").unlink()
    assert texts(log) == [text]
