"""Whether a broker uses a log directory right now, without taking its lock.

Role: the kernel lists all file locks in /proc/locks with device and inode of the file, so the lock file need not even be opened; opening
and closing it could give back a lock of this very process. Thread: any. Lock: none.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from barnabas.broker.log.checkpoints import LOCK_FILE

_LOCKS = "/proc/locks"


@dataclass(frozen=True, slots=True)
class LockOwner:
    """Who holds the lock of a log directory. `known` is False where the system does not tell."""

    known: bool
    held: bool = False
    pid: int = 0


def owner_of(log_dir: str) -> LockOwner:
    """Who holds a log directory; nobody for a partition that stands alone."""
    if not log_dir:
        return LockOwner(known=True)
    try:
        status = os.stat(os.path.join(log_dir, LOCK_FILE))
    except FileNotFoundError:
        return LockOwner(known=True)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return LockOwner(known=True)  # a loop of links: nobody can have locked it
    try:
        with open(_LOCKS, encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return LockOwner(known=False)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 22671 fe:00:9977909 0 EOF; a line with `->` in it waits for the lock and does not have it
        words = line.split()
        if len(words) >= 6 and words[1] != "->" and words[5] == wanted:
            return LockOwner(known=True, held=True, pid=int(words[4]))
    return LockOwner(known=True)
