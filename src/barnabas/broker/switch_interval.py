"""Shorter turns of the GIL while heavy requests run.

Role: a thread that comes back from a system call waits for the GIL up to Python's switch interval, 5 ms, when another one computes; a
request needs it several times. So while a heavy request is worked on, the interval is a tenth of that. Not always: short turns cost
switches, and where nobody computes for long they bring nothing.
Thread: any. Lock: `_lock`, a leaf.

The interval is the whole process's, so this is used by `barnabas broker` only, not by a broker in somebody else's process.
"""

from __future__ import annotations

import sys
import threading

SHORT_SECONDS = 0.0005


class ShortTurns:
    """`with SHORT_TURNS:` around the work on a heavy request; any number of them at a time. Does nothing until it is enabled."""

    __slots__ = ("_before", "_lock", "_users", "enabled")

    def __init__(self) -> None:
        self.enabled = False
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0.0

    @property
    def in_use(self) -> bool:
        """Whether a heavy request is worked on at the moment."""
        return self._users > 0

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1 and self.enabled:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, SHORT_SECONDS))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._before:
                sys.setswitchinterval(self._before)
                self._before = 0.0

    def __repr__(self) -> str:
        return f"<ShortTurns enabled={self.enabled} users={self._users}>"


SHORT_TURNS = ShortTurns()
