"""Taking turns under the GIL: how the I/O thread of a producer gets it soon, although user threads send in a tight loop.

Role:   a thread that comes back from a system call waits up to 5 ms for the GIL when another one is busy in Python, and the I/O
thread of a
        producer comes back several times per request. Here it says that it wants its turn before it asks for the GIL, and the user
        threads, which look at that flag after each record, wait until the turn is over. It is advice, not protection: nothing is
        guarded by it, and who has waited 2 ms goes on.
        The broker's network threads have another way of taking turns (`broker/network/baton.py`); from here they have `readable_soon`.
Thread: `TurnPoller` on the I/O thread, `give_way` on user threads. Lock: the turn is one.

Only compiled code can do something without the GIL; in plain Python, and on Windows, a turn is nothing.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.turn_lock import lock_within, readable_within, wait_readable
    from cython.cimports.cpython.pythread import PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock


@cython.cclass
class Turns:
    """The turn of one producer's I/O thread."""

    def __init__(self) -> None:
        self.wanted = 0
        self._held = False
        if cython.compiled:
            self._lock = PyThread_allocate_lock()

    def __dealloc__(self) -> None:
        if cython.compiled:
            PyThread_free_lock(self._lock)

    def wait(self, fd: cython.int, seconds: float) -> bool:
        """The turn is over; wait until `fd` is readable, without the GIL, then ask for the next turn. False: this form cannot wait."""
        if not cython.compiled:
            return False
        self.end()
        timeout_ms: cython.int = -1 if seconds < 0 else round(min(seconds, 1e6) * 1000 + 0.4999)
        ready: cython.int
        with cython.nogil:
            ready = wait_readable(fd, timeout_ms)
            self.begin()
        return ready >= 0

    def end(self) -> None:
        """Let the others go on: before anything that may block."""
        self.wanted = 0
        if self._held:
            self._held = False
            if cython.compiled:
                PyThread_release_lock(self._lock)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def begin(self) -> cython.void:
        if cython.compiled:
            self.wanted = 1
            if not self._held:
                self._held = lock_within(self._lock, 2000)

    @cython.cfunc
    @cython.exceptval(check=False)
    def give_way(self) -> cython.void:
        """Wait until the turn is over, but not for long."""
        if cython.compiled:
            with cython.nogil:
                if lock_within(self._lock, 2000):
                    PyThread_release_lock(self._lock)


def readable_soon(fd: cython.int, nanoseconds: cython.longlong) -> bool:
    """Ask for so long whether `fd` is readable, awake and, compiled, without the GIL."""
    ready: cython.int = 0
    if cython.compiled:
        with cython.nogil:
            ready = readable_within(fd, nanoseconds)
        return ready != 0
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    end = time.monotonic_ns() + nanoseconds
    while not waiting.poll(0):
        if time.monotonic_ns() >= end:
            return False
    return True


class TurnPoller:
    """A poller (see `net/poller.py`) that waits without the GIL and comes back with the turn. `inner` has a `fileno` to wait for."""

    __slots__ = ("_fd", "_inner_poll", "_turns", "close", "modify", "register", "unregister")

    def __init__(self, inner: Any, turns: Turns) -> None:
        self._turns = turns
        self._fd: int = inner.fileno()
        self._inner_poll: Callable[[float, int], list[tuple[int, int]]] = inner.poll
        self.register: Callable[[int, int], None] = inner.register
        self.modify: Callable[[int, int], None] = inner.modify
        self.unregister: Callable[[int], None] = inner.unregister
        self.close: Callable[[], None] = inner.close

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        if timeout and self._turns.wait(self._fd, timeout):
            timeout = 0
        return self._inner_poll(timeout, maxevents)
