"""The walk over a segment file: against a plain reading of the format, for whole, cut and damaged files, in chunks of any size."""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from barnabas.broker.log.producer_state import ProducerStates
from barnabas.records.batch import HEADER, BatchHeader
from barnabas.records.control import EndMarker
from tests.records.batches import NOW_MS, Batch, record
from tests.records.kernel.forms import Kernel

BASE = 1000
NOWHERE = 2**63 - 1
TRANSACTIONAL, CONTROL = 0x10, 0x20
COMMIT_BY_COORDINATOR_9 = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 9)


class Found(NamedTuple):
    """What a walk says."""

    valid_size: int
    next_offset: int
    max_time: tuple[int, int]
    since_index: int
    offset_entries: bytes
    time_entries: bytes
    epochs: list[tuple[int, int]]


def marker(producer_id: int, epoch: int) -> bytes:
    """A control batch: commit, written by a coordinator with epoch 9."""
    key, value = COMMIT_BY_COORDINATOR_9
    made = bytearray(
        Batch(
            [b""], producer_id=producer_id, producer_epoch=epoch, attributes=TRANSACTIONAL | CONTROL, timestamp=NOW_MS
        ).build()
    )
    return _sealed(made[:61] + record(0, value, 0, key), 0, 0)


def _sealed(batch: bytes | bytearray, base_offset: int, leader_epoch: int) -> bytes:
    """Set what the broker sets, the length and the checksum."""
    head = struct.pack(">qii", base_offset, len(batch) - 12, leader_epoch)
    return head + batch[16:17] + struct.pack(">I", google_crc32c.value(bytes(batch[21:]))) + bytes(batch[21:])


class Step(NamedTuple):
    """A batch of a generated segment."""

    count: int
    size: int
    time: int
    producer: int
    epoch: int
    transactional: bool
    control: bool
    leader_epoch: int
    gap: int


steps_of = st.lists(
    st.builds(
        Step,
        st.integers(1, 3),
        st.integers(0, 400),
        st.integers(-1, 60),
        st.sampled_from([-1, 7, 8, 2**40]),
        st.integers(0, 2),
        st.booleans(),
        st.sampled_from([False, False, False, True]),
        st.integers(-1, 3),
        st.sampled_from([0, 0, 0, 5]),
    ),
    max_size=40,
)


def segment(steps: list[Step]) -> tuple[bytes, list[BatchHeader]]:
    data, headers, offset = b"", [], BASE
    for step in steps:
        offset += step.gap
        if step.control and step.producer >= 0:
            made = marker(step.producer, step.epoch)
        else:
            attributes = TRANSACTIONAL if step.transactional and step.producer >= 0 else 0
            values = [b"v" * step.size] * step.count
            made = Batch(
                values, timestamp=step.time, producer_id=step.producer, producer_epoch=step.epoch, attributes=attributes,
                base_sequence=len(headers) if step.producer >= 0 else -1,
            ).build()  # fmt: skip
        sealed = _sealed(bytes(made), offset, step.leader_epoch)
        headers.append(BatchHeader._make(HEADER.unpack_from(sealed)))
        data += sealed
        offset = headers[-1].next_offset
    return data, headers


def read_plainly(data: bytes, check_from: int, interval: int) -> Found:
    """The oracle: one batch after the other, as the format says."""
    at, expected, since, best, last_entry, epoch = 0, BASE, 0, (-1, BASE), -1, -1
    offsets, times, epochs = b"", b"", []
    while len(data) - at >= 61:
        header = BatchHeader._make(HEADER.unpack_from(data, at))
        size, last = header.batch_length + 12, header.base_offset + header.last_offset_delta
        if header.magic != 2 or size < 61 or at + size > len(data):
            break
        if header.last_offset_delta < 0 or header.base_offset < expected or last - BASE > 2**31 - 1:
            break
        if last >= check_from and google_crc32c.value(data[at + 21 : at + size]) != header.crc:
            break
        if header.max_timestamp > best[0]:
            best = (header.max_timestamp, last)
        if since > interval:
            offsets += struct.pack(">ii", last - BASE, at)
            since = 0
            if best[0] > last_entry:
                last_entry = best[0]
                times += struct.pack(">qi", best[0], best[1] - BASE)
        since += size
        if header.partition_leader_epoch > epoch:
            epoch = header.partition_leader_epoch
            epochs.append((epoch, header.base_offset))
        at, expected = at + size, last + 1
    return Found(at, expected, best, since, offsets, times, epochs)


