"""Requests that wait until their bytes are on disk (RP-41).

Role: group commit: many waiters, one flush. A waiter is told once, with NONE or with the error.
Thread: `add` by request threads, `complete` and `fail` by the flusher. Lock: its own, never held while calling out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from barnabas.errors import ErrorCode

log = logging.getLogger(__name__)

DurableCallback = Callable[[ErrorCode], None]


class DurableWaiters:
    """Callbacks by the offset that must be durable."""

    __slots__ = ("_durable", "_failure", "_lock", "_waiting")

    def __init__(self, durable: int) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, DurableCallback]] = []
        self._durable = durable
        self._failure: ErrorCode | None = None

    @property
    def durable(self) -> int:
        """Everything below this offset is on disk."""
        return self._durable

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int, callback: DurableCallback) -> bool:
        """True when the callback waits for a flush; else it was called at once."""
        with self._lock:
            outcome = self._failure
            if outcome is None and self._durable < offset:
                self._waiting.append((offset, callback))
                return True
        _call(callback, outcome or ErrorCode.NONE)
        return False

    def complete(self, durable: int) -> None:
        """Everything below `durable` is on disk: tell those who waited for it."""
        with self._lock:
            if self._failure is not None or durable <= self._durable:
                return
            self._durable = durable
            ready = [callback for offset, callback in self._waiting if offset <= durable]
            self._waiting = [waiter for waiter in self._waiting if waiter[0] > durable]
        for callback in ready:
            _call(callback, ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """The bytes will never be known to be on disk: tell all who wait, and all who come."""
        with self._lock:
            self._failure = self._failure or error
            failed, self._waiting = self._waiting, []
        for _, callback in failed:
            _call(callback, error)

    def __repr__(self) -> str:
        return f"DurableWaiters(durable={self._durable}, waiting={len(self._waiting)}, failure={self._failure})"


def _call(callback: DurableCallback, outcome: ErrorCode) -> None:
    """One waiter's bug must not keep the others waiting."""
    try:
        callback(outcome)
    except Exception:
        log.exception("a callback that waited for the disk failed")
