"""Batches of one partition: aborted transactions, damaged batches, limits, reading from the middle."""

from __future__ import annotations

import pytest

from barnabas.consumer.assignment import PartitionState
from barnabas.consumer.fetched_partition import Decoding, FetchedPartition
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.records.batch import parse_header
from barnabas.records.kernel.runs import RunColumns
from tests.records.batches import Batch, end_marker, transactional

UNCOMMITTED = Decoding(True, False, 1_000_000)
COMMITTED = Decoding(True, True, 1_000_000)


def log(*batches: memoryview) -> memoryview:
    """The batches at ascending offsets."""
    data = bytearray()
    offset = 0
    for batch in batches:
        header = parse_header(batch)
        data += offset.to_bytes(8, "big") + batch[8:]
        offset += header.last_offset_delta + 1
    return memoryview(bytes(data))


def fetched(data: memoryview, offset: int = 0, decoding: Decoding = UNCOMMITTED, aborted=()) -> FetchedPartition:  # type: ignore[no-untyped-def]
    rows = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted]
    return FetchedPartition(PartitionState(("t", 0), None), offset, data, rows, decoding)


def offsets(part: FetchedPartition) -> list[int]:
    found = []
    while records := part.take_records(2):
        found += [record.offset for record in records]
    return found


def run_offsets(part: FetchedPartition) -> list[int]:
    found: list[int] = []
    while run := part.take_run(2):
        found += RunColumns([run]).offsets
    return found


TRANSACTIONS = log(
    transactional(1, 0, 2),  # 0, 1: aborted
    transactional(2, 0, 2),  # 2, 3: committed
    Batch([b"plain"]).build(),  # 4
    end_marker(1, commit=False),  # 5
    transactional(1, 2, 2),  # 6, 7: of the next transaction, committed
    end_marker(2, commit=True),  # 8
    end_marker(1, commit=True),  # 9
)


class TestTransactions:
    def test_read_committed_leaves_out_the_aborted(self) -> None:
        part = fetched(TRANSACTIONS, 0, COMMITTED, [(1, 0)])
        assert offsets(part) == [2, 3, 4, 6, 7]
        assert part.position == part.end_offset == 10

    def test_read_uncommitted_shows_all_but_markers(self) -> None:
        assert offsets(fetched(TRANSACTIONS)) == [0, 1, 2, 3, 4, 6, 7]

    def test_a_transaction_that_began_before_the_fetch(self) -> None:
        data = log(transactional(1, 0, 2), end_marker(1, commit=False), transactional(1, 2, 1))
        assert offsets(fetched(data, 0, COMMITTED, [(1, -5)])) == [3]

    def test_a_second_aborted_transaction_of_the_same_producer(self) -> None:
        data = log(
            transactional(1, 0), end_marker(1, False), transactional(1, 1), end_marker(1, False), transactional(1, 2)
        )
        assert offsets(fetched(data, 0, COMMITTED, [(1, 2), (1, 0)])) == [4]

    def test_only_markers_still_move_the_position(self) -> None:
        part = fetched(log(end_marker(1, True)), 0, COMMITTED)
        assert part.take_run(10) is None
        assert part.position == 1

    @pytest.mark.parametrize("codec", [0, 4], ids=["plain", "zstd"])
    def test_runs_leave_out_the_same_as_records(self, codec: int) -> None:
        data = log(
            transactional(1, 0, 2, codec=codec), transactional(2, 0, 2), Batch([b"plain"], codec=codec).build(),
            end_marker(1, commit=False), transactional(1, 2, 2), end_marker(2, True), end_marker(1, True),
        )  # fmt: skip
        part = fetched(data, 0, COMMITTED, [(1, 0)])
        assert run_offsets(part) == [2, 3, 4, 6, 7]
        assert part.position == part.end_offset == 10
        assert run_offsets(fetched(data)) == [0, 1, 2, 3, 4, 6, 7]


class TestReading:
    def test_it_begins_inside_a_batch(self) -> None:
        data = log(Batch([b"a", b"b", b"c"]).build(), Batch([b"d"]).build())
        assert offsets(fetched(data, 2)) == [2, 3]
        assert run_offsets(fetched(data, 2)) == [2, 3]

    def test_a_run_goes_on_where_records_ended(self) -> None:
        data = log(Batch([b"a", b"b", b"c"]).build(), Batch([b"d"], codec=4).build(), Batch([b"e"]).build())
        part = fetched(data)
        assert [record.value for record in part.take_records(1)] == [b"a"]
        assert run_offsets(part) == [1, 2, 3, 4]
        assert part.position == 5

    def test_a_run_ends_behind_the_batch_with_which_it_is_long_enough(self) -> None:
        part = fetched(log(*[Batch([b"a", b"b"]).build()] * 3))
        run = part.take_run(3)
        assert run is not None
        assert (run.sizes.rows, part.position) == (4, 4)

    def test_a_batch_that_is_cut_off_is_ignored(self) -> None:
        data = log(Batch([b"a"]).build(), Batch([b"b"]).build())
        part = fetched(data[:-1])
        assert offsets(part) == [0]
        assert part.end_offset == 1

    def test_not_even_one_whole_batch_is_an_error(self) -> None:
        with pytest.raises(KafkaError, match=r"max\.partition\.fetch\.bytes"):
            fetched(log(Batch([b"a"]).build())[:-1])