class Walk:
    """A whole scan in chunks, and what it handed over."""

    def __init__(
        self, kernel: Kernel, data: bytes, check_from: int, interval: int, chunk: int = 1 << 20, patient: bool = True
    ) -> None:
        self.scan = scan = kernel.scan.BatchScan(BASE, len(data), check_from, interval)
        offsets, times, epochs = b"", b"", b""
        self.rows: list[tuple[int, ...]] = []
        self.bytes_read = 0
        for _ in range(100_000):
            if not scan.wants_more:
                break
            fed = data[scan.read_position : scan.read_position + chunk]
            self.bytes_read += len(fed)
            scan.feed(fed)
            if scan.wants_more and not scan.crowded and patient:
                continue
            offsets += scan.take_offset_entries()
            times += scan.take_time_entries()
            epochs += scan.take_epochs()
            self.rows += scan.take_producer_rows()
        assert not scan.wants_more, "the walk does not end"
        rows = [(epoch, offset) for epoch, offset in kernel.scan.EPOCH_ROW.iter_unpack(epochs)]
        self.found = Found(
            scan.valid_size, scan.next_offset, scan.max_time, scan.bytes_since_index, offsets, times, rows
        )


def states(headers: list[BatchHeader]) -> str:
    producers = ProducerStates("t-0")
    for header in headers:
        if header.producer_id >= 0:
            marker = EndMarker(True, 9) if header.control else None
            producers.update(header, header.base_offset, 1, marker)
    return repr((sorted(producers.entries.items()), producers.first_unstable))


@settings(deadline=None)
@given(
    steps=steps_of, interval=st.sampled_from([0, 100, 1000]), chunk=st.integers(200, 2000), checked=st.floats(0, 1),
    data=st.data(),
)  # fmt: skip
def test_a_walk_finds_what_a_plain_reading_finds(
    kernel: Kernel, steps: list[Step], interval: int, chunk: int, checked: float, data: st.DataObject
) -> None:
    content, _ = segment(steps)
    check_from = BASE + int(checked * 60)
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(0, 2)) if content else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))]
    walk = Walk(kernel, bytes(damaged), check_from, interval, chunk)
    assert walk.found == read_plainly(bytes(damaged), check_from, interval)
    assert (walk.scan.problem == kernel.scan.FINE) == (walk.scan.valid_size == len(damaged))


@settings(deadline=None)
@given(steps=steps_of, chunk=st.integers(200, 20_000), checked=st.booleans(), patient=st.booleans())
def test_replaying_the_rows_gives_the_state_of_replaying_all(
    kernel: Kernel, steps: list[Step], chunk: int, checked: bool, patient: bool
) -> None:
    content, headers = segment(steps)
    walk = Walk(kernel, content, 0 if checked else NOWHERE, 100, chunk, patient)
    rows = [BatchHeader._make(row[:13]) for row in walk.rows]
    assert states(rows) == states(headers)
    assert [row.base_offset for row in rows] == sorted({row.base_offset for row in rows})
    assert [row for row in rows if row.control] == [header for header in headers if header.control]
    assert all(content[row[13] : row[13] + 61] == HEADER.pack(*row[:13]) for row in walk.rows)


