"""The baton: under the GIL, threads of the request path take turns by the batch instead of by the system call.

Role:    every `send`, `recv` and `write` lets go of the GIL; with several busy threads another one then grabs it, and the first
         waits to get it back: a thread switch, often between cores, for each system call (measured: it doubled the CPU time
         per request). Who holds the baton does a whole turn; the others wait on it, asleep, and not on the GIL.
         It is advice, not protection: nothing is guarded by it, and who has waited `PATIENCE_SECONDS` goes on without it, so
         that a thread that blocks while it holds the baton (a slow disk) delays nobody for longer.
Thread:  each thread has a `Turn` of its own. Lock: the baton is one.

Builds without the GIL have no baton: `NO_BATON` hands out turns that do nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnabas.net.poller import Poller

PATIENCE_SECONDS = 0.002


class Turn:
    """One thread's way to hold the baton; `begin` and `end` may be called in any order, any number of times."""

    __slots__ = ("_lock", "held")

    def __init__(self, lock: threading.Lock | None) -> None:
        self._lock = lock
        self.held = False

    def begin(self) -> None:
        """Hold the baton, or have waited long enough for it."""
        if self._lock is not None and not self.held:
            self.held = self._lock.acquire(True, PATIENCE_SECONDS)

    def end(self) -> None:
        """Let go of it: before anything that may block."""
        if self.held:
            self.held = False
            self._lock.release()  # type: ignore[union-attr]  # held only if there is one


class Baton:
    """Shared by the threads of one plane. Thread-safe."""

    __slots__ = ("_lock",)

    def __init__(self, enabled: bool = True) -> None:
        self._lock = threading.Lock() if enabled else None

    def turn(self) -> Turn:
        return Turn(self._lock)


NO_BATON = Baton(enabled=False)


class TurnPoller:
    """A poller that ends its thread's turn while it waits."""

    __slots__ = ("_before_sleep", "_inner", "_turn", "close", "modify", "register", "unregister")

    def __init__(self, inner: Poller, turn: Turn, before_sleep: Callable[[], None]) -> None:
        self._inner = inner
        self._turn = turn
        self._before_sleep = before_sleep
        self.register = inner.register
        self.modify = inner.modify
        self.unregister = inner.unregister
        self.close = inner.close

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """Without waiting the turn goes on. `before_sleep` wakes others: after the end of the turn, or they would wake up only
        to wait for it."""
        if not timeout:
            self._before_sleep()
            return self._inner.poll(timeout, maxevents)
        turn = self._turn
        turn.end()
        self._before_sleep()
        events = self._inner.poll(timeout, maxevents)
        turn.begin()
        return events
