"""A compaction that is interrupted at any file call: killed there, failing there, or with the power cut there."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.log.files import FileSystem, OpenFile
from tests.broker.log.compacted import CompactedStore, batches, latest, records
from tests.records.batches import NOW_MS

FULL = os.environ.get("BARNABAS_FAULTS") == "full"
CHANGES = ("open", "pwritev", "truncate", "sync", "sync_directory", "rename", "remove", "set_modified_ms")


class Killed(BaseException):
    """The process is gone."""


class CountingFiles(FileSystem):
    """Counts the calls that change something, and calls `at(number, name, arguments)` before each."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.at: Callable[[int, str, tuple[Any, ...]], None] = lambda number, name, arguments: None

    def _note(self, name: str, *arguments: Any) -> None:
        self.count += 1
        self.at(self.count, name, arguments)

    def open(self, path: str, create: bool = False) -> OpenFile:
        if create:
            self._note("open", path)
        return super().open(path, create)

    def pwritev(self, fd: int, buffers: Any, position: int) -> int:
        self._note("pwritev", fd)
        return super().pwritev(fd, buffers, position)

    def sync(self, fd: int) -> None:
        self._note("sync", fd)
        super().sync(fd)

    def sync_directory(self, path: str, opened: OpenFile | None = None) -> None:
        self._note("sync_directory", path)
        super().sync_directory(path, opened)

    def rename(self, old: str, new: str) -> None:
        self._note("rename", old, new)
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._note("remove", path)
        super().remove(path)


def fill(store: CompactedStore) -> None:
    for number in range(18):
        value = b"value-%d" % number if number % 4 else None
        sequence = {"producer_id": 3, "producer_epoch": 0, "base_sequence": number // 2} if number % 2 == 0 else {}
        store.put((b"k%d" % (number % 5), value), timestamp=NOW_MS + number, **sequence)
    store.roll()


def prepared(path: Path) -> Path:
    """A directory with a dirty log, written once and copied for each point."""
    with CompactedStore(path, segment_bytes=400) as store:
        fill(store)
    return path


def opened(source: Path, target: Path, files: FileSystem) -> CompactedStore:
    shutil.copytree(source, target)
    return CompactedStore(target, files, segment_bytes=400)


def no_leftovers(store: CompactedStore) -> bool:
    return not [path for path in store.directory.iterdir() if path.suffix in (".cleaned", ".swap")]


@pytest.fixture(scope="module")
def dirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("dirty") / "log")


