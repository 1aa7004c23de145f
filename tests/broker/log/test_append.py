"""Appending: offsets, what is refused and with which code, timestamps, rolls, and writes that fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.files import FileSystem, OpenFile
from barnabas.broker.log.results import AppendOrigin
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import Buffer
from tests.broker.log.stores import Store, headers_of, read_all
from tests.records.batches import NOW_MS, Batch, batch, end_marker


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as made:
        yield made


def refusal(store: Store, records: memoryview | bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> ErrorCode:
    end = store.log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        store.log.append(memoryview(records), origin=origin)
    assert store.log.log_end_offset == end, "a refused batch must leave no trace"
    return caught.value.code


def test_offsets_are_given_in_order_and_the_batch_is_kept_as_it_came(store: Store) -> None:
    first = store.log.append(batch(3), leader_epoch=0)
    second = store.log.append(batch(2), leader_epoch=0)
    assert (first.base_offset, first.last_offset, first.append_time_ms, first.log_start_offset) == (0, 2, -1, 0)
    assert (second.base_offset, second.last_offset, second.duplicate) == (3, 4, False)
    assert store.log.log_end_offset == store.log.high_watermark == store.log.last_stable_offset == 5
    assert [header.base_offset for header in read_all(store.log)] == [0, 3]
    assert {header.partition_leader_epoch for header in read_all(store.log)} == {0}


REFUSED: dict[str, tuple[bytes | memoryview, ErrorCode]] = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "less than a header": (bytes(60), ErrorCode.INVALID_RECORD),
    "zeros": (bytes(100), ErrorCode.INVALID_RECORD),
    "cut at the end": (bytes(batch(1))[:-1], ErrorCode.INVALID_RECORD),
    "two batches": (bytes(batch(1)) * 2, ErrorCode.INVALID_RECORD),
    "a byte too much": (bytes(batch(1)) + b"x", ErrorCode.INVALID_RECORD),
    "magic 0": (Batch(changes={"magic": 0}).build(), ErrorCode.INVALID_RECORD),
    "magic 1": (Batch(changes={"magic": 1}).build(), ErrorCode.INVALID_RECORD),
    "magic 3": (Batch(changes={"magic": 3}).build(), ErrorCode.INVALID_RECORD),
    "length too small": (Batch(changes={"batch_length": 48}).build(), ErrorCode.CORRUPT_MESSAGE),
    "length negative": (Batch(changes={"batch_length": -1}).build(), ErrorCode.CORRUPT_MESSAGE),
    "wrong checksum": (Batch(changes={"crc": 12345}).build(), ErrorCode.CORRUPT_MESSAGE),
    "no records": (Batch([], timestamp=NOW_MS).build(), ErrorCode.INVALID_RECORD),
    "count too large": (Batch(changes={"record_count": 2}).build(), ErrorCode.INVALID_RECORD),
    "count negative": (Batch(changes={"record_count": -1, "last_offset_delta": -2}).build(), ErrorCode.INVALID_RECORD),
    "delta too large": (Batch(changes={"last_offset_delta": 2**31 - 1}).build(), ErrorCode.INVALID_RECORD),
    "base offset": (Batch(base_offset=1).build(), ErrorCode.INVALID_RECORD),
    "codec 5": (Batch(attributes=5).build(), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "control": (Batch(attributes=0x20).build(), ErrorCode.INVALID_RECORD),
    "control, wrong checksum": (Batch(attributes=0x20, changes={"crc": 1}).build(), ErrorCode.INVALID_RECORD),
    "transactional": (
        Batch(attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0).build(),
        ErrorCode.INVALID_TXN_STATE,
    ),
    "append time set by the producer": (Batch(attributes=0x08).build(), ErrorCode.INVALID_TIMESTAMP),
    "producer without sequence": (Batch(producer_id=1, producer_epoch=0).build(), ErrorCode.INVALID_RECORD),
    "too large": (batch(1, size=1_048_588), ErrorCode.MESSAGE_TOO_LARGE),
    "from the far future": (batch(timestamp=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_batch_is_refused_with_its_code(store: Store, case: str) -> None:
    records, code = REFUSED[case]
    assert refusal(store, records) == code
    store.log.append(batch(1))
    assert len(read_all(store.log)) == 1


def test_every_flipped_byte_is_noticed(store: Store) -> None:
    """The base offset and the leader epoch are the broker's; every other byte is covered by a check or the checksum."""
    good = bytes(batch(2))
    ignored = range(12, 16)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x5A
        if position not in ignored:
            refusal(store, bytes(bad))


def test_the_coordinator_may_write_control_batches(store: Store) -> None:
    assert store.log.append(end_marker(1, commit=True), origin=AppendOrigin.COORDINATOR).base_offset == 0
    nonsense = Batch(attributes=0x30, producer_id=1, producer_epoch=0).build()
    assert refusal(store, nonsense, AppendOrigin.COORDINATOR) == ErrorCode.INVALID_RECORD


