"""What a reader that is far behind will ask for next is read ahead, each byte once: advice only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.log import reading
from barnabas.broker.log.files import FileSystem
from barnabas.net.send import FileRegion
from tests.broker.log.stores import Store
from tests.records.batches import batch

SIZE = 16_000
READ = 100_000
WINDOW = 1 << 20
BATCHES = 300

linux = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only Linux says what is in memory")


class Asked(FileSystem):
    """Notes what was asked to be read ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.regions: list[tuple[int, int]] = []

    def will_need(self, fd: int, position: int, length: int) -> None:
        self.regions.append((position, position + length))
        super().will_need(fd, position, length)


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def store(tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(reading, "_READ_AHEAD", WINDOW)
    with Store(tmp_path, asked) as store:
        for _ in range(BATCHES):
            store.log.append(batch(1, SIZE))
        yield store


def read_on(store: Store, offset: int, size: int = READ) -> tuple[int, int]:
    """One read: where it ended, and the offset of the next."""
    region = store.log.read(offset, size).records
    assert isinstance(region, FileRegion)
    return region.position + region.length, offset + region.length // (store.log.size // BATCHES)


def test_who_begins_gets_as_much_again_as_it_asked_for(store: Store, asked: Asked) -> None:
    read_on(store, 0)
    assert asked.regions == [(0, 2 * READ)]


def test_who_goes_on_gets_a_window_and_each_byte_is_asked_for_once(store: Store, asked: Asked) -> None:
    offset = 0
    for _ in range(30):
        end, offset = read_on(store, offset)
        assert asked.regions[-1][1] >= end
    assert all(before[1] == after[0] for before, after in zip(asked.regions, asked.regions[1:], strict=False))
    assert len(asked.regions) <= 3 + 30 * READ // (WINDOW // 2)  # a call per half a window, not one per read
    assert asked.regions[-1][1] <= end + READ + WINDOW


def test_each_reader_has_a_window_of_its_own(store: Store, asked: Asked) -> None:
    """Two that are far apart do not make each other begin anew."""
    offsets = [0, BATCHES // 2]
    for _ in range(8):
        offsets = [read_on(store, offset)[1] for offset in offsets]
    starts = [begin for begin, _ in asked.regions]
    assert len(starts) == len(set(starts)) < 16


def test_a_small_read_asks_for_nothing(store: Store, asked: Asked) -> None:
    read_on(store, 0, 60_000)
    assert asked.regions == []


def test_a_reader_at_the_end_asks_for_nothing(store: Store, asked: Asked) -> None:
    read_on(store, BATCHES - 2)
    assert asked.regions == []


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The advice that the kernel was given."""
    given: list[int] = []
    advise = os.posix_fadvise

    def noting(fd: int, position: int, length: int, advice: int) -> None:
        given.append(advice)
        advise(fd, position, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", noting)
    return given


@linux
def test_the_kernel_is_not_asked_for_what_is_in_memory(store: Store, asked: Asked, advised: list[int]) -> None:
    read_on(store, 0)
    assert asked.regions
    assert advised == []


@linux
def test_the_kernel_is_asked_for_what_is_not_in_memory(store: Store, asked: Asked, advised: list[int]) -> None:
    with asked.open(store.log.segments[0].path) as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(file.fileno(), (bytearray(1),), 2 * WINDOW, os.RWF_NOWAIT)
        except BlockingIOError:
            pass
        else:
            pytest.skip("this file system keeps everything in memory")
    read_on(store, 0, WINDOW)
    assert advised == [os.POSIX_FADV_DONTNEED, os.POSIX_FADV_WILLNEED]


def test_what_is_behind_the_end_is_not_asked_for(store: Store, asked: Asked) -> None:
    read_on(store, BATCHES - READ // SIZE - 3)
    assert asked.regions[-1][1] == store.log.size
