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
from time import monotonic_ns

from barnabas.net.poller import Poller
from barnabas.records.kernel.turns import readable_soon

PATIENCE_SECONDS = 0.002
AWAKE_NS = 50_000
"""For so long a thread asks before it sleeps. A reader that drains its socket makes waits of that length: with 30 us it lost a quarter."""
SHORT_SLEEP_NS = 100_000
"""A sleep of less would have been a wait of `AWAKE_NS` at most: waking up takes the rest."""
CERTAIN = 256
LIKELY = 180
"""Of `CERTAIN`: seven of ten waits must have been short."""


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


class ShortWaits:
    """Whether the next wait is likely to be short, judged by how many of the last ones were: a moving average of about eight."""

    __slots__ = ("share",)

    def __init__(self) -> None:
        self.share = 0  # of CERTAIN

    def likely(self) -> bool:
        return self.share > LIKELY

    def note(self, short: bool) -> None:
        if short:
            self.share += (CERTAIN - self.share + 7) >> 3
        else:
            self.share -= (self.share + 7) >> 3


class TurnPoller:
    """A poller that ends its thread's turn while it waits, and is slow to fall asleep when that is likely to pay.

    Waking a sleeping thread costs tens of microseconds, on a virtual machine more than a request takes: a client that waits for each
    answer gets half as many without it. So while most waits are short, the thread stays awake for `AWAKE_NS` and asks, without the
    GIL; not while a handler works, which needs the core. Where most waits are longer (a producer that fills batches meanwhile) the time
    awake would only be taken from the client, a tenth of its rate on two cores; there, and when the broker is quiet, it sleeps at once.
    """

    __slots__ = (
        "_before_sleep",
        "_fd",
        "_inner",
        "_may_stay_awake",
        "_short_waits",
        "_turn",
        "close",
        "modify",
        "register",
        "unregister",
    )

    def __init__(
        self,
        inner: Poller,
        turn: Turn,
        before_sleep: Callable[[], None],
        may_stay_awake: Callable[[], bool] = lambda: True,
    ) -> None:
        self._inner = inner
        self._turn = turn
        self._before_sleep = before_sleep
        self._may_stay_awake = may_stay_awake
        self._short_waits = ShortWaits()
        # epoll has a descriptor of its own; without one there is nothing to ask, and the thread sleeps at once.
        fileno: Callable[[], int] | None = getattr(inner, "fileno", None)
        self._fd: int = -1 if fileno is None else fileno()
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
        events = self._wait(timeout, maxevents)
        turn.begin()
        return events

    def _wait(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        waits = self._short_waits
        if waits.likely() and self._fd >= 0 and self._may_stay_awake():
            ready = readable_soon(self._fd, AWAKE_NS)
            waits.note(ready)
            return self._inner.poll(0 if ready else timeout, maxevents)
        start = monotonic_ns()
        events = self._inner.poll(timeout, maxevents)
        waits.note(monotonic_ns() - start < SHORT_SLEEP_NS)
        return events
