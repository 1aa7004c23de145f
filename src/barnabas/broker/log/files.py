"""Every file call of the log goes through here, so that tests can inject each disk fault.

Role: `OpenFile` owns one descriptor; `FileSystem` opens, lists, renames and syncs.
Thread: any; the calls themselves are safe, who may write a file is decided by the log's lock. Lock: none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.log.file_kinds import (
    NotAFile,
    is_file,
    is_misplaced,
    kind_of,
    kind_of_mode,
    not_a_file,
    wrong_kind,
)
from barnabas.broker.log.open_files import OpenFiles
from barnabas.records.batch import Buffer

Result = TypeVar("Result")

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
"""What the broker makes is for its own user only, whatever the umask. What is there already keeps its mode."""

_SYNC_FILE_RANGE_WRITE = 2
_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""Linux's flag for reading only what is in memory; 0 elsewhere."""
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_TRIES = 3
_PASSING = (errno.ENOSPC, errno.EDQUOT, *_NO_DESCRIPTOR)
_OF_ANOTHER_KIND = (errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENOENT)
"""What `open` answers when there is no regular file; ENOENT is a link to nothing, or really nothing."""


class SyncFailed(OSError):
    """A flush to the disk failed, for whatever reason: what was written since the one before may be lost, and no second flush says so."""


def may_pass(error: OSError) -> bool:
    """Whether there was no room or no descriptor, or something stood in the place of a file, all of which may change; every other failure,
    and every failed flush, means a broken disk."""
    return isinstance(error, NotAFile) or (error.errno in _PASSING and not isinstance(error, SyncFailed))


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's call, which Python does not have; None elsewhere."""
    import ctypes  # only brokers with durable acks need it, so it does not slow down every start

    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


MOST_PINS = 10_000
"""A process may have some 65 000 mappings, and needs them for its memory too."""
_MAP_FAILED = 2**64 - 1
_PAGE = 4096


@cache
def _libc() -> Any:
    """mmap without a descriptor of its own, which Python's has; None where addresses have another size."""
    import ctypes

    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    libc = ctypes.CDLL(None)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (ctypes.c_void_p, size, number, number, number, ctypes.c_int64)
    libc.mmap.restype = ctypes.c_uint64
    libc.munmap.argtypes = (ctypes.c_uint64, size)
    return libc


class Pin:
    """A file that the kernel keeps in memory without a descriptor: a mapping of its first page, which nobody touches."""

    __slots__ = ("_address", "_pins", "_unmap")

    def __init__(self, address: int, unmap: Callable[[int, int], int], pins: deque[None]) -> None:
        self._address = address
        self._unmap = unmap
        self._pins = pins
        pins.append(None)

    def __del__(self) -> None:
        self._unmap(self._address, _PAGE)
        self._pins.pop()


def _in_memory(fd: int, position: int) -> bool:
    """Whether the page cache has the byte at a position; False when nobody can say."""
    try:
        return bool(_NO_WAIT and os.preadv(fd, (bytearray(1),), position, _NO_WAIT))
    except OSError:
        return False