def test_the_limits_of_timestamps_are_inclusive(store: Store) -> None:
    store.log.update_config(LogConfig(timestamp_before_max_ms=1000, timestamp_after_max_ms=500))
    store.log.append(batch(timestamp=NOW_MS - 1000))
    store.log.append(batch(timestamp=NOW_MS + 500))
    store.log.append(batch(timestamp=-1))
    assert refusal(store, batch(timestamp=NOW_MS - 1001)) == ErrorCode.INVALID_TIMESTAMP
    assert refusal(store, batch(timestamp=NOW_MS + 501)) == ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_replaces_the_timestamp_and_keeps_the_checksum_right(tmp_path: Path) -> None:
    with Store(tmp_path, timestamp_type="LogAppendTime") as store:
        result = store.log.append(batch(3, timestamp=5))
        assert result.append_time_ms == NOW_MS
        (header,) = headers_of(store.log.read(0, 1 << 20))  # checks the checksum
        assert header.log_append_time
        assert (header.base_timestamp, header.max_timestamp, header.record_count) == (5, NOW_MS, 3)


def test_a_new_limit_holds_from_the_next_batch_on(store: Store) -> None:
    store.log.update_config(LogConfig(max_message_bytes=100))
    assert refusal(store, batch(1, size=200)) == ErrorCode.MESSAGE_TOO_LARGE
    store.log.update_config(LogConfig(max_message_bytes=1000))
    store.log.append(batch(1, size=200))


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path, segment_bytes=200) as store:
        assert refusal(store, batch(1, size=200)) == ErrorCode.RECORD_LIST_TOO_LARGE


# Rolls.


def test_a_segment_ends_at_its_size(tmp_path: Path) -> None:
    with Store(tmp_path, segment_bytes=1000) as store:
        for _ in range(20):
            store.log.append(batch(1, size=200))
        assert [segment.base_offset for segment in store.log.segments] == [0, 3, 6, 9, 12, 15, 18]
        assert all(segment.size <= 1000 for segment in store.log.segments)
        assert len(read_all(store.log)) == 20


def test_a_segment_ends_by_the_time_of_its_records(tmp_path: Path) -> None:
    with Store(tmp_path, segment_ms=1000) as store:
        for timestamp in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 2001, NOW_MS + 2002):
            store.log.append(batch(timestamp=timestamp))
        assert [segment.base_offset for segment in store.log.segments] == [0, 2, 4]


def test_a_segment_ends_when_its_index_is_full(tmp_path: Path) -> None:
    with Store(tmp_path, segment_index_bytes=120, index_interval_bytes=1) as store:
        for _ in range(40):
            store.log.append(batch(1))
        assert store.log.segment_count > 3
        for segment in store.log.segments:
            assert os.path.getsize(segment.offset_index.path) <= 120
        assert len(read_all(store.log)) == 40


def test_a_segment_ends_before_its_relative_offsets_overflow(store: Store) -> None:
    store.log.append(batch(1))
    end, segment, size = store.log._tail
    store.log._tail = (2**31 - 3, segment, size)  # as after two thousand million records
    store.log.append(batch(3))
    assert store.log.segment_count == 1
    store.log.append(batch(3))
    assert [each.base_offset for each in store.log.segments] == [0, 2**31]
    assert end == 1


# Writes that fail.


class FailingFiles(FileSystem):
    """Writes as many bytes as are left, then short, then fails."""

    def __init__(self) -> None:
        super().__init__()
        self.room = 1 << 60
        self.fail_truncate = False
        self.fail_index = False

    def open(self, path: str, create: bool = False) -> OpenFile:
        if self.fail_index and path.endswith("index"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, create)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(bytes(part) for part in buffers)
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = super().pwritev(fd, [data[: self.room]], position)
        self.room -= written
        return written

    def truncate(self, fd: int, size: int) -> None:
        if self.fail_truncate:
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(fd, size)


@pytest.mark.parametrize("room", [0, 1, 16, 61, 80])
def test_a_failed_or_short_write_leaves_a_valid_log(tmp_path: Path, room: int) -> None:
    files = FailingFiles()
    with Store(tmp_path, files) as store:
        store.log.append(batch(2))
        size = store.log.size
        files.room = room
        assert refusal(store, batch(1)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert os.path.getsize(store.log.segments[-1].path) == size
        files.room = 1 << 60
        assert store.log.append(batch(1)).base_offset == 2
        assert [header.base_offset for header in read_all(store.log)] == [0, 2]


def test_no_room_for_a_new_segment_is_a_storage_error_and_heals(tmp_path: Path) -> None:
    files = FailingFiles()
    with Store(tmp_path, files, segment_bytes=200) as store:
        store.log.append(batch(1, size=100))
        files.room = 0
        assert refusal(store, batch(1, size=100)) == ErrorCode.KAFKA_STORAGE_ERROR
        files.room = 1 << 60
        store.log.append(batch(1, size=100))
        assert [header.base_offset for header in read_all(store.log)] == [0, 1]


def test_an_index_that_cannot_be_written_does_not_fail_the_append(tmp_path: Path) -> None:
    files = FailingFiles()
    with Store(tmp_path, files, index_interval_bytes=1) as store:
        for number in range(2000):
            files.fail_index = 400 < number < 1600
            store.log.append(batch(1))
        assert len(read_all(store.log, 1 << 16)) == 2000
        assert len(read_all(store.reopen(), 1 << 16)) == 2000


def test_when_not_even_cutting_off_works_the_directory_is_offline(tmp_path: Path) -> None:
    files = FailingFiles()
    store = Store(tmp_path, files)
    store.log.append(batch(1))
    files.room, files.fail_truncate = 0, True
    assert refusal(store, batch(1)) == ErrorCode.KAFKA_STORAGE_ERROR
    files.room, files.fail_truncate = 1 << 60, False
    assert refusal(store, batch(1)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert store.manager.describe_dirs()[0].offline
    store.close()
