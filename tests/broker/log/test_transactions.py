"""Transactions in the log: what is open, what was aborted, what consumers with read_committed get, over rolls, restarts and damage.

The coordinator is not there yet: these tests write its markers themselves.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.broker.log.files import FileSystem, OpenFile
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.results import AbortedTransaction, AppendOrigin, IsolationLevel, TimestampOffset
from barnabas.errors import ErrorCode, KafkaError
from tests.broker.log.stores import Store, headers_of, read_all
from tests.records.batches import Batch, batch, end_marker, sequenced, transactional

COORDINATOR = AppendOrigin.COORDINATOR
COMMITTED = IsolationLevel.READ_COMMITTED


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path, segment_bytes=600, index_interval_bytes=100) as made:
        yield made


def write(store: Store, producer: int, sequence: int, count: int = 1) -> int:
    """Transactional records, as if their transaction had been verified; their first offset."""
    return store.log.append(transactional(producer, sequence, count), origin=COORDINATOR).base_offset


def end(store: Store, producer: int, commit: bool, **epochs: int) -> int:
    return store.log.append(end_marker(producer, commit, **epochs), origin=COORDINATOR).base_offset


def refusal(store: Store, records: memoryview, origin: AppendOrigin = COORDINATOR) -> ErrorCode:
    before = store.log.log_end_offset, store.log.last_stable_offset
    with pytest.raises(KafkaError) as caught:
        store.log.append(records, origin=origin)
    assert (store.log.log_end_offset, store.log.last_stable_offset) == before, "what is refused leaves no trace"
    return caught.value.code


def aborted(log: PartitionLog, offset: int = 0, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    found = log.read(offset, max_bytes, isolation=COMMITTED).aborted
    return [(each.producer_id, each.first_offset) for each in found]


def committed_offsets(log: PartitionLog, max_bytes: int) -> list[int]:
    """The data records that a consumer with read_committed shows: it skips what the fetches call aborted, as Java's consumer does."""
    shown: list[int] = []
    offset = log.log_start_offset
    while True:
        result = log.read(offset, max_bytes, isolation=COMMITTED)
        batches = headers_of(result)
        if not batches:
            return shown
        waiting = sorted(result.aborted, key=lambda each: each.first_offset)
        skipping: set[int] = set()
        for header in batches:
            while waiting and waiting[0].first_offset <= header.last_offset:
                skipping.add(waiting.pop(0).producer_id)
            if header.control:
                skipping.discard(header.producer_id)
            elif not (header.transactional and header.producer_id in skipping):
                shown += [each for each in range(header.base_offset, header.next_offset) if each >= offset]
        offset = batches[-1].next_offset


def test_a_stable_log_ends_at_its_end(store: Store) -> None:
    store.log.append(batch(3))
    result = store.log.read(0, 1000, isolation=COMMITTED)
    assert (result.last_stable_offset, result.high_watermark, result.aborted) == (3, 3, ())
    assert store.log.read(3, 1000, isolation=COMMITTED).records == b""


def test_an_open_transaction_bounds_what_is_stable(store: Store) -> None:
    store.log.append(batch(2))
    assert write(store, 1, 0) == 2
    store.log.append(batch(2))
    assert write(store, 2, 0) == 5
    assert (store.log.last_stable_offset, store.log.high_watermark) == (2, 6)
    result = store.log.read(0, 1 << 20, isolation=COMMITTED)
    assert [header.base_offset for header in headers_of(result)] == [0]
    assert (result.last_stable_offset, result.high_watermark) == (2, 6)
    assert store.log.read(2, 1 << 20, isolation=COMMITTED).records == b""
    assert len(read_all(store.log)) == 4
    end(store, 1, commit=True)
    assert store.log.last_stable_offset == 5
    end(store, 2, commit=False)
    assert store.log.last_stable_offset == 8
    assert aborted(store.log) == [(2, 5)]
    assert committed_offsets(store.log, 1 << 20) == [0, 1, 2, 3, 4]