class OpenFile:
    """A descriptor with an owner: closed by `close()`, or when the last reference goes.

    The second way is on purpose. A response may still send a region of a segment that retention deletes: the response holds the
    file, the log forgets it, and the descriptor is closed when the response is done.
    """

    __slots__ = ("__weakref__", "_fd", "_held", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._held: deque[None] | None = None
        self.path = path

    def count_in(self, held: deque[None]) -> None:
        """Be one of `held` until it is closed."""
        self._held = held
        held.append(None)

    def fileno(self) -> int:
        """The number alone holds nothing: what another thread may let go of meanwhile is used by `use`."""
        return self._fd

    def use(self, call: Callable[..., Result], *arguments: object) -> Result:
        """`call(descriptor, *arguments)`, with the file open until it returns. A local name is no such promise: compiled code (ADR 7)
        gives it up after its last use, which is before the call."""
        return call(self._fd, *arguments)

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            if self._held is not None:
                self._held.pop()

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"OpenFile({self.path!r}, fd={self._fd})"


def create_private(path: str) -> None:
    """Make an empty file for somebody else to open, unless there is something of that name."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))


def _open_regular(path: str, flags: int) -> OpenFile:
    """NotAFile when something else is there. A FIFO must not hold us up, so nothing here waits; regular files do not care."""
    try:
        file = OpenFile(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE), path)
    except OSError as error:
        kind = wrong_kind(path) if error.errno in _OF_ANOTHER_KIND else ""
        if not kind:
            raise
        raise not_a_file(path, kind) from error
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise not_a_file(path, kind_of_mode(mode))
    return file


class FileSystem:
    """The operating system's files. Subclasses in tests make calls fail, write short or forget what was not synced."""

    def __init__(self) -> None:
        self.open_files = OpenFiles()
        self._pins: deque[None] = deque()

    # Data of open files.

    def open(self, path: str, create: bool = False) -> OpenFile:
        """Open for reading and writing; NotAFile, at once, when there is something that is no regular file."""
        return self._with_descriptors(_open_regular, path, os.O_RDWR | (os.O_CREAT if create else 0))

    def open_read_only(self, path: str) -> OpenFile:
        """NotAFile as for `open`."""
        return self._with_descriptors(_open_regular, path, os.O_RDONLY)

    def _with_descriptors(self, call: Callable[..., Result], *arguments: object) -> Result:
        """A call that needs a descriptor: when the process has none left, segments give up some of theirs."""
        for _ in range(_TRIES):  # another thread may be quicker to take what was given up
            try:
                return call(*arguments)
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR or not self.open_files.make_room():
                    raise
        return call(*arguments)

    def pin(self, fd: int) -> Pin | None:
        """Keep the kernel from forgetting a file that is closed before it was flushed: a failed write-back would be forgotten with it. None
        when that is not possible."""
        libc = _libc()
        if libc is None or len(self._pins) >= MOST_PINS:
            return None
        address = libc.mmap(None, _PAGE, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        return None if address == _MAP_FAILED else Pin(address, libc.munmap, self._pins)

    if TYPE_CHECKING:

        def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int: ...

    else:
        pwritev = staticmethod(os.pwritev)  # bound directly: every batch goes through it

    def pread(self, fd: int, length: int, position: int) -> bytes:
        return os.pread(fd, length, position)

    def will_need(self, fd: int, position: int, length: int) -> None:
        """Advice only: what is not in memory is read ahead in the background. Where the end of it is in memory, so is the rest, almost
        always, and the kernel need not look at every page of it."""
        if not _in_memory(fd, position + length - 1):
            os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)

    def start_writing(self, fd: int, position: int, length: int) -> None:
        """Advice only: the disk begins with what was written there. Nothing is durable by it, and what goes wrong is for `sync` to say."""
        begin = _sync_file_range()
        if begin is not None:
            begin(fd, position, length, _SYNC_FILE_RANGE_WRITE)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def sync(self, fd: int) -> None:
        """Data, and the metadata that reading the data needs, to the disk; SyncFailed when it may not be there."""
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error

    # Names.

    def make_directory(self, path: str) -> None:
        """For us alone; what is missing above it is made as the umask says, unless by `make_durable_directory`."""
        os.makedirs(path, DIRECTORY_MODE, exist_ok=True)

    def make_durable_directory(self, path: str) -> None:
        """Make a directory with all above it, so that a power cut cannot take away the place where synced files are."""
        missing = []
        while not self.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        for each in reversed(missing):
            self.make_directory(each)
            with contextlib.suppress(PermissionError):  # a parent that we may not read cannot be synced by us
                self.sync_directory(os.path.dirname(each))

    def open_directory(self, path: str) -> OpenFile:
        """For syncs that may not fail for want of a descriptor."""
        return OpenFile(self._with_descriptors(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)

    def sync_directory(self, path: str, opened: OpenFile | None = None) -> None:
        """Make created, renamed and removed names in a directory durable; SyncFailed as for `sync`."""
        directory = opened or self.open_directory(path)
        try:
            directory.use(os.fsync)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error
        finally:
            if opened is None:
                directory.close()

    def list_directory(self, path: str) -> list[str]:
        return self._with_descriptors(os.listdir, path)

    def list_sizes(self, path: str, suffix: str) -> tuple[list[str], dict[str, int]]:
        """All names of a partition's directory, and the sizes of those with a suffix; one pass, for a quick start.

        NotAFile when anything that is named like a file of the log is none: before somebody has changed something there.
        """
        names: list[str] = []
        sizes: dict[str, int] = {}
        with self._with_descriptors(os.scandir, path) as entries:
            for entry in entries:
                names.append(entry.name)
                if is_misplaced(entry):
                    raise not_a_file(entry.path, kind_of(entry.path))
                if entry.name.endswith(suffix) and is_file(entry):
                    sizes[entry.name] = entry.stat().st_size
        return names, sizes

    def misplaced(self, path: str) -> dict[str, str]:
        """Names of a partition's directory that should be files and are none, and what they are."""
        with self._with_descriptors(os.scandir, path) as entries:
            return {entry.name: kind_of(entry.path) for entry in entries if is_misplaced(entry)}

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def rename(self, old: str, new: str) -> None:
        """NotAFile when a file would have to replace a directory."""
        try:
            os.rename(old, new)
        except IsADirectoryError as error:
            raise not_a_file(new, kind_of(new)) from error

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error. NotAFile for a directory."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except IsADirectoryError as error:
            raise not_a_file(path, kind_of(path)) from error

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, milliseconds: int) -> None:
        os.utime(path, ns=(milliseconds * 1_000_000, milliseconds * 1_000_000))

    def space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system."""
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize

    # Small files, whole.

    def read_file(self, path: str) -> bytes:
        with self.open_read_only(path) as file:
            parts = []
            position = 0
            while part := self.pread(file.fileno(), 1 << 20, position):
                parts.append(part)
                position += len(part)
            return b"".join(parts)

    def write_file(self, path: str, data: bytes, sync: bool = True) -> None:
        """Write a file as a whole, in place."""
        with self.open(path, create=True) as file:
            fd = file.fileno()
            self.write_fully(fd, data, 0)
            self.truncate(fd, len(data))
            if sync:
                self.sync(fd)

    def replace_file(self, path: str, data: bytes) -> None:
        """Write a file so that after a crash either the old or the new content is there, whole."""
        temporary = path + ".tmp"
        self.write_file(temporary, data)
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def write_fully(self, fd: int, data: bytes, position: int) -> None:
        """Write all bytes, going on after a short write; a write of nothing at all is an error."""
        view = memoryview(data)
        while view:
            written = self.pwritev(fd, [view], position)
            if written <= 0:
                raise OSError(f"wrote {written} of {len(view)} bytes")
            view = view[written:]
            position += written

    def lock(self, file: OpenFile) -> bool:
        """Take the lock of a lock file; False when another open file has it. Ends with the process.

        Two kinds: `flock` also keeps a second broker of this process out, `lockf` is the one that Apache Kafka takes.
        """
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.open_files!r})"