@settings(deadline=None)
@given(steps=steps_of)
def test_the_first_batch_of_each_transaction_is_among_the_rows(kernel: Kernel, steps: list[Step]) -> None:
    content, headers = segment(steps)
    rows = {row[0] for row in Walk(kernel, content, 0, 100).rows}
    first: dict[int, int] = {}
    for header in headers:
        if header.control:
            first.pop(header.producer_id, None)
        elif header.transactional and header.producer_id not in first:
            first[header.producer_id] = header.base_offset
            assert header.base_offset in rows


def test_of_a_producer_with_many_batches_only_the_last_ones_are_handed_over(kernel: Kernel) -> None:
    content, _ = segment([Step(1, 10, 5, 7, 0, False, False, 0, 0)] * 1000)
    assert [row[0] - BASE for row in Walk(kernel, content, 0, 4096).rows] == list(range(992, 1000))


def test_more_results_than_there_is_room_for_are_handed_over_in_parts(kernel: Kernel) -> None:
    steps = [Step(1, 0, number, 10 + number, 0, False, False, number, 0) for number in range(10_000)]
    content, headers = segment(steps)
    walk = Walk(kernel, content, 0, 0)
    assert walk.found == read_plainly(content, 0, 0)
    assert len(walk.rows) == len(walk.found.epochs) == 10_000
    assert states([BatchHeader._make(row[:13]) for row in walk.rows]) == states(headers)


def test_records_before_the_first_checked_offset_are_not_read(kernel: Kernel) -> None:
    content, _ = segment([Step(1, 10_000, 5, 7, 0, False, False, 0, 0)] * 50)
    walk = Walk(kernel, content, NOWHERE, 4096, 500)
    assert walk.scan.valid_size == len(content)
    assert walk.bytes_read <= 50 * 500
    assert Walk(kernel, content, 0, 4096, 500).found == walk.found


def test_a_batch_much_larger_than_a_chunk_is_checked_in_parts(kernel: Kernel) -> None:
    content, _ = segment([Step(1, 100_000, 5, 7, 0, False, False, 0, 0)] * 2)
    assert Walk(kernel, content, 0, 4096, 999).scan.valid_size == len(content)
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    walk = Walk(kernel, damaged, 0, 4096, 999)
    assert (walk.scan.valid_size, walk.scan.problem) == (len(content) // 2, kernel.scan.WRONG_CHECKSUM)


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        (b"\0" * 60, "CUT_OFF"),
        (b"\0" * 61, "NOT_A_BATCH"),
        (HEADER.pack(BASE + 1, 2**31 - 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1), "CUT_OFF"),
        (HEADER.pack(BASE + 1, -(2**31), 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1), "NOT_A_BATCH"),
        (HEADER.pack(BASE + 1, 48, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1), "NOT_A_BATCH"),
        (HEADER.pack(BASE, 49, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1), "WRONG_OFFSET"),
        (HEADER.pack(BASE + 1, 49, 0, 2, 0, 0, -1, 0, 0, 0, 0, 0, 1), "WRONG_OFFSET"),
        (HEADER.pack(BASE + 2**31, 49, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1), "WRONG_OFFSET"),
        (HEADER.pack(BASE + 2, 49, 0, 2, 0, 0, 2**31 - 1, 0, 0, 0, 0, 0, 1), "WRONG_OFFSET"),
        (HEADER.pack(2**63 - 1, 49, 0, 2, 0, 0, 2**31 - 1, 0, 0, 0, 0, 0, 1), "WRONG_OFFSET"),
        (HEADER.pack(BASE + 1, 49, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 1), "WRONG_CHECKSUM"),
    ],
)
def test_why_a_walk_ended_is_named(kernel: Kernel, rest: bytes, problem: str) -> None:
    content, _ = segment([Step(1, 10, 5, 7, 0, False, False, 0, 0)])
    walk = Walk(kernel, content + rest, 0, 4096)
    assert (walk.scan.valid_size, walk.scan.problem) == (len(content), getattr(kernel.scan, problem))
    assert kernel.scan.PROBLEMS[walk.scan.problem]


