"""Repairing logs: afterwards a verification finds nothing and the broker starts; nothing that was whole is lost, nothing goes silently."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.log.checkpoints import LEADER_EPOCH_FILE, RECOVERY_POINT_FILE
from barnabas.broker.log.inspection.repair import DirectoryInUse
from barnabas.broker.log.inspection.targets import NotALog
from barnabas.broker.log.results import AppendOrigin
from tests.broker.log.damage import change, written
from tests.broker.log.inspection.logs import (
    SMALL,
    Spot,
    damage,
    fingerprint,
    flip,
    make_log,
    offsets_read_by_the_broker,
    overwrite,
    repair,
    segments,
    spots,
    verify,
)
from tests.broker.log.stores import Store
from tests.records.batches import Batch, batch, end_marker, sequenced, transactional


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


def all_offsets(path: Path) -> list[int]:
    return [spot.base_offset for segment in segments(path) for spot in spots(segment)]


def test_a_clean_log_is_left_alone(log: Path) -> None:
    before = fingerprint(log)
    report = repair(log, drop_damaged=True)
    assert report.clean
    assert not report.actions
    assert fingerprint(log) == before


def small_batches(store: Store) -> None:
    for number in range(3000):
        store.log.append(sequenced(7, 0, number, 1))


def long_batches(store: Store) -> None:
    for number in range(12):
        store.log.append(Batch([bytes(100_000 + number)]).build())


def one_long_batch(store: Store) -> None:
    store.log.append(Batch([bytes(400_000)]).build())


def long_batches_behind_small_ones(store: Store) -> None:
    small_batches(store)
    long_batches(store)


def one_long_batch_before_each_stop(store: Store) -> None:
    for _ in range(4):
        one_long_batch(store)
        store.reopen()


def transactions(store: Store) -> None:
    for number in range(400):
        store.log.append(transactional(1, number), origin=AppendOrigin.COORDINATOR)
        store.log.append(end_marker(1, commit=number % 3 == 0), origin=AppendOrigin.COORDINATOR)


def nothing(store: Store) -> None:
    pass


WRITERS = (
    small_batches,
    long_batches,
    one_long_batch,
    long_batches_behind_small_ones,
    one_long_batch_before_each_stop,
    transactions,
    nothing,
)
CONFIGS: dict[str, dict[str, int]] = {
    "defaults": {},
    "small segments": {"segment_bytes": 450_000},
    "fine index": {"segment_bytes": 450_000, "index_interval_bytes": 1},
    "coarse index": {"index_interval_bytes": 60_000},
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_what_a_broker_left_in_order_is_not_touched(
    tmp_path: Path, write: Callable[[Store], None], config: str, killed: bool
) -> None:
    """Whatever the length of its batches and the distance of its index entries."""
    path = tmp_path / "data"
    with Store(path, **CONFIGS[config]) as store:
        write(store)
        if killed:
            store.crash()
    before = fingerprint(path)
    report = repair(path, drop_damaged=True)
    assert report.clean
    assert [action.as_dict() for action in report.actions] == []
    assert not verify(path).partitions[0].findings
    assert fingerprint(path) == before


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_second_repair_finds_nothing_to_do(tmp_path: Path, write: Callable[[Store], None], seed: int) -> None:
    """Also behind a kill, after which nobody started, with files that are damaged, cut short or gone."""
    path, chosen = tmp_path / "data", random.Random(seed)
    store = Store(path, segment_bytes=450_000)
    write(store)
    store.abandon()
    for _ in range(3):
        file = chosen.choice([file for file in sorted((path / "t-0").iterdir()) if file.name != "partition.metadata"])
        size = file.stat().st_size
        if size and chosen.random() < 0.5:
            flip(file, chosen.randrange(size * 8))
        elif file.suffix != ".log":
            os.truncate(file, chosen.randrange(size + 1))
    repair(path, drop_damaged=True)
    before = fingerprint(path)
    assert [action.as_dict() for action in repair(path, drop_damaged=True).actions] == []
    assert fingerprint(path) == before


@pytest.mark.parametrize("write", [small_batches, long_batches])
@pytest.mark.parametrize("kept", [0, 0.5])
def test_an_index_that_was_cut_short_is_noted_and_made_anew(
    tmp_path: Path, write: Callable[[Store], None], kept: float
) -> None:
    path = tmp_path / "data"
    with Store(path) as store:
        write(store)
    before = fingerprint(path)
    index = segments(path)[0].with_suffix(".index")
    os.truncate(index, int(index.stat().st_size * kept) // 8 * 8)
    (finding,) = verify(path).partitions[0].findings
    assert (finding.severity.value, finding.file) == ("note", index.name)
    assert "has no entry for the last" in finding.text
    report = repair(path)
    assert [(action.what, action.file) for action in report.actions] == [("rebuilt", index.name)]
    assert fingerprint(path) == before


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


@pytest.mark.parametrize("number", [6, 7])
def test_what_a_repair_keeps_above_the_recovery_point_the_next_start_keeps_too(tmp_path: Path, number: int) -> None:
    """Also where the batch that is gone was the last of its segment: the gap is not taken for what a power cut left."""
    store = Store(tmp_path, segment_bytes=600)
    for each in range(12):
        store.log.append(batch(1, 60, each))
        if not each:
            store.note_recovery_point()
    store.log.flush()
    truth = written(store.log)
    assert truth[7].path != truth[8].path
    store.abandon()
    change(truth[number], 70, bytes([truth[number].data[70] ^ 1]))
    assert repair(tmp_path, drop_damaged=True).clean
    store.open()
    assert store.log.log_end_offset == 12
    assert all_offsets(tmp_path) == [each for each in range(12) if each != number]
    store.close()


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
    assert kept.name == f"{segment.name}.{last.position}.{last.base_offset}-{last.last_offset + 1}.damaged"
    assert kept.stat().st_size == last.size - 3
    assert verify(log).clean
    with Store(log, **SMALL) as store:
        assert store.log.log_end_offset == last.last_offset + 1, "which was on disk: it is not given to another record"
    assert offsets_read_by_the_broker(log) == offsets[:-1]


def test_a_log_without_segments_goes_on_behind_what_was_on_disk(log: Path) -> None:
    end = spots(segments(log)[-1])[-1].last_offset + 1
    for path in (log / "t-0").iterdir():
        path.unlink()
    assert not verify(log).clean
    report = repair(log)
    assert report.clean, damage(report)
    assert not repair(log).actions
    with Store(log, **SMALL) as store:
        assert (store.log.log_start_offset, store.log.log_end_offset) == (end, end)


def test_a_damaged_last_batch_that_was_on_disk_is_only_dropped_when_that_is_asked_for(log: Path) -> None:
    segment = segments(log)[-1]
    last = spots(segment)[-1]
    overwrite(segment, last.position + 16, b"\0")
    before = fingerprint(log)
    report = repair(log)
    assert [action.done for action in report.actions] == [False]
    assert fingerprint(log) == before
    assert repair(log, drop_damaged=True).clean
    assert not repair(log, drop_damaged=True).actions
    (kept,) = (log / "t-0").glob("*.damaged")
    assert kept.name == f"{segment.name}.{last.position}.{last.base_offset}-{last.last_offset + 1}.damaged"
    assert kept.stat().st_size == last.size
    with Store(log, **SMALL) as store:
        assert store.log.log_end_offset == last.last_offset + 1


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


@pytest.mark.parametrize("number", [0, 100, -1])
def test_a_leader_epoch_that_was_never_begun_is_set_back_once_older_ones_follow(tmp_path: Path, number: int) -> None:
    """Nothing was known to be on disk: a newer epoch is possible until a batch of the old one follows, here in the next segment too."""
    path = tmp_path / "data"
    store = Store(path, segment_bytes=100_000)
    small_batches(store)
    store.abandon()
    first = segments(path)[0]
    before = fingerprint(path)[f"t-0/{first.name}"]
    overwrite(first, spots(first)[number].position + 12, struct.pack(">i", 9))
    assert damage(verify(path)) == [("epoch", segments(path)[1].name if number < 0 else first.name)]
    report = repair(path)
    assert report.clean
    assert [action.file for action in report.actions if action.what == "leader epoch"] == [first.name]
    assert fingerprint(path)[f"t-0/{first.name}"] == before


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


@pytest.mark.parametrize("content", ["0\n1\n1 0\n", "0\n2\n3 0\n7 60\n", "0\n1\n5 9999999\n"])
def test_an_epoch_checkpoint_that_no_batch_agrees_with_is_made_anew_and_no_batch_is_changed(
    log: Path, content: str
) -> None:
    before = fingerprint(log)
    (log / "t-0" / LEADER_EPOCH_FILE).write_text(content)
    assert damage(verify(log)) == [("checkpoint", LEADER_EPOCH_FILE)]
    report = repair(log)
    assert report.clean
    assert [(action.what, action.file) for action in report.actions] == [("rebuilt", LEADER_EPOCH_FILE)]
    assert fingerprint(log) == before


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