@pytest.fixture(scope="module")
def calls(dirty: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many calls one cleaning makes."""
    files = CountingFiles()
    store = opened(dirty, tmp_path_factory.mktemp("count") / "log", files)
    before = files.count
    assert store.clean()
    made = files.count - before
    store.close()
    return made


def test_a_kill_before_any_file_call_of_a_compaction_loses_nothing(dirty: Path, calls: int, tmp_path: Path) -> None:
    """And the start after it may be killed as well, at any of its calls."""
    assert calls > 40
    for point in range(1, calls + 1, 1 if FULL else 2):
        files = CountingFiles()
        store = opened(dirty, tmp_path / f"at-{point}", files)
        wanted, end = latest(store.log), store.log.log_end_offset
        kill_at(files, files.count + point)
        with pytest.raises(Killed):
            store.clean()
        store.abandon()
        kill_at(files, files.count + 1 + point % 7)  # a start that is killed too, if it comes that far
        with contextlib.suppress(Killed):
            store.open()
        store.abandon()
        files.at = lambda number, name, arguments: None
        store.open()
        assert no_leftovers(store), f"call {point}"
        assert (latest(store.log), store.log.log_start_offset, store.log.log_end_offset) == (wanted, 0, end)
        store.clean_all()
        assert latest(store.log) == wanted
        newest = {record.key: record.offset for record in records(store.log)}
        assert len(newest) == len(records(store.log)), f"call {point}: a key is there twice after a whole cleaning"
        store.close()


def test_a_kill_while_segments_are_dropped_stops_neither_the_next_compaction_nor_retention(
    dirty: Path, tmp_path: Path
) -> None:
    """Indexes get their last name before the log does: the next start finds a log without them, below the start."""
    for point in range(1, 40):
        files = CountingFiles()
        store = CompactedStore(
            shutil.copytree(dirty, tmp_path / f"at-{point}"),
            files,
            segment_bytes=400,
            cleanup_policy=("compact", "delete"),
        )
        start = store.log.segments[3].base_offset
        kill_at(files, files.count + point)
        try:
            store.log.delete_records_before(start)
        except Killed:
            done = False
        else:
            done = True
        store.abandon()
        files.at = lambda number, name, arguments: None
        store.open()
        wanted = {record.key: record.value for record in records(store.log) if record.offset >= start}
        store.clean_all()
        assert store.log.delete_records_before(start) == start, f"call {point}"
        assert store.log.available
        assert latest(store.log) == {key: value for key, value in wanted.items() if value is not None}
        store.close()
        if done:
            return
    raise AssertionError("dropping segments made more calls than this test tries")


def kill_at(files: CountingFiles, point: int) -> None:
    def at(number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number >= point:
            raise Killed

    files.at = at


@pytest.mark.parametrize("name", CHANGES)
def test_a_disk_error_in_a_compaction_costs_no_record(dirty: Path, tmp_path: Path, name: str) -> None:
    for nth in range(1, 6):
        files = CountingFiles()
        store = opened(dirty, tmp_path / str(nth), files)
        wanted = latest(store.log)
        seen = 0

        def fail(number: int, called: str, arguments: tuple[Any, ...], nth: int = nth) -> None:
            nonlocal seen
            seen += called == name
            if called == name and seen == nth:
                raise OSError(5, "Input/output error")

        files.at = fail
        store.clean()
        files.at = lambda number, called, arguments: None
        if seen >= nth:
            assert store.manager.directories[0].offline, "a disk that fails is not trusted any more"
        store.abandon()
        store.open()
        assert latest(store.log) == wanted
        assert no_leftovers(store)
        store.close()


def test_a_full_disk_only_puts_the_cleaning_off(dirty: Path, tmp_path: Path) -> None:
    files = CountingFiles()
    with opened(dirty, tmp_path / "log", files) as store:
        wanted = latest(store.log)

        def full(number: int, called: str, arguments: tuple[Any, ...]) -> None:
            if called == "pwritev":
                raise OSError(28, "No space left on device")

        files.at = full
        assert store.clean()
        files.at = lambda number, called, arguments: None
        assert not store.manager.directories[0].offline
        assert no_leftovers(store)
        assert not store.clean(), "not again at once"
        store.clock.advance(15)
        assert store.clean()
        assert latest(store.log) == wanted


def test_no_descriptor_is_left_while_segments_are_swapped(dirty: Path, tmp_path: Path) -> None:
    """A client that opens connections until there is none must not end the broker."""
    files = CountingFiles()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with opened(dirty, tmp_path / "log", files) as store:
        wanted = latest(store.log)

        def use_up(number: int, called: str, arguments: tuple[Any, ...]) -> None:
            if called == "rename" and "t-0" in arguments[1]:
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))

        files.at = use_up
        try:
            assert store.clean()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            files.at = lambda number, called, arguments: None
        assert not store.manager.directories[0].offline
        assert latest(store.log) == wanted
        store.reopen()
        assert latest(store.log) == wanted


@pytest.mark.parametrize("nth", range(1, 15))
def test_a_full_directory_takes_nothing_offline(dirty: Path, tmp_path: Path, nth: int) -> None:
    """A longer name may need a block more than the disk has."""
    files = CountingFiles()
    with opened(dirty, tmp_path / "log", files) as store:
        wanted = latest(store.log)
        seen = 0

        def full(number: int, called: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            seen += called == "rename" and "t-0" in arguments[1]
            if seen >= nth and called == "rename" and "t-0" in arguments[1]:
                raise OSError(28, "No space left on device")

        files.at = full
        store.clean()
        files.at = lambda number, called, arguments: None
        assert not store.manager.directories[0].offline
        assert latest(store.log) == wanted
        store.clock.advance(15)
        store.clean_all()
        assert latest(store.log) == wanted
        store.reopen()
        assert latest(store.log) == wanted
        assert no_leftovers(store)


class PowerCutFiles(CountingFiles):
    """Remembers the directory as it was at its last sync: what a power cut leaves, when renames are as lost as they may be."""

    def __init__(self, keep: Path) -> None:
        super().__init__()
        self._keep = keep

    def sync_directory(self, path: str, opened: OpenFile | None = None) -> None:
        super().sync_directory(path, opened)
        if Path(path).name == "t-0":
            shutil.rmtree(self._keep, ignore_errors=True)
            shutil.copytree(path, self._keep)


def test_names_that_a_power_cut_brings_back_do_not_hurt(dirty: Path, calls: int, tmp_path: Path) -> None:
    for point in range(1, calls + 1, 1 if FULL else 4):
        synced = tmp_path / f"synced-{point}"
        files = PowerCutFiles(synced)
        store = opened(dirty, tmp_path / f"at-{point}", files)
        wanted, end = latest(store.log), store.log.log_end_offset
        shutil.copytree(store.directory, synced, dirs_exist_ok=True)
        kill_at(files, files.count + point)
        with pytest.raises(Killed):
            store.clean()
        store.abandon()
        files.at = lambda number, name, arguments: None
        shutil.rmtree(store.directory)
        shutil.copytree(synced, store.directory)
        store.open()
        assert (latest(store.log), store.log.log_end_offset) == (wanted, end), f"call {point}"
        assert [header.base_offset for header, _ in batches(store.log)] == sorted(
            header.base_offset for header, _ in batches(store.log)
        )
        store.close()


# What Kafka itself leaves: it renames the log before its indexes.


def test_a_swap_that_kafka_left_is_completed(dirty: Path, tmp_path: Path) -> None:
    files = FileSystem()
    store = opened(dirty, tmp_path / "log", files)
    wanted = latest(store.log)
    stopped: list[Path] = []

    class Stopping(FileSystem):
        def rename(self, old: str, new: str) -> None:
            if old.endswith(".swap"):
                stopped.append(Path(old))
                raise Killed
            super().rename(old, new)

    store.abandon()
    store.files = Stopping()
    store.open()
    with pytest.raises(Killed):
        store.clean()
    store.abandon()
    log_name = stopped[0].name.split(".")[0]
    (store.directory / f"{log_name}.log.swap").rename(store.directory / f"{log_name}.log")
    assert list(store.directory.glob("*.index.swap"))
    store.files = files
    store.open()
    assert no_leftovers(store)
    assert latest(store.log) == wanted
    store.close()


# A .swap that is no whole segment.


def left_at_swap(dirty: Path, path: Path) -> tuple[CompactedStore, Path]:
    """A store that was killed when a new segment, not an empty one, had its .swap name and the old one its own; and that .log.swap."""

    class Stopping(FileSystem):
        def rename(self, old: str, new: str) -> None:
            if new.endswith(".deleted") and any(each.stat().st_size for each in Path(old).parent.glob("*.log.swap")):
                raise Killed
            super().rename(old, new)

    store = opened(dirty, path, Stopping())
    with pytest.raises(Killed):
        store.clean()
    store.abandon()
    store.files = FileSystem()
    (swap,) = store.directory.glob("*.log.swap")
    return store, swap


def log_files(store: CompactedStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.directory.glob("*.log")}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("content", [b"hi", b""])
def test_a_stray_swap_replaces_no_segment(
    dirty: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    store = opened(dirty, tmp_path / "log", FileSystem())
    wanted = batches(store.log)
    stray = Path(store.log.segments[1].path + ".swap")
    store.close()
    stray.write_bytes(content)
    store.open()
    assert batches(store.log) == wanted
    assert not stray.exists()
    assert stray.with_name(stray.name + ".damaged").read_bytes() == content
    (line,) = warnings(caplog)
    assert stray.name + ".damaged" in line
    store.close()


@pytest.mark.parametrize("damage", ["a bit", "the end is cut off", "zeros follow"])
def test_a_damaged_swap_is_undone_while_the_old_segments_are_there(
    dirty: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    store, swap = left_at_swap(dirty, tmp_path / "log")
    wanted = log_files(store)
    assert swap.name.removesuffix(".swap") in wanted
    data = bytearray(swap.read_bytes())
    if damage == "a bit":
        data[-1] ^= 1
    elif damage == "zeros follow":
        data += bytes(100)
    else:
        del data[-1:]
    swap.write_bytes(data)
    store.open()
    assert log_files(store) == wanted
    assert no_leftovers(store)
    assert swap.with_name(swap.name + ".damaged").read_bytes() == data
    assert len(warnings(caplog)) == 1
    store.clean_all()
    assert len({each.key for each in records(store.log)}) == len(records(store.log)), (
        "it is compacted as if nothing had been"
    )
    store.close()


def test_a_start_that_is_killed_while_it_undoes_a_damaged_swap_is_repeated(dirty: Path, tmp_path: Path) -> None:
    for point in range(1, 25):
        store, swap = left_at_swap(dirty, tmp_path / f"at-{point}")
        wanted = log_files(store)
        swap.write_bytes(swap.read_bytes()[:-1])
        store.files = files = CountingFiles()
        kill_at(files, point)
        with contextlib.suppress(Killed):
            store.open()
        store.abandon()
        store.files = FileSystem()
        store.open()
        assert log_files(store) == wanted, f"call {point}"
        assert no_leftovers(store)
        store.close()


def test_a_damaged_swap_is_completed_when_it_is_all_that_is_left(dirty: Path, tmp_path: Path) -> None:
    store, swap = left_at_swap(dirty, tmp_path / "log")
    data = swap.read_bytes()[:-1]
    swap.write_bytes(data)
    old = swap.with_name(swap.name.removesuffix(".swap"))
    old.rename(old.with_name(old.name + ".deleted"))
    store.open()
    assert no_leftovers(store)
    assert not list(store.directory.glob("*.damaged"))
    assert old.read_bytes().startswith(data)
    store.close()
