"""How many file descriptors this process may have, and who may take the last ones.

Role: connections leave a reserve, so that a broker that is full of clients can still roll segments and write checkpoints. The kernel
gives out the lowest free number: one at or above the ceiling means that all below it are in use.
Thread: any. Lock: none; the limit is asked each time, because it may be changed from outside (prlimit).
"""

from __future__ import annotations

import errno
import os
import resource

FEWEST_RESERVED = 16
"""A flush, a roll, a checkpoint and a cleaning at the same time have some ten files open that are closed again at once."""
MOST_RESERVED = 64
_RESERVED_SHARE = 8
_UNLIMITED = 2**31 - 1


def descriptor_limit() -> int:
    """The soft limit of this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> tuple[int, int]:
    """Raise the soft limit to the hard one, which any process may do; the limit before and after."""
    before = descriptor_limit()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # some systems allow less than the hard limit says
        return before, before
    return before, descriptor_limit()


def leaves_reserve(fd: int) -> bool:
    """Whether a connection with this descriptor leaves enough of them for files."""
    limit = descriptor_limit()
    return fd < limit - min(MOST_RESERVED, max(FEWEST_RESERVED, limit // _RESERVED_SHARE))


def room_for_connections(some_fd: int) -> bool:
    """Whether the next connection would leave enough descriptors for files; `some_fd` is copied to find the lowest free number."""
    try:
        fd = os.dup(some_fd)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return False
    os.close(fd)
    return leaves_reserve(fd)
