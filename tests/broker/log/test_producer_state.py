"""Idempotent producers: what is accepted, what repeats, what is refused; and the state over restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.log.producer_state import CorruptSnapshot, ProducerStates
from barnabas.broker.log.results import AppendOrigin
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import parse_header
from tests.broker.log.stores import Store, read_all
from tests.records.batches import Batch, end_marker, sequenced

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
LAST = 2**31 - 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as made:
        yield made


Step = tuple[tuple[int, int, int], object]
"""(epoch, sequence, count) and the outcome: an offset, ("again", offset) or an error."""

TABLES: dict[str, list[Step]] = {
    "in order": [((0, 0, 1), 0), ((0, 1, 3), 1), ((0, 4, 1), 4)],
    "any first sequence of an unknown producer": [((3, 17, 2), 0), ((3, 19, 1), 2)],
    "a gap": [((0, 0, 1), 0), ((0, 2, 1), OUT_OF_ORDER), ((0, 1, 1), 1)],
    "the last five repeat": [
        *[((0, number, 1), number) for number in range(6)],
        *[((0, number, 1), ("again", number)) for number in range(1, 6)],
        ((0, 0, 1), OUT_OF_ORDER),
        ((0, 6, 1), 6),
    ],
    "same begin, other length": [((0, 0, 2), 0), ((0, 0, 1), OUT_OF_ORDER), ((0, 0, 2), ("again", 0))],
    "an old epoch": [((5, 0, 1), 0), ((4, 1, 1), OLD_EPOCH), ((4, 0, 1), OLD_EPOCH), ((5, 1, 1), 1)],
    "a new epoch begins with 0": [((5, 0, 1), 0), ((6, 1, 1), OUT_OF_ORDER), ((6, 0, 1), 1), ((6, 1, 1), 2)],
    "a new epoch forgets the batches of the old": [((5, 0, 1), 0), ((6, 0, 1), 1), ((6, 0, 1), ("again", 1))],
    "sequences go round": [((0, LAST, 1), 0), ((0, 0, 1), 1), ((0, LAST, 1), ("again", 0))],
    "a batch across the wrap": [((0, LAST - 1, 4), 0), ((0, 2, 1), 4), ((0, LAST - 1, 4), ("again", 0))],
    "sequence 0 is not next after 5": [((0, 5, 1), 0), ((0, 0, 1), OUT_OF_ORDER)],
}


@pytest.mark.parametrize("name", TABLES)
def test_sequences_follow_the_table(store: Store, name: str) -> None:
    for (epoch, sequence, count), outcome in TABLES[name]:
        records = sequenced(9, epoch, sequence, count)
        if isinstance(outcome, ErrorCode):
            with pytest.raises(KafkaError) as caught:
                store.log.append(records)
            assert caught.value.code == outcome
            assert "9" in caught.value.message
        else:
            result = store.log.append(records)
            expected = outcome if isinstance(outcome, tuple) else ("new", outcome)
            assert ("again" if result.duplicate else "new", result.base_offset) == expected
            assert result.last_offset == result.base_offset + count - 1


def test_producers_do_not_disturb_each_other(store: Store) -> None:
    for number in range(3):
        assert store.log.append(sequenced(1, 0, number)).base_offset == 2 * number
        assert store.log.append(sequenced(2, 0, number)).base_offset == 2 * number + 1


def test_a_repeated_batch_is_not_written_again(store: Store) -> None:
    store.log.append(sequenced(1, 0, 0))
    size = store.log.size
    assert store.log.append(sequenced(1, 0, 0)).duplicate
    assert (store.log.size, store.log.log_end_offset) == (size, 1)


def test_a_coordinator_needs_no_sequence_but_a_valid_epoch(store: Store) -> None:
    store.log.append(sequenced(1, 5, 0))
    marker = end_marker(1, commit=True, epoch=5)
    assert store.log.append(marker, origin=AppendOrigin.COORDINATOR).base_offset == 1
    old = end_marker(1, commit=True, epoch=4)
    with pytest.raises(KafkaError):
        store.log.append(old, origin=AppendOrigin.COORDINATOR)
    assert store.log.append(sequenced(1, 5, 1)).base_offset == 2


def test_a_silent_producer_is_forgotten_after_its_time(store: Store) -> None:
    store.log.append(sequenced(1, 0, 0))
    store.clock.advance(86_399)
    store.log.append(sequenced(2, 0, 0))
    store.manager.housekeeper.apply_retention()
    assert len(store.log._producers.entries) == 2
    store.clock.advance(1)
    store.manager.housekeeper.apply_retention()
    assert len(store.log._producers.entries) == 1
    assert store.log.append(sequenced(1, 0, 7)).base_offset == 2, "an unknown producer may go on anywhere (KIP-360)"


def test_old_records_do_not_make_an_old_producer(store: Store) -> None:
    store.log.append(Batch(timestamp=1000, producer_id=1, producer_epoch=0, base_sequence=0).build())
    store.log.expire_producers(86_400_000)
    assert len(store.log._producers.entries) == 1


def test_a_clock_that_is_set_forward_makes_no_producer_old(store: Store) -> None:
    store.log.append(sequenced(1, 0, 0))
    store.clock.jump_wall(2 * 86_400)
    store.manager.housekeeper.apply_retention()
    assert store.log.append(sequenced(1, 0, 0)).duplicate


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_the_state_survives_a_restart(store: Store, stop: str) -> None:
    for number in range(5):
        store.log.append(sequenced(1, 3, number * 2, 2))
    log = store.reopen() if stop == "clean" else store.crash()
    assert log.append(sequenced(1, 3, 8, 2)).duplicate
    with pytest.raises(KafkaError) as caught:
        log.append(sequenced(1, 3, 11))
    assert caught.value.code == OUT_OF_ORDER
    with pytest.raises(KafkaError) as caught:
        log.append(sequenced(1, 2, 10))
    assert caught.value.code == OLD_EPOCH
    assert log.append(sequenced(1, 3, 10)).base_offset == 10


def test_after_a_crash_all_five_batches_are_known(store: Store) -> None:
    for number in range(6):
        store.log.append(sequenced(1, 0, number))
    log = store.crash()
    assert [log.append(sequenced(1, 0, number)).base_offset for number in range(1, 6)] == [1, 2, 3, 4, 5]
    assert len(read_all(log)) == 6


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "stale"])
@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_a_damaged_snapshot_is_replaced_by_the_log(tmp_path: Path, damage: str, stop: str) -> None:
    """faults.md row 8: the state equals that of a full replay."""
    with Store(tmp_path / "data", segment_bytes=400) as store:
        for number in range(12):
            store.log.append(sequenced(1, 0, number))
            store.log.append(sequenced(2 + number, 0, 0))
        if stop == "clean":
            store.close()
        else:
            store.abandon()
        snapshots = sorted(store.directory.glob("*.snapshot"))
        assert len(snapshots) > 3
        for path in snapshots:
            data = path.read_bytes()
            if damage == "missing":
                path.unlink()
            elif damage == "flipped":
                path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            elif damage == "stale":
                path.rename(path.with_name("99999999999999999999.snapshot"))
            else:
                path.write_bytes(data[: 0 if damage == "empty" else len(data) - 3])
        store.open()
        assert len(store.log._producers.entries) == 13
        assert store.log.append(sequenced(1, 0, 11)).duplicate
        assert store.log.append(sequenced(1, 0, 12)).base_offset == 24


def test_a_snapshot_of_another_version_is_corrupt() -> None:
    with pytest.raises(CorruptSnapshot, match="version"):
        ProducerStates("t-0").load(b"\x00\x02" + bytes(20), 0)


@given(st.binary(max_size=120))
def test_random_bytes_are_a_corrupt_snapshot(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        ProducerStates("t-0").load(data, 0)


@given(
    st.dictionaries(
        st.integers(0, 2**63 - 1),
        st.tuples(st.integers(0, 2**15 - 1), st.integers(0, LAST), st.integers(1, 50)),
        max_size=8,
    )
)
def test_a_snapshot_gives_back_what_the_next_check_needs(producers: dict[int, tuple[int, int, int]]) -> None:
    states = ProducerStates("t-0")
    offset = 0
    for producer_id, (epoch, sequence, count) in producers.items():
        header = parse_header(sequenced(producer_id, epoch, sequence, count))
        states.update(header, offset, 0)
        offset += count
    loaded = ProducerStates("t-0")
    loaded.load(states.encode(), 0)
    assert loaded.entries.keys() == states.entries.keys()
    for producer_id, entry in states.entries.items():
        copy = loaded.entries[producer_id]
        assert (copy.epoch, copy.next_sequence, list(copy.batches)) == (
            entry.epoch,
            entry.next_sequence,
            list(entry.batches),
        )


def test_many_producers_are_not_written_down_for_each_small_segment(tmp_path: Path) -> None:
    """2000 producers, and a segment for every ten batches of 1 kB."""
    with Store(tmp_path, segment_bytes=10_000) as store:
        for producer in range(2000):
            store.log.append(sequenced(producer, 0, 0, 1))
        before = len(list(store.directory.glob("*.snapshot")))
        segments = store.log.segment_count
        for _ in range(200):
            store.log.append(memoryview(Batch([b"x" * 900]).build()))
        assert store.log.segment_count > segments + 15
        assert len(list(store.directory.glob("*.snapshot"))) <= before + 1
        log = store.crash()
        with pytest.raises(KafkaError):
            log.append(sequenced(1999, 0, 5, 1))