def test_a_marker_without_a_transaction_changes_nothing_for_readers(store: Store) -> None:
    end(store, 1, commit=False)
    assert store.log.last_stable_offset == 1
    assert aborted(store.log) == []
    assert not any(name.endswith(".txnindex") for name in os.listdir(store.directory))


def test_the_last_stable_offset_never_lies_below_the_start(store: Store) -> None:
    write(store, 1, 0)
    store.log.append(batch(5))
    store.log.delete_records_before(4)
    assert store.log.last_stable_offset == store.log.log_start_offset == 4
    assert store.log.read(4, 1000, isolation=COMMITTED).records == b""
    end(store, 1, commit=True)
    assert store.log.last_stable_offset == 7


def test_transactions_over_several_segments_are_found_from_each(store: Store) -> None:
    for sequence in range(12):
        write(store, 1, sequence)
        write(store, 2, sequence)
        store.log.append(batch(1, size=60))
    end(store, 1, commit=False)
    end(store, 2, commit=False)
    assert store.log.segment_count > 5
    for offset in range(store.log.log_end_offset - 2):
        assert aborted(store.log, offset, 1) == ([(1, 0), (2, 1)] if offset else [(1, 0)])
    assert aborted(store.log, store.log.log_end_offset - 1) == [(2, 1)]
    assert committed_offsets(store.log, 300) == list(range(2, 36, 3))


# Who may write what.