class TestDamage:
    def test_a_wrong_checksum_comes_behind_the_good_batches_and_stays(self) -> None:
        data = log(Batch([b"a"]).build(), Batch([b"b"], changes={"crc": 7}).build())
        part = fetched(data)
        assert len(part.take_records(10)) == 1
        for _ in range(2):
            with pytest.raises(KafkaError, match=r"offset 1 of t-0.*checksum") as caught:
                part.take_records(10)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert part.position == 1

    @pytest.mark.parametrize("columns", [False, True])
    @pytest.mark.parametrize("bit", [0x01, 0x10, 0x20])
    def test_a_flipped_bit_does_not_turn_a_batch_into_one_that_is_left_out(self, bit: int, columns: bool) -> None:
        """As a control batch, or one of an aborted transaction, it would be passed over without a word."""
        data = bytearray(log(Batch([b"a"]).build()))
        data[22] ^= bit
        part = fetched(bytes(data))
        with pytest.raises(KafkaError, match=r"offset 0 of t-0.*checksum"):
            part.take_run(10) if columns else part.take_records(10)

    @pytest.mark.parametrize("columns", [False, True])
    @pytest.mark.parametrize("wrong", [100, 1, 0])
    def test_a_base_offset_that_its_neighbours_contradict_ends_the_fetch_before_it(
        self, wrong: int, columns: bool
    ) -> None:
        """No checksum covers it. The next fetch begins there, and the broker says what it thinks of it."""
        data = bytearray(log(*[Batch([b"a", b"b"]).build()] * 4))
        size = len(data) // 4
        data[2 * size : 2 * size + 8] = wrong.to_bytes(8)
        part = fetched(memoryview(bytes(data)))
        assert (run_offsets if columns else offsets)(part) == [0, 1, 2, 3]
        assert part.end_offset == 4

    def test_gaps_that_compaction_left_end_nothing(self) -> None:
        data = bytearray(log(*[Batch([b"a"]).build()] * 3))
        size = len(data) // 3
        for number, offset in enumerate((5, 9, 20)):
            data[number * size : number * size + 8] = offset.to_bytes(8)
        part = fetched(memoryview(bytes(data)))
        assert (offsets(part), part.end_offset) == ([5, 9, 20], 21)

    def test_a_wrong_checksum_ends_a_run_and_comes_with_the_next_call(self) -> None:
        part = fetched(log(Batch([b"a"]).build(), Batch([b"b"], changes={"crc": 7}).build()))
        run = part.take_run(10)
        assert run is not None
        assert run.sizes.rows == 1
        for _ in range(2):
            with pytest.raises(KafkaError, match=r"offset 1 of t-0.*checksum"):
                part.take_run(10)
        assert part.position == 1

    def test_checksums_may_be_ignored(self) -> None:
        data = log(Batch([b"b"], changes={"crc": 7}).build())
        assert offsets(fetched(data, decoding=Decoding(False, False, 1000))) == [0]

    def test_a_bomb_is_refused(self) -> None:
        """PP-39: the decompressed size is bounded."""
        data = log(Batch([bytes(2_000_000)], codec=4).build())
        with pytest.raises(KafkaError, match="offset 0"):
            fetched(data).take_records(1)

    def test_a_count_that_is_a_lie_is_refused(self) -> None:
        data = log(Batch([b"a"], changes={"record_count": 2_000_000_000}).build())
        with pytest.raises(KafkaError, match="record"):
            fetched(data).take_run(10)

    def test_a_header_that_cannot_be_is_refused(self) -> None:
        data = bytearray(log(Batch([b"a"]).build()))
        data[16] = 9
        with pytest.raises(KafkaError, match="magic"):
            fetched(memoryview(bytes(data)))


class TestBatchesBelowThePosition:
    """A broker that answers with batches from before the offset that was asked for: what was read is not read again."""

    DATA = log(transactional(1, 0, 2), Batch([b"a", b"b"]).build())  # 0 to 3

    @pytest.mark.parametrize("read", [offsets, run_offsets])
    def test_they_bring_nothing_and_lead_nowhere(self, read) -> None:  # type: ignore[no-untyped-def]
        part = fetched(self.DATA, 8)
        assert read(part) == []
        assert part.position == part.end_offset == 8
