"""A batch of a log is damaged, in its header or in its records: all others are read, nothing that was on disk is cut off, and no offset
is given a second time. What is true is what was appended."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.broker.log.damage import (
    DAMAGES,
    STOPS,
    Damage,
    change,
    check_reads,
    damage_and_read,
    fill,
    noise,
    written,
    wrong_length,
    zeros,
)
from tests.broker.log.stores import Store
from tests.records.batches import NOW_MS, batch, sequenced


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("stop", STOPS)
def test_all_but_the_damaged_batch_is_read(tmp_path: Path, damage: Damage, stop: str) -> None:
    for seed in range(15):
        damage_and_read(tmp_path / str(seed), damage, stop, seed)


@pytest.mark.parametrize("seed", range(20))
def test_several_damaged_batches_in_one_log(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = Store(tmp_path, segment_bytes=rng.choice([1500, 100_000]), index_interval_bytes=300)
    truth = fill(store, rng, 40)
    store.abandon()
    numbers = set(rng.sample(range(len(truth)), rng.randint(2, 8)))
    for number in numbers:
        # two flipped base offsets beside each other may agree with each other
        rng.choice([zeros, noise, wrong_length])(truth[number], rng)
    store.open()
    check_reads(store.log, truth, numbers)
    assert store.log.append(batch(1)).base_offset == truth[-1].following
    assert store.log.offset_for_timestamp(-1).offset == truth[-1].following + 1
    store.close()


def test_a_wrong_length_that_ends_at_another_batch_hides_nothing(tmp_path: Path) -> None:
    """The only sign is a gap, as compaction leaves them."""
    store = Store(tmp_path, index_interval_bytes=100_000)
    for _ in range(6):
        store.log.append(batch(2, 50))
    truth = written(store.log)
    change(truth[1], 8, (2 * len(truth[1].data) - 12).to_bytes(4))
    check_reads(store.log, truth, {1})
    store.close()


def test_what_is_above_the_recovery_point_is_cut_at_the_first_bad_batch(tmp_path: Path) -> None:
    """A power cut may leave good batches behind a hole: what remains of them must be a prefix."""
    store = Store(tmp_path)
    truth = fill(store, random.Random(1), 10)
    for _ in range(5):
        store.log.append(batch(1, 50))
    behind = written(store.log)[len(truth) :]
    store.abandon()
    zeros(truth[4], random.Random(1))
    change(behind[2], 16, b"\0")
    store.open()
    assert store.log.log_end_offset == behind[2].first
    check_reads(store.log, [*truth, *behind[:2]], {4})
    assert store.log.append(batch(1)).base_offset == behind[2].first
    store.close()


def test_the_last_flushed_batch_is_damaged_and_more_was_written(tmp_path: Path) -> None:
    for size in (50, 0):
        store = Store(tmp_path / str(size))
        truth = fill(store, random.Random(2), 10)
        for _ in range(3 if size else 0):
            store.log.append(batch(1, size))
        everything = written(store.log)
        store.abandon()
        change(truth[-1], 16, b"\0")
        store.open()
        assert store.log.log_end_offset == everything[-1].following
        check_reads(store.log, everything, {len(truth) - 1})
        store.close()


def test_what_was_flushed_is_gone_and_its_offsets_are_not_used_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    truth = fill(store, random.Random(3), 10)
    store.close()
    path, end = truth[-1].path, truth[-1].following
    path.write_bytes(path.read_bytes()[: truth[-2].position])
    store.open()
    assert store.log.log_end_offset == end
    assert f"offsets {truth[-2].first} to {end - 1} were on disk and are lost" in caplog.text
    check_reads(store.log, truth[:-2], set())
    assert store.log.append(batch(1)).base_offset == end
    assert store.crash().log_end_offset == end + 1
    store.close()


def test_zeros_ahead_of_batches_are_cut_off_behind_a_damaged_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    truth = fill(store, random.Random(4), 5)
    store.abandon()
    path = truth[-1].path
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(1 << 20))
    change(truth[-1], 16, b"\0")
    store.open()
    assert size <= path.stat().st_size < size + 200
    assert path.read_bytes()[: truth[-1].position] == b"".join(each.data for each in truth[:-1])
    check_reads(store.log, truth, {4})
    store.close()


def test_an_old_segment_that_was_cut_short_is_damaged_there(tmp_path: Path) -> None:
    store = Store(tmp_path, segment_bytes=600)
    truth = fill(store, random.Random(5), 20)
    store.close()
    path = truth[0].path
    of_first = [number for number, each in enumerate(truth) if each.path == path]
    path.write_bytes(path.read_bytes()[:-7])
    store.open()
    check_reads(store.log, truth, {of_first[-1]})
    store.close()


def test_look_ups_by_time_pass_over_a_damaged_header(tmp_path: Path) -> None:
    store = Store(tmp_path, segment_bytes=100_000, index_interval_bytes=200)
    for number in range(30):
        store.log.append(batch(1, 60, NOW_MS + 10 * number))
    truth = written(store.log)
    store.close()
    change(truth[12], 16, b"\0")
    store.open()
    for number in (0, 11, 13, 14, 29):
        assert store.log.offset_for_timestamp(NOW_MS + 10 * number).offset == number
    assert store.log.offset_for_timestamp(NOW_MS + 120).offset == 13
    assert store.log.offset_for_timestamp(-3).offset == 29
    store.close()


# What else depends on headers: producers, and the checkpoints that say where damage may be.


def test_a_flipped_producer_id_does_not_make_another_producer_repeat_itself(tmp_path: Path) -> None:
    """Below the recovery point only headers are read, but what they say of producers is believed with their checksum only."""
    store = Store(tmp_path)
    store.log.append(sequenced(0, 0, 0, 5))
    store.log.append(sequenced(3, 0, 0, 2))
    store.note_recovery_point()
    first, _ = written(store.log)
    store.abandon()
    change(first, 43, (1).to_bytes(8))
    store.open()
    result = store.log.append(sequenced(1, 0, 0, 5))
    assert (result.base_offset, result.duplicate) == (7, False)
    assert store.log.append(sequenced(3, 0, 2)).base_offset == 12, "who is not concerned goes on"
    store.close()


@pytest.mark.parametrize("damage", [zeros, noise, wrong_length])
def test_after_a_clean_stop_the_snapshot_knows_what_a_damaged_batch_said_of_its_producer(
    tmp_path: Path, damage: Damage
) -> None:
    store = Store(tmp_path)
    for number in range(5):
        store.log.append(sequenced(4, 0, number))
    truth = written(store.log)
    store.close()
    damage(truth[-1], random.Random(1))
    store.open()
    assert store.log.append(sequenced(4, 0, 4)).duplicate
    assert store.log.append(sequenced(4, 0, 5)).base_offset == 5
    store.close()


@pytest.mark.parametrize("point", [0, 1, 7, 12, 17])
@pytest.mark.parametrize("segment_bytes", [600, 100_000])
def test_a_recovery_point_that_is_too_low_costs_nothing_but_time(
    tmp_path: Path, point: int, segment_bytes: int
) -> None:
    """A clean stop says that the log ends at its recovery point: when it does not, the point is what is wrong."""
    store = Store(tmp_path, segment_bytes=segment_bytes)
    for _ in range(10):
        store.log.append(batch(2, 60))
    truth = written(store.log)
    store.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {point}\n")
    store.open()
    assert store.log.log_end_offset == 20
    check_reads(store.log, truth, set())
    store.close()


def test_a_recovery_point_that_no_segment_reaches_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    truth = fill(store, random.Random(6), 5)
    store.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {2**40}\n")
    store.open()
    assert f"the recovery point {2**40} is not believed" in caplog.text
    assert store.log.log_end_offset == truth[-1].following
    check_reads(store.log, truth, set())
    store.close()


def test_missing_first_segments_are_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path, segment_bytes=600)
    truth = fill(store, random.Random(7), 20)
    second = store.log.segments[1].base_offset
    store.close()
    truth[0].path.unlink()
    store.open()
    assert f"the segments with offsets 0 to {second - 1} are missing" in caplog.text
    assert store.log.log_start_offset == second
    caplog.clear()
    store.reopen()
    assert "missing" not in caplog.text, "said once: the start is now where the log begins"
    store.close()
