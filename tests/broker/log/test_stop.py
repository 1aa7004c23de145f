"""The stop of the logs: it ends in time however much is not on disk yet, and says whether the next start has something to recover."""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.log.files import FileSystem
from barnabas.clock import ManualClock
from tests.broker.log.stores import Store, read_all
from tests.faults.faulty_disk import FaultyDisk, Rule
from tests.records.batches import batch

BATCHES = 60
MARKER = ".kafka_cleanshutdown"


class SlowDisk(FileSystem):
    """Each sync takes a second of the clock."""

    clock: ManualClock | None = None

    def sync(self, fd: int) -> None:
        if self.clock is not None:
            self.clock.advance(1.0)
        super().sync(fd)


def filled(path: Path, files: FileSystem) -> Store:
    """A segment for each batch; none of them is on disk."""
    store = Store(path, files, segment_bytes=100)
    for _ in range(BATCHES):
        store.log.append(batch(1))
    assert store.log.segment_count == BATCHES
    return store


def offsets(store: Store) -> list[int]:
    return [header.base_offset for header in read_all(store.log)]


def test_a_stop_ends_in_time_and_leaves_the_rest_to_a_recovery(tmp_path: Path) -> None:
    disk = SlowDisk()
    store = filled(tmp_path, disk)
    disk.clock = store.clock
    began = store.clock.monotonic_ns()
    assert not store.manager.shutdown(10.0)
    assert 5e9 < store.clock.monotonic_ns() - began < 15e9  # one segment and the checkpoints may come after the end
    assert not (tmp_path / MARKER).exists()
    store.files = FileSystem()
    store.open()
    assert offsets(store) == list(range(BATCHES))
    assert store.manager.shutdown(10.0)
    assert (tmp_path / MARKER).exists()


def test_what_is_on_disk_needs_no_time_to_stop(tmp_path: Path) -> None:
    store = filled(tmp_path, FileSystem())
    assert store.manager.shutdown(10.0)
    store.open()
    store.manager.stop_by(0.0)
    assert store.manager.shutdown(10.0)
    assert (tmp_path / MARKER).exists()


def test_a_stop_that_could_not_flush_is_not_a_clean_one(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = filled(tmp_path, disk)
    disk.rules = [Rule(("open",), "*.timeindex", error="EMFILE"), Rule(("open", "create"), "*.log", error="EMFILE")]
    for segment in store.log.segments:
        segment.release()
    assert not store.manager.shutdown(10.0)
    assert not (tmp_path / MARKER).exists()
    disk.rules = []
    store.open()
    assert offsets(store) == list(range(BATCHES))
    assert store.manager.shutdown(10.0)


def test_a_stop_with_a_failed_directory_is_not_a_clean_one(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = filled(tmp_path, disk)
    disk.rules = [Rule(("sync",), error="EIO")]
    store.log.flush()
    assert not store.manager.shutdown(10.0)