def test_a_file_that_became_shorter_ends_the_walk(kernel: Kernel) -> None:
    scan = kernel.scan.BatchScan(BASE, 1000, 0, 4096)
    scan.feed(b"")
    assert (scan.wants_more, scan.problem) == (False, kernel.scan.CUT_OFF)


def test_batches_of_kafka_python_are_walked_over(kernel: Kernel) -> None:
    content, offset = b"", BASE
    for number in range(40):
        builder = DefaultRecordBatchBuilder(
            magic=2, compression_type=number % 2, is_transactional=0, producer_id=7, producer_epoch=3,
            base_sequence=offset, batch_size=1 << 20,
        )  # fmt: skip
        for place in range(number + 1):
            builder.append(place, timestamp=NOW_MS + number, key=b"k", value=b"v" * number, headers=[])
        made = bytes(builder.build())
        content += struct.pack(">q", offset) + made[8:]
        offset += number + 1
    walk = Walk(kernel, content, 0, 500)
    assert (walk.scan.valid_size, walk.scan.next_offset) == (len(content), offset)
    assert walk.scan.max_time == (NOW_MS + 39, offset - 1)


def test_a_walk_goes_on_where_it_is_put(kernel: Kernel) -> None:
    """Behind a batch that is none; and the one that led there is forgotten."""
    content, headers = segment([Step(1, 40, number, -1, 0, False, False, 0, 0) for number in range(6)])
    first, second, third = (header.size for header in headers[:3])
    damaged = bytearray(content)
    damaged[first + second + 16] = 0
    scan = kernel.scan.BatchScan(BASE, len(damaged), NOWHERE, 0)
    scan.feed(bytes(damaged))
    assert (scan.problem, scan.valid_size, scan.next_offset) == (kernel.scan.NOT_A_BATCH, first + second, BASE + 2)
    assert (scan.last_batch, scan.holes) == ((first, BASE + 1), 0)
    scan.forget_last()
    behind = first + second + third
    scan.stand_at(behind, BASE + 3, kernel.scan.FINE)
    assert (scan.wants_more, scan.read_position, scan.last_batch, scan.holes) == (True, behind, None, 1)
    scan.feed(bytes(damaged[behind:]))
    assert (scan.problem, scan.valid_size, scan.next_offset) == (kernel.scan.FINE, len(damaged), BASE + 6)
    entries = list(struct.iter_unpack(">ii", scan.take_offset_entries()))
    assert (1, first) not in entries, "the one that was forgotten"
    assert [offset for offset, _ in entries][-2:] == [4, 5]


@pytest.mark.parametrize("check_from", [BASE, NOWHERE])
def test_what_is_forgotten_says_nothing_of_its_producer(kernel: Kernel, check_from: int) -> None:
    """The transaction that it began is begun by the next one of its producer."""
    steps = [Step(1, 40, number, 7, 0, True, False, 0, 0) for number in range(20)]
    content, headers = segment(steps)
    scan = kernel.scan.BatchScan(BASE, len(content), check_from, 0)
    scan.feed(content[: headers[0].size])
    scan.forget_last()
    scan.stand_at(headers[0].size, BASE + 1, kernel.scan.FINE)
    scan.feed(content[headers[0].size :])
    offsets = [row[0] - BASE for row in scan.take_producer_rows()]
    assert offsets[0] == 1, "pinned, as the first of the transaction"
    assert offsets[-1] == 19
    assert 0 not in offsets


def test_a_batch_that_holds_the_offset_from_which_on_is_checked_is_checked(kernel: Kernel) -> None:
    content, headers = segment([Step(4, 40, number, -1, 0, False, False, 0, 0) for number in range(3)])
    damaged = bytearray(content)
    damaged[headers[0].size + 61] ^= 1
    for check_from, valid in ((BASE + 6, headers[0].size), (BASE + 8, len(content))):
        scan = kernel.scan.BatchScan(BASE, len(damaged), check_from, 0)
        while scan.wants_more:
            scan.feed(bytes(damaged[scan.read_position :]))
        assert scan.valid_size == valid
