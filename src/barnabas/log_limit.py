"""Log lines that others can cause: one of a kind at a time, so that no peer and no broken disk fills the disk with them.

Role: `LogLimit` writes a line, or counts it when one of its kind was written within the interval; the next line says how many were
left out. For what goes wrong again and again: a reader that tries anew, a peer that sends rubbish. Not for hot paths: it costs a lock.
Thread: any. Lock: `_lock`, a leaf, for a few byte codes; never held while a line is written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
MOST_KINDS = 16
OTHERS = ""
"""Where further kinds are counted together while so many are known."""


class LogLimit:
    """At most one line of each kind per interval. Thread-safe."""

    __slots__ = ("_interval_ns", "_kinds", "_lock", "_logger", "_now_ns")

    def __init__(self, logger: logging.Logger, now_ns: Callable[[], int], interval_ns: int = SECOND_NS) -> None:
        """`now_ns` is `monotonic_ns` of a clock."""
        self._logger = logger
        self._now_ns = now_ns
        self._interval_ns = interval_ns
        self._kinds: dict[str, tuple[int, int]] = {}
        """kind -> (when the next line may be written, how many were left out since the last one)"""
        self._lock = threading.Lock()

    def error(self, kind: str, text: str, *values: object, exc_info: Exception | None = None) -> None:
        """Write the line, with how many of its kind were left out before; or leave it out."""
        self._log(logging.ERROR, kind, text, values, exc_info)

    def warning(self, kind: str, text: str, *values: object, exc_info: Exception | None = None) -> None:
        """The same at another level."""
        self._log(logging.WARNING, kind, text, values, exc_info)

    def _log(self, level: int, kind: str, text: str, values: tuple[object, ...], exc_info: Exception | None) -> None:
        if not self._logger.isEnabledFor(level):
            return
        left_out = self._admit(kind)
        if left_out:
            text += " (%d more like it were left out before)"
            values = (*values, left_out)
        if left_out is not None:
            self._logger.log(level, text, *values, exc_info=exc_info, stacklevel=3)

    def _admit(self, kind: str) -> int | None:
        """How many were left out since the last line of the kind; None when this one must be left out too."""
        now = self._now_ns()
        with self._lock:
            if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
                self._kinds = {known: state for known, state in self._kinds.items() if now < state[0]}
                if len(self._kinds) >= MOST_KINDS:
                    kind = OTHERS
            due_ns, left_out = self._kinds.get(kind, (now, 0))
            if now < due_ns:
                self._kinds[kind] = (due_ns, left_out + 1)
                return None
            self._kinds[kind] = (now + self._interval_ns, 0)
            return left_out

    def __repr__(self) -> str:
        return f"LogLimit({self._kinds})"
