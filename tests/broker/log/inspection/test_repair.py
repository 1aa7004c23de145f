"""Repairing logs: afterwards a verification finds nothing and the broker starts; nothing that was whole is lost, nothing goes silently."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from barnabas.broker.log.checkpoints import LEADER_EPOCH_FILE, RECOVERY_POINT_FILE
from barnabas.broker.log.inspection.repair import DirectoryInUse
from barnabas.broker.log.inspection.targets import NotALog
from barnabas.broker.log.results import AppendOrigin
from tests.broker.log.inspection.logs import (
    SMALL,
    Spot,
    damage,
    fingerprint,
    flip,
    make_log,
    overwrite,
    repair,
    segments,
    spots,
    verify,
)
from tests.broker.log.stores import Store, headers_of
from tests.records.batches import end_marker, transactional


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


def offsets_read_by_the_broker(path: Path) -> list[int]:
    """Base offsets of all batches that a broker with this directory serves; it must start and accept a batch."""
    with Store(path, **SMALL) as store:
        found, offset = [], store.log.log_start_offset
        while offset < store.log.log_end_offset:
            for header in headers_of(store.log.read(offset, 100_000)):
                if header.next_offset > offset:
                    found.append(header.base_offset)
                    offset = header.next_offset
    return found


def all_offsets(path: Path) -> list[int]:
    return [spot.base_offset for segment in segments(path) for spot in spots(segment)]


def test_a_clean_log_is_left_alone(log: Path) -> None:
    before = fingerprint(log)
    report = repair(log, drop_damaged=True)
    assert report.clean
    assert not report.actions
    assert fingerprint(log) == before


def test_damage_in_the_middle_is_left_unless_it_is_asked_for(log: Path) -> None:
    segment = segments(log)[0]
    flip(segment, (spots(segment)[3].position + 80) * 8)
    before = fingerprint(log)
    report = repair(log)
    assert not report.clean
    assert [(action.what, action.done) for action in report.actions] == [("left", False)]
    assert fingerprint(log) == before


def test_damaged_batches_are_taken_out_and_kept_and_the_others_keep_their_offsets(log: Path) -> None:
    segment = segments(log)[0]
    where, offsets = spots(segment), all_offsets(log)
    bad = [where[3], where[4], where[9]]
    for spot in bad:
        flip(segment, (spot.position + 80) * 8)
    data = segment.read_bytes()
    report = repair(log, drop_damaged=True)
    assert report.clean, damage(report)
    assert verify(log).clean
    kept = sorted((log / "t-0").glob("*.damaged"), key=lambda file: int(file.name.split(".")[2]))
    assert (
        [file.read_bytes() for file in kept]
        == [
            data[bad[0].position : bad[1].position + bad[1].size],  # the two that touch each other are one file
            data[bad[2].position : bad[2].position + bad[2].size],
        ]
    )
    gone = {spot.base_offset for spot in bad}
    assert offsets_read_by_the_broker(log) == [offset for offset in offsets if offset not in gone]
    assert verify(log).clean


def test_a_torn_tail_is_cut_and_kept(log: Path) -> None:
    segment = segments(log)[-1]
    last = spots(segment)[-1]
    offsets = all_offsets(log)
    with segment.open("r+b") as stream:
        stream.truncate(last.position + last.size - 3)
    report = repair(log)
    assert report.clean, damage(report)
    assert segment.stat().st_size == last.position
    (kept,) = (log / "t-0").glob("*.damaged")
    assert kept.stat().st_size == last.size - 3
    assert verify(log).clean
    assert offsets_read_by_the_broker(log) == offsets[:-1]


def test_base_offset_and_leader_epoch_are_set_back_from_what_is_around_them(log: Path) -> None:
    before = fingerprint(log)
    segment = segments(log)[1]
    overwrite(segment, spots(segment)[5].position, struct.pack(">q", 2**40))
    assert repair(log).clean
    changed = {name for name, content in fingerprint(log).items() if before.get(name) != content}
    assert segment.name not in {Path(name).name for name in changed}, "the segment is as it was before the damage"
    where = spots(segment)
    overwrite(segment, where[7].position + 12, struct.pack(">i", 9))
    assert repair(log).clean
    assert fingerprint(log)[f"t-0/{segment.name}"] == before[f"t-0/{segment.name}"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("content", [b"", b"abc", bytes(24), None])
def test_what_can_be_derived_is_made_anew(log: Path, suffix: str, content: bytes | None) -> None:
    offsets = all_offsets(log)
    file = segments(log)[1].with_suffix(suffix)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert repair(log).clean
    report = verify(log)
    assert not report.partitions[0].findings
    assert offsets_read_by_the_broker(log) == offsets


def test_a_transaction_index_is_made_anew_also_for_one_that_began_in_an_earlier_segment(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Store(path, segment_bytes=700) as store:
        for number in range(12):
            store.log.append(transactional(1, number), origin=AppendOrigin.COORDINATOR)
            store.log.append(transactional(2, number), origin=AppendOrigin.COORDINATOR)
            store.log.append(end_marker(1 + number % 2, commit=number % 3 == 0), origin=AppendOrigin.COORDINATOR)
    before = fingerprint(path)
    files = sorted((path / "t-0").glob("*.txnindex"))
    for file, content in zip(files, (None, b"abc", bytes(34)), strict=False):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
    assert repair(path).clean
    assert fingerprint(path) == before


def test_damaged_checkpoints_are_replaced_and_kept(log: Path) -> None:
    offsets = all_offsets(log)
    (log / RECOVERY_POINT_FILE).write_text("rubbish")
    (log / "t-0" / LEADER_EPOCH_FILE).write_text("rubbish")
    assert repair(log).clean
    assert (log / (RECOVERY_POINT_FILE + ".damaged")).read_text() == "rubbish"
    assert (log / "t-0" / LEADER_EPOCH_FILE).read_text() == "0\n1\n0 0\n"
    assert offsets_read_by_the_broker(log) == offsets


def test_a_dry_run_says_the_same_and_writes_nothing(log: Path) -> None:
    segment = segments(log)[0]
    flip(segment, (spots(segment)[3].position + 80) * 8)
    segments(log)[1].with_suffix(".index").write_bytes(b"abc")
    with segments(log)[-1].open("ab") as stream:
        stream.write(b"torn")
    (log / RECOVERY_POINT_FILE).write_text("rubbish")
    (log / ".lock").unlink()
    before = fingerprint(log)
    planned = repair(log, drop_damaged=True, dry_run=True)
    assert fingerprint(log) == before
    assert not (log / ".lock").exists()
    assert not planned.clean
    done = repair(log, drop_damaged=True)
    assert [action.as_dict() for action in planned.actions] == [action.as_dict() for action in done.actions]
    assert done.clean


def test_a_repair_is_refused_while_a_broker_has_the_directory(log: Path) -> None:
    with Store(log, **SMALL):
        for options in ({}, {"dry_run": True}, {"drop_damaged": True}):
            with pytest.raises(DirectoryInUse, match="stop it first"):
                repair(log, **options)
        with pytest.raises(DirectoryInUse):
            repair(log / "t-0")


def test_a_partition_alone_is_repaired_and_a_single_file_is_refused(log: Path) -> None:
    alone = log.parent / "t-0"
    shutil.copytree(log / "t-0", alone)
    flip(alone / segments(log)[0].name, 800)
    assert repair(alone, drop_damaged=True).clean
    assert not (log.parent / ".lock").exists()
    with pytest.raises(NotALog, match="one file"):
        repair(segments(log)[0])


def test_a_second_repair_does_not_overwrite_what_the_first_kept(log: Path) -> None:
    segment = segments(log)[-1]
    for text in (b"first", b"second"):
        with segment.open("ab") as stream:
            stream.write(text)
        assert repair(log).clean
    assert sorted(file.read_bytes() for file in (log / "t-0").glob("*.damaged")) == [b"first", b"second"]


@pytest.mark.parametrize("seed", range(25))
def test_after_random_damage_a_repair_keeps_every_batch_that_was_not_touched(tmp_path: Path, seed: int) -> None:
    path = make_log(tmp_path / "data")
    chosen = random.Random(seed)
    touched: set[int] = set()
    for _ in range(chosen.randint(1, 4)):
        segment = chosen.choice(segments(path))
        begin = chosen.randrange(segment.stat().st_size)
        size = min(chosen.choice((1, 1, 8, 300)), segment.stat().st_size - begin)
        touched |= {
            each.base_offset
            for each in PRISTINE(path, segment)
            if each.position < begin + size and begin < each.position + each.size
        }
        overwrite(segment, begin, chosen.randbytes(size))
    untouched = [offset for offset in PRISTINE.offsets if offset not in touched]
    assert repair(path, drop_damaged=True).clean
    assert verify(path).clean
    served = offsets_read_by_the_broker(path)
    assert [offset for offset in served if offset not in touched] == untouched


class _Pristine:
    """Where the batches were before anything was damaged; `make_log` always makes the same."""

    def __init__(self) -> None:
        self._spots: dict[str, list[Spot]] = {}
        self.offsets: list[int] = []

    def __call__(self, path: Path, segment: Path) -> list[Spot]:
        if not self._spots:
            for each in segments(path):
                self._spots[each.name] = spots(each)
            self.offsets = sorted(spot.base_offset for found in self._spots.values() for spot in found)
        return self._spots[segment.name]


PRISTINE = _Pristine()
