"""Reading: from offsets to regions of files."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.index import WINDOWS
from barnabas.errors import ErrorCode, KafkaError
from tests.broker.log.stores import Store, headers_of, read_all, region_bytes
from tests.records.batches import batch


class CountingFiles(FileSystem):
    """Counts what look-ups read."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.bytes = 0

    def pread(self, fd: int, length: int, position: int) -> bytes:
        data = super().pread(fd, length, position)
        self.calls += 1
        self.bytes += len(data)
        return data


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path, segment_bytes=50_000, index_interval_bytes=1000) as made:
        yield made


def error_of(store: Store, offset: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        store.log.read(offset, 1000)
    return caught.value.code


def test_an_empty_log_has_nothing_at_its_end(store: Store) -> None:
    result = store.log.read(0, 1000)
    assert (result.records, result.high_watermark, result.last_stable_offset, result.log_start_offset) == (b"", 0, 0, 0)
    assert result.aborted == ()


def test_offsets_outside_the_log_are_out_of_range(store: Store) -> None:
    store.log.append(batch(3))
    assert error_of(store, -1) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert error_of(store, 4) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert store.log.read(3, 1000).records == b""


def test_an_offset_inside_a_batch_gives_the_whole_batch(store: Store) -> None:
    for _ in range(50):
        store.log.append(batch(7, size=50))
    for offset in range(350):
        first = headers_of(store.log.read(offset, 1))[0]
        assert first.base_offset == offset - offset % 7


@pytest.mark.parametrize("max_bytes", [0, 1, 500, 1200, 5000, 1 << 20])
def test_a_sequential_reader_gets_every_batch_once(store: Store, max_bytes: int) -> None:
    for number in range(600):
        store.log.append(batch(1 + number % 5, size=10 + number * 7 % 300))
    found = read_all(store.log, max_bytes)
    assert len(found) == 600
    assert store.log.segment_count > 1


def test_at_least_one_batch_even_if_it_is_too_large(store: Store) -> None:
    store.log.append(batch(1, size=5000))
    store.log.append(batch(1, size=5000))
    result = store.log.read(0, 100, min_one_batch=True)
    assert len(headers_of(result)) == 1
    assert store.log.read(0, 100, min_one_batch=False).records == b""
    assert store.log.read(0, 0, min_one_batch=False).records == b""


def test_a_read_ends_at_max_bytes_and_at_a_batch_when_the_index_knows_one(store: Store) -> None:
    for _ in range(100):
        store.log.append(batch(1, size=2000))
    result = store.log.read(0, 10_000)
    data = region_bytes(result)
    assert len(data) <= 10_000
    assert sum(header.size for header in headers_of(result)) == len(data)


def test_a_read_stops_at_the_end_of_its_segment(tmp_path: Path) -> None:
    with Store(tmp_path, segment_bytes=300) as store:
        for _ in range(4):
            store.log.append(batch(1, size=100))
        assert [header.base_offset for header in headers_of(store.log.read(0, 1 << 20))] == [0]


def test_a_reader_at_the_end_goes_on_when_more_comes(store: Store) -> None:
    """The remembered place of the end must hold over appends, and over a roll that leaves it behind."""
    for offset in range(200):
        store.log.append(batch(1, size=offset * 10))
        (header,) = headers_of(store.log.read(offset, 1 << 20))
        assert header.base_offset == offset
        assert store.log.read(offset + 1, 1 << 20).records == b""
    assert store.log.segment_count > 2


def test_reads_of_a_sequential_reader_need_few_small_reads(tmp_path: Path) -> None:
    files = CountingFiles()
    with Store(tmp_path, files) as store:
        for _ in range(2000):
            store.log.append(batch(1, size=2000))
        store.log.read(0, 1 << 20)
        files.calls = files.bytes = reads = offset = 0
        while offset < store.log.log_end_offset:
            result = store.log.read(offset, 1 << 20)
            calls, read = files.calls, files.bytes
            offset = headers_of(result)[-1].next_offset
            files.calls, files.bytes = calls, read
            reads += 1
        assert files.calls <= 2 * reads
        assert files.bytes <= 8192 * reads


def test_a_reader_that_follows_another_one_needs_no_look_up(tmp_path: Path) -> None:
    files = CountingFiles()
    with Store(tmp_path, files) as store:
        for _ in range(2000):
            store.log.append(batch(1, size=2000))
        leader = follower = 0
        for turn in range(3):
            first = store.log.read(leader, 1 << 20)
            files.calls = 0
            second = store.log.read(follower, 1 << 20)
            assert files.calls <= (turn == 0)  # to begin, a reader looks where the first batch ends
            assert region_bytes(second) == region_bytes(first)
            leader = follower = headers_of(second)[-1].next_offset


def test_readers_far_apart_do_not_take_each_others_place_in_the_index(tmp_path: Path) -> None:
    files = CountingFiles()
    with Store(tmp_path, files, index_interval_bytes=0) as store:
        for _ in range(WINDOWS * 2000):
            store.log.append(batch(1, 100))
        size = store.log.size // (WINDOWS * 2000)
        offsets = [reader * 2000 for reader in range(WINDOWS)]
        for turn in range(20):
            if turn == 1:
                files.calls = 0
            for reader, offset in enumerate(offsets):
                result = store.log.read(offset, 40 * size)
                offsets[reader] += len(region_bytes(result)) // size
        assert files.calls <= 2 * 19 * WINDOWS  # one each for the batch at the end, and a new window now and then


def test_a_look_up_reads_a_little_however_long_the_log_is(tmp_path: Path) -> None:
    files = CountingFiles()
    with Store(tmp_path, files, index_interval_bytes=64) as store:
        for _ in range(5000):
            store.log.append(batch(1))
        store.reopen()
        for offset in (17, 2500, 4990):
            files.bytes = 0
            store.log.read(offset, 100)
            assert files.bytes < 64 * 1024


def test_a_region_stays_readable_after_its_segment_is_gone(store: Store) -> None:
    for _ in range(100):
        store.log.append(batch(1, size=2000))
    result = store.log.read(0, 1000)
    before = region_bytes(result)
    store.log.delete_records_before(-1)
    store.manager.housekeeper.run_due()
    assert not (store.directory / "00000000000000000000.log").exists()
    gc.collect()
    assert region_bytes(result) == before
    assert error_of(store, 0) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_descriptors_do_not_grow_with_the_number_of_segments(tmp_path: Path) -> None:
    def open_files() -> int:
        return sum(1 for fd in os.listdir("/proc/self/fd") if _is_segment(f"/proc/self/fd/{fd}", str(tmp_path)))

    with Store(tmp_path, segment_bytes=300) as store:
        for _ in range(60):
            store.log.append(batch(1, size=100))
        assert len(read_all(store.log)) == 60
        gc.collect()
        assert open_files() <= 6
    gc.collect()
    assert open_files() == 0


def _is_segment(link: str, directory: str) -> bool:
    try:
        target = os.readlink(link)
    except FileNotFoundError:
        return False
    return target.startswith(directory) and target.endswith(".log")


# Damage of indexes while the broker thinks that all is well (faults.md row 6).

DAMAGES = {
    "deleted": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "cut inside an entry": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "random": lambda path: path.write_bytes(os.urandom(path.stat().st_size)),
    "padded as Kafka's own": lambda path: path.write_bytes(path.read_bytes() + bytes(1200)),
}


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_look_up_is_right_with_a_damaged_index(tmp_path: Path, damage: str, suffix: str) -> None:
    with Store(tmp_path / "data", segment_bytes=8000, index_interval_bytes=200) as store:
        for number in range(100):
            store.log.append(batch(2, size=100, timestamp=1_700_000_000_000 + number))
        store.close()
        for path in store.directory.glob(f"*.{suffix}"):
            DAMAGES[damage](path)
        store.open()
        for offset in range(200):
            assert headers_of(store.log.read(offset, 1))[0].base_offset == offset - offset % 2
        for number in range(100):
            assert store.log.offset_for_timestamp(1_700_000_000_000 + number).offset == 2 * number
        assert store.log.append(batch(1)).base_offset == 200
        assert len(read_all(store.log)) == 101


def test_bit_rot_in_an_old_segment_is_an_error_of_that_partition_only(store: Store) -> None:
    """faults.md row 7: a damaged header is reported, never a hang, and what is behind it can be read."""
    for _ in range(10):
        store.log.append(batch(1, size=100))
    with open(store.log.segments[0].path, "r+b") as file:
        file.seek(16)
        file.write(b"\xff")
    assert error_of(store, 0) == ErrorCode.CORRUPT_MESSAGE
    assert headers_of(store.log.read(3, 1))[0].base_offset == 3


def damage_header(store: Store, number: int) -> None:
    """Of one of ten batches of the same size."""
    segment = store.log.segments[0]
    with open(segment.path, "r+b") as file:
        file.seek(16 + number * segment.size // 10)
        file.write(b"\xff")


def test_a_failure_that_every_reader_meets_again_is_logged_once_a_minute(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        store.log.append(batch(1, size=100))
    damage_header(store, 0)
    caplog.set_level(logging.ERROR)
    for _ in range(121):
        assert error_of(store, 0) == ErrorCode.CORRUPT_MESSAGE
        store.clock.advance(0.5)
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("t-0: cannot read at offset 0: ")
    assert second == f"{first} (119 more like it were left out before)"


def test_another_failure_of_the_same_partition_is_logged_at_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        store.log.append(batch(1, size=100))
    caplog.set_level(logging.ERROR)
    for number in (5, 0):
        damage_header(store, number)
        for _ in range(3):
            assert error_of(store, number) == ErrorCode.CORRUPT_MESSAGE
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition("offset ")[2][0] for line in lines] == ["5", "0"]
