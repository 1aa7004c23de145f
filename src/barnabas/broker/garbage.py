"""Short looks for garbage, however many partitions a broker has.

Role: Python's collector looks now and then at every object that there is, while nobody else runs: with 100 000 partitions 0.7 s each time,
and every two seconds while topics are being made. Nearly all of these objects live as long as their partition. So in a process that is a
broker's own the collector looks at new ones only, and those that have stayed are frozen, which leaves them out from then on. What became
garbage after it was frozen, and is not freed by its reference count, goes when the frozen ones have doubled: everything is looked at then.
Thread: the main thread's, between its waits. Lock: none; the collector has the GIL.

Not for brokers in somebody else's process, whose garbage is not ours. From Python 3.14 on the collector works in small steps by itself.
"""

from __future__ import annotations

import gc
import sys

__all__ = ["GarbageKeeper"]

SETTLE_SECONDS = 1.0
"""How often to look whether there is enough that is new."""
_SETTLE_AFTER = 8
"""In looks at what is new, of which each has left some 7000 objects. To count what is frozen a list of all of it would have to be walked,
which takes a tenth of a second with millions; so these looks are counted."""
_LEAST_FROZEN = 70
"""In looks too: up to so many a look at everything is short."""
_MOST_PUT_OFF = 60
"""So often a look is put off while the broker is busy; then cycles of garbage may have become many too."""
_NEVER = 2**31 - 1


class GarbageKeeper:
    """Owned by the main thread of a broker's process; `stop` leaves the collector as it was."""

    def __init__(self) -> None:
        self.needed = sys.version_info < (3, 14) and getattr(sys, "_is_gil_enabled", lambda: True)()
        self.settled = self.full_looks = self._put_off = 0
        self._frozen = self._frozen_at_full_look = 0  # in looks
        self._before = gc.get_threshold()

    def start(self) -> None:
        """What was imported and loaded until now stays."""
        if self.needed:
            gc.set_threshold(*self._before[:2], _NEVER)
            gc.freeze()

    def settle(self, busy: bool = False) -> None:
        """Collect what is garbage among the new objects and freeze the others, if there are enough of them. While the broker is `busy`
        with a heavy request, most of them are that request's, and a look at a million of them stops everybody: it is put off."""
        new = gc.get_count()[2]
        if not self.needed or new < _SETTLE_AFTER:
            return
        if busy and self._put_off < _MOST_PUT_OFF:
            self._put_off += 1
            return
        self._put_off = 0
        self._frozen += new
        if self._frozen > 2 * max(self._frozen_at_full_look, _LEAST_FROZEN):
            self._frozen_at_full_look = self._frozen
            self.full_looks += 1
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.settled += 1

    def stop(self) -> None:
        if self.needed:
            gc.set_threshold(*self._before)
            gc.unfreeze()

    def __repr__(self) -> str:
        return f"<GarbageKeeper settled={self.settled} full_looks={self.full_looks}>"