def test_a_marker_of_an_older_epoch_is_refused(store: Store) -> None:
    end(store, 1, commit=True, epoch=3)
    assert refusal(store, end_marker(1, commit=True, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    end(store, 1, commit=True, epoch=4)


def test_a_marker_of_an_older_coordinator_is_refused_also_after_a_restart(store: Store) -> None:
    end(store, 1, commit=True, coordinator_epoch=5)
    stale = end_marker(1, commit=True, coordinator_epoch=4)
    assert refusal(store, stale) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    store.reopen()
    assert refusal(store, stale) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end(store, 1, commit=True, coordinator_epoch=5)


def test_a_marker_bumps_the_epoch_and_fences_the_producer(store: Store) -> None:
    store.log.append(sequenced(1, 0, 0, 3))
    end(store, 1, commit=False, epoch=1)
    assert refusal(store, sequenced(1, 0, 3), AppendOrigin.CLIENT) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(store, sequenced(1, 1, 3), AppendOrigin.CLIENT) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    store.log.append(sequenced(1, 1, 0))


def test_a_marker_of_an_unknown_producer_is_remembered(store: Store) -> None:
    end(store, 1, commit=True, epoch=2)
    assert refusal(store, sequenced(1, 1, 0), AppendOrigin.CLIENT) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(store, sequenced(1, 2, 17), AppendOrigin.CLIENT) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    store.log.append(sequenced(1, 2, 0))


def test_an_open_transaction_takes_only_transactional_batches(store: Store) -> None:
    write(store, 1, 0)
    assert refusal(store, sequenced(1, 0, 1), AppendOrigin.CLIENT) == ErrorCode.INVALID_TXN_STATE
    end(store, 1, commit=True)
    store.log.append(sequenced(1, 0, 1))


def test_a_producer_with_an_open_transaction_does_not_expire(store: Store) -> None:
    write(store, 1, 0)
    store.log.append(sequenced(2, 0, 0))
    store.clock.advance(10)
    assert store.log.expire_producers(5_000) == 1
    assert store.log.last_stable_offset == 0
    end(store, 1, commit=True)
    store.clock.advance(10)
    assert store.log.expire_producers(5_000) == 1
    assert len(store.log._producers.entries) == 0


# Verification: a client writes to a transaction only after the coordinator was asked.


def test_a_client_needs_a_guard_for_a_transaction(store: Store) -> None:
    assert refusal(store, transactional(1, 0), AppendOrigin.CLIENT) == ErrorCode.INVALID_TXN_STATE
    guard = store.log.begin_verification(1, 0, 0)
    assert store.log.begin_verification(1, 0, 0) is guard
    store.log.append(transactional(1, 0), guard=guard)
    assert store.log.last_stable_offset == 0
    again = store.log.begin_verification(1, 0, 1)
    store.log.append(transactional(1, 1), guard=again)
    assert store.log.append(transactional(1, 1), guard=again).duplicate
    with pytest.raises(KafkaError, match="has no transaction"):
        store.log.append(transactional(2, 0), guard=guard)


def test_a_guard_is_worthless_after_the_end_of_the_transaction(store: Store) -> None:
    guard = store.log.begin_verification(1, 0, 0)
    end(store, 1, commit=False)
    with pytest.raises(KafkaError) as caught:
        store.log.append(transactional(1, 0), guard=guard)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE
    ongoing_guard_store_offset = store.log.log_end_offset
    guard = store.log.begin_verification(1, 0, 0)
    store.log.append(transactional(1, 0), guard=guard)
    ongoing = store.log.begin_verification(1, 0, 1)
    end(store, 1, commit=True)
    with pytest.raises(KafkaError) as caught:
        store.log.append(transactional(1, 1), guard=ongoing)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE
    assert store.log.append(transactional(1, 0), guard=ongoing).base_offset == ongoing_guard_store_offset


def test_the_lowest_sequence_that_waits_is_written_first(store: Store) -> None:
    guard = store.log.begin_verification(1, 0, 5)
    assert store.log.begin_verification(1, 0, 2) is guard
    with pytest.raises(KafkaError) as caught:
        store.log.append(transactional(1, 5), guard=guard)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    store.log.append(transactional(1, 2), guard=guard)


def test_a_verification_that_nobody_finished_is_forgotten(store: Store) -> None:
    guard = store.log.begin_verification(1, 0, 0)
    store.clock.advance(5)
    store.log.expire_producers(5_000)
    assert store.log.begin_verification(1, 0, 0) is not guard


# Restarts and damage.


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_open_and_aborted_transactions_survive_a_restart(store: Store, stop: str) -> None:
    write(store, 1, 0)
    write(store, 2, 0)
    end(store, 2, commit=False)
    for sequence in range(1, 12):
        write(store, 1, sequence)
    log = store.reopen() if stop == "clean" else store.crash()
    assert (log.last_stable_offset, log.high_watermark) == (0, 14)
    end(store, 1, commit=False)
    assert log.last_stable_offset == 15
    assert aborted(log) == [(2, 1), (1, 0)] or aborted(log, 0, 1) == [(1, 0)]
    assert committed_offsets(log, 300) == []


@pytest.mark.parametrize("damage", ["half", "foreign", "gone-after-load"])
@pytest.mark.parametrize("with_snapshot", [True, False])
def test_a_damaged_transaction_index_is_rebuilt(tmp_path: Path, damage: str, with_snapshot: bool) -> None:
    store = Store(tmp_path, segment_bytes=600)
    for sequence in range(10):
        write(store, 1, sequence)
    end(store, 1, commit=False)
    expected = aborted(store.log)
    assert expected == [(1, 0)]
    store.reopen()
    (path,) = store.directory.glob("*.txnindex")
    if not with_snapshot:
        for snapshot in store.directory.glob("*.snapshot"):
            snapshot.unlink()
    if damage == "half":
        path.write_bytes(path.read_bytes()[:20])
    elif damage == "foreign":
        path.write_bytes(b"\x00" * 34)
    else:
        assert aborted(store.log) == expected
        path.unlink()
    assert aborted(store.log) == expected
    store.close()


def test_a_deleted_segment_takes_its_transaction_index_along(store: Store) -> None:
    for sequence in range(6):
        write(store, 1, sequence)
        end(store, 1, commit=False)
        store.log.append(batch(1, size=200))
    assert len(list(store.directory.glob("*.txnindex"))) > 1
    store.log.delete_records_before(-1)
    store.manager.housekeeper.run_due()
    bases = {f"{segment.base_offset:020d}" for segment in store.log.segments}
    assert {path.stem for path in store.directory.glob("*.txnindex")} <= bases


class NoRoomForTheIndex(FileSystem):
    """Cannot write transaction indexes while `full`."""

    full = False

    def open(self, path: str, create: bool = False) -> OpenFile:
        if self.full and path.endswith(".txnindex"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, create)


def test_an_abort_that_cannot_be_indexed_is_not_written(tmp_path: Path) -> None:
    files = NoRoomForTheIndex()
    with Store(tmp_path, files) as store:
        write(store, 1, 0)
        size = store.log.size
        files.full = True
        assert refusal(store, end_marker(1, commit=False)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert os.path.getsize(store.log.segments[-1].path) == size
        files.full = False
        end(store, 1, commit=False)
        assert aborted(store.log) == [(1, 0)]


def test_time_look_ups_end_at_the_last_stable_offset(store: Store) -> None:
    store.log.append(Batch([b"v"], timestamp=100).build())
    open_one = Batch([b"v"], timestamp=300, producer_id=1, producer_epoch=0, base_sequence=0, attributes=0x10)
    store.log.append(open_one.build(), origin=COORDINATOR)
    store.log.append(Batch([b"v"], timestamp=200).build())
    look_up = store.log.offset_for_timestamp
    assert (look_up(-1).offset, look_up(-1, COMMITTED).offset) == (3, 1)
    assert look_up(-2, COMMITTED).offset == look_up(-4, COMMITTED).offset == 0
    assert (look_up(150).offset, look_up(150, COMMITTED)) == (1, TimestampOffset(-1, -1, -1))
    assert (look_up(-3).offset, look_up(-3, COMMITTED).offset) == (1, -1)
    assert look_up(50, COMMITTED).offset == 0


class TransactionMachine(RuleBasedStateMachine):
    """Random transactions of four producers, rolls, restarts; the model is a list of (producer, offset) and their fate."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="barnabas-transactions-"))
        self.store = Store(self.path, segment_bytes=700, index_interval_bytes=100)
        self.sequences = dict.fromkeys(range(4), 0)
        self.open: dict[int, list[int]] = {}
        self.first: dict[int, int] = {}
        self.shown: set[int] = set()
        self.end = 0

    @rule(producer=st.integers(0, 3), count=st.integers(1, 3))
    def write(self, producer: int, count: int) -> None:
        assert write(self.store, producer, self.sequences[producer], count) == self.end
        self.sequences[producer] += count
        self.first.setdefault(producer, self.end)
        self.open.setdefault(producer, []).extend(range(self.end, self.end + count))
        self.end += count

    @rule(count=st.integers(1, 3), size=st.integers(1, 200))
    def write_plain(self, count: int, size: int) -> None:
        self.store.log.append(batch(count, size=size))
        self.shown.update(range(self.end, self.end + count))
        self.end += count

    @rule(producer=st.integers(0, 3), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        assert end(self.store, producer, commit) == self.end
        offsets = self.open.pop(producer, [])
        self.first.pop(producer, None)
        if commit:
            self.shown.update(offsets)
        self.end += 1

    @rule()
    def restart(self) -> None:
        self.store.reopen()

    @rule()
    def crash(self) -> None:
        self.store.crash()

    @rule(max_bytes=st.integers(1, 1500))
    def consume(self, max_bytes: int) -> None:
        stable = min(self.first.values(), default=self.end)
        expected = [offset for offset in sorted(self.shown) if offset < stable]
        assert committed_offsets(self.store.log, max_bytes) == expected

    @invariant()
    def stable_offset(self) -> None:
        assert self.store.log.last_stable_offset == min(self.first.values(), default=self.end)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.path)


TransactionMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestTransactions = TransactionMachine.TestCase


def test_the_answer_names_each_transaction_once(store: Store) -> None:
    write(store, 1, 0)
    end(store, 1, commit=False)
    result = store.log.read(0, 1 << 20, isolation=COMMITTED)
    assert result.aborted == (AbortedTransaction(1, 0),)
