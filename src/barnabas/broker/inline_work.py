"""How much may still be done for the light request that a thread runs, a network thread or a handler (`budget.py`).

Role: what a read or an append costs shows only while it is done, deep in the log: a scan, a checksum, a sync, a new segment, a lock that
somebody else holds for long. There it is counted (`spend`) or refused at once (`leave_light_lane`), and the request begins anew as a heavy
one, of which only a few run at a time. For those and on any other thread all of this does nothing.
Thread: any; each has a count of its own. Lock: none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

INLINE_WORK = 1_572_864
"""About how many bytes are looked at for one light request. As `barnabas.produce.light.bytes`: 1 ms."""
SYSTEM_CALL_WORK = 16_384
"""A system call takes about as long as looking at so many bytes."""
LOCK_SECONDS = 0.005
"""Who holds a lock for longer does something that light requests must not wait for."""


class NeedsHandler(Exception):
    """Raised while a request runs that is more than a light one may be. A handler then calls the API again, with the same heavy
    request; what was done already is remembered in `request.progress`. Nothing was answered."""


class _Thread(threading.local):
    limited = False
    left = 0


_thread = _Thread()


def begin() -> None:
    """This thread runs a light request from now on."""
    _thread.left = INLINE_WORK
    _thread.limited = True


def end() -> None:
    _thread.limited = False


@contextmanager
def unlimited() -> Iterator[None]:
    """For what cannot be left to a handler any more."""
    limited, _thread.limited = _thread.limited, False
    try:
        yield
    finally:
        _thread.limited = limited


def spend(work: int) -> None:
    """Before some work, in bytes that are looked at; `NeedsHandler` when it is too much for a light request."""
    if _thread.limited:
        _thread.left -= work
        if _thread.left < 0:
            raise NeedsHandler


def leave_light_lane() -> None:
    """Before something that may block or takes long; `NeedsHandler` in a light request."""
    if _thread.limited:
        raise NeedsHandler


def wait_for(lock: threading.Lock) -> None:
    """Acquire a lock that somebody holds; `NeedsHandler` when a light request does not get it soon."""
    if not lock.acquire(timeout=LOCK_SECONDS if _thread.limited else -1):
        raise NeedsHandler
