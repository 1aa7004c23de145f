"""A lock that is handed to whoever has waited longest.

Role: Python's own lock goes to whoever asks first after its release, and a thread that releases it only to take it again always does: a
loop over ten thousand partitions keeps everybody else waiting until its end. Use this one where loops take a lock in each round and hold
it over work on files; it costs a switch of threads per round, and only while somebody waits.
Thread: any. Lock: `_mutex`, a leaf.
"""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """Not reentrant. May be used with `with` and as the lock of a `threading.Condition`."""

    __slots__ = ("_held", "_mutex", "_waiting")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As that of `threading.Lock`."""
        with self._mutex:
            if not self._held:
                self._held = True
                return True
            if not blocking:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            if turn.acquire(timeout=timeout):
                return True
        except BaseException:  # a signal, in the main thread
            if not self._give_up(turn):
                self.release()
            raise
        return not self._give_up(turn)

    def _give_up(self, turn: threading.Lock) -> bool:
        """Wait no longer. False: the lock was handed over meanwhile."""
        with self._mutex:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False

    def release(self) -> None:
        with self._mutex:
            if not self._held:
                raise RuntimeError("release of a lock that nobody holds")
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<FairLock held={self._held} waiting={len(self._waiting)}>"
