"""One core for the threads of the request path, under the GIL.

Role:    with the GIL only one of these threads runs Python at a time, yet the system spreads them over the cores, and every hand-over
         from processor to handler and back then wakes a sleeping core, which costs more than the request (measured with 3
         network and 8 I/O threads: 5 300 requests/s over one connection when spread, 9 600 on one core; 20 000 and 31 000 over
         64). So they share one. When somebody else crowds that core, they go back to all cores for a while.
         Off without the GIL, with a single processor that runs requests itself, and by `barnabas.request.shared.core=false`.
Thread:  `join` and `leave` by each thread for itself; `watch` by any of them, now and then.
Lock:    `_lock` guards the members; held over a few system calls, never on the way of a request.
"""

from __future__ import annotations

import logging
import os
import threading

from barnabas.clock import Clock, SystemClock

log = logging.getLogger(__name__)

LOOK_NS = 1_000_000_000
PAUSE_NS = 30_000_000_000
CROWDED_SHARE = 0.25
NS_PER_TICK = 10_000_000


class SharedCore:
    """See the file header. Thread-safe."""

    def __init__(self, enabled: bool = True, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._members: set[int] = set()
        self._every = os.sched_getaffinity(0) if enabled and hasattr(os, "sched_getaffinity") else set()
        self.core = max(self._every) if len(self._every) > 1 else -1
        """The core that is shared; -1 when nothing is to be shared."""
        self.spread = False
        """Whether the members are on all cores at the moment."""
        self._look_ns = 0
        self._last = (0, 0, 0, 0)

    def join(self) -> None:
        """The calling thread belongs to the request path from now on."""
        if self.core >= 0:
            with self._lock:
                self._members.add(threading.get_native_id())
                if not self.spread:
                    self._place(threading.get_native_id(), {self.core})

    def leave(self) -> None:
        if self.core >= 0:
            with self._lock:
                self._members.discard(threading.get_native_id())

    def watch(self) -> None:
        """At most once a second: if others crowd the core, spread out, and try another core later."""
        now_ns = self._clock.monotonic_ns()
        if self.core < 0 or now_ns < self._look_ns:
            return
        with self._lock:
            if now_ns < self._look_ns:
                return
            self._look_ns = now_ns + LOOK_NS
            if self.spread:
                self._gather()
            last, self._last = self._last, (now_ns, *self._figures())
            if last[0]:
                wall, ran, waited, busy = (new - old for new, old in zip(self._last, last, strict=True))
                if is_crowded((busy - ran) / wall, waited / wall):
                    self._spread_out(now_ns)

    def _spread_out(self, now_ns: int) -> None:
        others = sorted(self._every - {self.core})
        log.info("core %d is crowded: the request path uses all cores for a while", self.core)
        for member in self._members:
            self._place(member, self._every)
        self.core = others[(now_ns // LOOK_NS) % len(others)]
        self.spread = True
        self._look_ns = now_ns + PAUSE_NS
        self._last = (0, 0, 0, 0)

    def _gather(self) -> None:
        self.spread = False
        for member in self._members:
            self._place(member, {self.core})

    def _figures(self) -> tuple[int, int, int]:
        """In ns since the start: how long members ran, how long they could have run but waited, how long the core was busy."""
        ran = waited = 0
        for member in self._members:
            fields = _fields(f"/proc/self/task/{member}/schedstat", "")
            ran += int(fields[0])
            waited += int(fields[1])
        ticks = [int(field) for field in _fields("/proc/stat", f"cpu{self.core} ")[1:9]]
        return ran, waited, (sum(ticks) - ticks[3] - ticks[4]) * NS_PER_TICK  # without idle and waiting for the disk

    @staticmethod
    def _place(member: int, cores: set[int]) -> None:
        try:
            os.sched_setaffinity(member, cores)
        except OSError as error:
            log.debug("thread %d cannot be placed on %s: %s", member, cores, error)

    def __repr__(self) -> str:
        return f"<SharedCore {self.core} members={len(self._members)}>"


def is_crowded(others: float, waited: float) -> bool:
    """Shares of the last second: how long others ran on the core, and how long members waited for it. Members also wait for
    each other, which is no reason to go: only one of them can run Python at a time."""
    return others > CROWDED_SHARE and waited > CROWDED_SHARE


def _fields(path: str, start: str) -> list[str]:
    """The fields of the first line that begins with `start`; zeros when there is none."""
    try:
        with open(path) as file:
            return next(line for line in file if line.startswith(start)).split()
    except (OSError, StopIteration):
        return ["0"] * 9
