"""A data directory in memory, for `barnabas broker --memory` and for embedded brokers.

Role: a temporary directory on tmpfs where the system has one, else in the temporary folder; removed at the end. A broker that
was killed leaves its directory behind, so making one first removes those that nobody holds any more.
Thread: its owner's. Lock: a file lock in the directory says that the owner is alive.

The name that is looked for appears only by a rename, after the lock is held: no other process can see a directory of ours
that is not locked yet and take it for an abandoned one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from barnabas.broker.log.files import FILE_MODE

PREFIX = "barnabas-memory-"
TMPFS = Path("/dev/shm")
MIN_FREE_BYTES = 64 * 1024 * 1024
OWNER_FILE = ".owner"


def memory_root() -> Path:
    """Where such directories are made: tmpfs when it is there, writable and has some room."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(TMPFS).free
        if free >= MIN_FREE_BYTES and os.access(TMPFS, os.W_OK | os.X_OK):
            return TMPFS
    return Path(tempfile.gettempdir())


class MemoryDirectory:
    """A context manager; `path` is valid inside it. Not thread-safe."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or memory_root()
        self._owner_fd = -1
        self.path = self._root

    def __enter__(self) -> MemoryDirectory:
        remove_abandoned(self._root)
        made = Path(tempfile.mkdtemp(prefix=".barnabas-new-", dir=self._root))
        self._owner_fd = os.open(made / OWNER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        fcntl.flock(self._owner_fd, fcntl.LOCK_EX)
        self.path = made.with_name(PREFIX + made.name.rpartition("-")[2])
        made.rename(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._owner_fd)

    def __repr__(self) -> str:
        return f"MemoryDirectory({str(self.path)!r})"


def remove_abandoned(root: Path) -> list[Path]:
    """Remove this user's directories whose owner is gone; returns them."""
    removed = []
    for path in root.glob(PREFIX + "*"):
        if _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


def _is_abandoned(path: Path) -> bool:
    try:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        owner = os.open(path / OWNER_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(owner)
    return True
