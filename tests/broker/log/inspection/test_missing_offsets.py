"""Offsets that are nowhere: segments that went, batches that went, recovery points that no log reaches."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.log.checkpoints import CLEAN_SHUTDOWN_FILE, CLEANER_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from barnabas.broker.log.inspection.side_names import explained_gaps, is_explained
from tests.broker.log.inspection.logs import (
    SMALL,
    damage,
    fingerprint,
    make_log,
    offsets_read_by_the_broker,
    repair,
    segments,
    spots,
    verify,
)
from tests.broker.log.stores import Store
from tests.records.batches import batch


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


def remove_segment(segment: Path) -> None:
    for file in segment.parent.glob(f"{segment.stem}.*"):
        file.unlink()


def remove_log(segment: Path) -> None:
    segment.unlink()


def empty(segment: Path) -> None:
    os.truncate(segment, 0)


def rename(segment: Path) -> None:
    segment.rename(segment.with_suffix(".log.old"))


def take_batches(segment: Path) -> None:
    where, data = spots(segment), segment.read_bytes()
    segment.write_bytes(data[: where[3].position] + data[where[6].position :])


@pytest.mark.parametrize("number", [0, 1], ids=["first", "middle"])
@pytest.mark.parametrize("lose", [remove_segment, remove_log, empty, rename, take_batches])
def test_missing_offsets_are_left_and_named_and_noted_as_lost_when_that_is_asked_for(
    log: Path, lose: Callable[[Path], None], number: int
) -> None:
    lost = segments(log)[number]
    lose(lost)
    there = [spot.base_offset for segment in segments(log) for spot in spots(segment)]
    (gap,) = [each for each in verify(log).partitions[0].findings if each.code.value == "gap"]
    left = [action.text for action in repair(log).actions if not action.done]
    assert left == [f"{gap.text}: bring the segment back, or note them as lost with --drop-damaged"]
    assert ("gap", gap.file) in damage(verify(log))
    report = repair(log, drop_damaged=True)
    assert report.clean, damage(report)
    assert [action.what for action in report.actions if action.file == gap.file] == ["noted"]
    (note,) = (log / "t-0").glob("*.damaged")
    assert note.stat().st_size == 0
    assert verify(log).clean
    before = fingerprint(log)
    assert not repair(log, drop_damaged=True).actions
    assert fingerprint(log) == before
    assert offsets_read_by_the_broker(log) == there
    assert verify(log).clean


@pytest.mark.parametrize("start", [0, 9])
def test_a_first_segment_behind_the_start_of_the_log_is_damage_after_a_stop_in_order(log: Path, start: int) -> None:
    remove_segment(segments(log)[0])
    first = segments(log)[0]
    (log / LOG_START_FILE).write_text(f"0\n1\nt 0 {start}\n")
    (finding,) = verify(log).partitions[0].findings
    assert (finding.severity.value, finding.code.value, finding.file) == ("damage", "gap", first.name)
    assert finding.text == f"offsets {start} to {int(first.stem) - 1} are missing"
    assert finding.offset == start


def test_a_first_segment_behind_the_start_is_a_note_or_nothing_where_it_may_be_in_order(log: Path) -> None:
    remove_segment(segments(log)[0])
    first = segments(log)[0]
    marker = (log / CLEAN_SHUTDOWN_FILE).read_bytes()
    (log / CLEAN_SHUTDOWN_FILE).unlink()
    (finding,) = verify(log).partitions[0].findings
    assert (finding.severity.value, finding.code.value, finding.file) == ("note", "gap", first.name)
    assert not repair(log, drop_damaged=True).actions
    (log / CLEAN_SHUTDOWN_FILE).write_bytes(marker)
    (log / CLEANER_FILE).write_text(f"0\n1\nt 0 {int(first.stem)}\n")
    assert not verify(log).partitions[0].findings
    (log / CLEANER_FILE).unlink()
    for text in ("0\n0\n", f"0\n1\nt 0 {int(first.stem)}\n"):
        (log / LOG_START_FILE).write_text(text)
        assert not verify(log).partitions[0].findings


def test_a_log_whose_old_segments_went_in_order_is_clean(log: Path) -> None:
    with Store(log, **SMALL) as store:
        store.log.delete_records_before(store.log.segments[1].base_offset + 3)
    assert verify(log).clean, damage(verify(log))


@pytest.mark.parametrize("beyond", [2**31 + 1, 2**40, 2**62 - 1 - 1000])
def test_a_recovery_point_that_no_segment_reaches_is_set_to_the_end_of_the_log(log: Path, beyond: int) -> None:
    before, count = fingerprint(log), len(segments(log))
    last, end = segments(log)[-1], 180
    point = int(last.stem) + beyond
    (log / RECOVERY_POINT_FILE).write_text(f"0\n2\nother 0 7\nt 0 {point}\n")
    assert ("checkpoint", RECOVERY_POINT_FILE) in damage(verify(log / "t-0"))
    planned = repair(log / "t-0", dry_run=True)
    report = repair(log / "t-0")
    assert report.clean, damage(report)
    (action,) = report.actions
    assert (action.what, action.file) == ("rewrote", RECOVERY_POINT_FILE)
    assert action.text == f"the recovery point goes from {point} to {end}: no segment reaches that far"
    assert planned.actions == report.actions
    assert len(segments(log)) == count
    assert (log / RECOVERY_POINT_FILE).read_text() == f"0\n2\nother 0 7\nt 0 {end}\n"
    assert not repair(log / "t-0").actions
    assert verify(log / "t-0").clean
    (log / RECOVERY_POINT_FILE).write_text(f"0\n1\nt 0 {end}\n")
    assert fingerprint(log) == before
    with Store(log, **SMALL) as store:
        assert store.log.append(batch(1)).base_offset == end


def test_the_largest_recovery_point_that_a_segment_can_reach_is_believed(log: Path) -> None:
    point = int(segments(log)[-1].stem) + 2**31
    (log / RECOVERY_POINT_FILE).write_text(f"0\n1\nt 0 {point}\n")
    report = repair(log)
    assert report.clean, damage(report)
    assert int(segments(log)[-1].stem) == point


def test_side_files_explain_a_gap_together() -> None:
    names = [f"{0:020d}.log.{at}.{gap}.damaged" for at, gap in enumerate(["60-90", "0-40", "90-120.1", "35-50"])]
    explained = explained_gaps([*names, "something else"])
    assert explained == [(0, 50), (60, 120)]
    assert is_explained(explained, 60, 120)
    assert is_explained(explained, 10, 50)
    assert not is_explained(explained, 40, 70)
