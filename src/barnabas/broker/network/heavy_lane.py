"""The heavy requests of a request channel: which wait, how many run, and how much memory their answers hold (`broker/budget.py`).

Role:    keeps heavy requests apart, so that light ones overtake them: at most a quarter of the handlers run them at a time, and none is
         begun while clients have not taken what others were answered. The queue has no bound of its own: a connection has one request
         at a time, and to let a processor wait for room here would stop everybody else on it.
Thread:  any. Lock: that of the channel; every method is called with it held.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.network.request import ConnectionContext, Request

HANDLERS_PER_HEAVY = 4
PATIENCE_NS = 10_000_000_000
"""A client that has not taken its answer after this time is disconnected, if heavy requests of others wait for the memory."""


class HeavyLane:
    """See the file header."""

    __slots__ = ("_held", "_max_unsent", "running", "unsent", "waiting")

    def __init__(self, max_unsent: int) -> None:
        self._max_unsent = max_unsent
        self.waiting: deque[Request] = deque()
        self.running = 0
        self.unsent = 0
        self._held: dict[
            ConnectionContext, tuple[int, int, Request]
        ] = {}  # oldest first: since when, how many bytes, for what

    def may_begin(self, handlers: int) -> bool:
        """Whether one that waits may run now."""
        return bool(self.waiting) and self.running < max(1, handlers // HANDLERS_PER_HEAVY) and self.has_memory()

    def has_memory(self) -> bool:
        return self.unsent <= self._max_unsent

    def begin(self) -> Request:
        """The one that has waited longest; it counts as running until `end`."""
        self.running += 1
        return self.waiting.popleft()

    def end(self) -> None:
        self.running -= 1

    def hold(self, request: Request, size: int, now_ns: int) -> None:
        """The answer to `request` takes `size` bytes until `give_back`."""
        self.give_back(request.connection)
        self._held[request.connection] = (now_ns, size, request)
        self.unsent += size

    def give_back(self, connection: ConnectionContext) -> bool:
        """Its answer was sent, or never will be. Idempotent; whether there was one."""
        held = self._held.pop(connection, None)
        if held is not None:
            self.unsent -= held[1]
        return held is not None

    def overdue(self, now_ns: int) -> Request | None:
        """Whose answer has held memory for too long, while others wait for it."""
        if self.has_memory() or not self.waiting:
            return None
        connection, (since_ns, size, request) = next(iter(self._held.items()))
        if now_ns - since_ns < PATIENCE_NS:
            return None
        self._held[connection] = (now_ns, size, request)  # not again at once: its processor needs a moment
        return request

    def __repr__(self) -> str:
        return f"<HeavyLane waiting={len(self.waiting)} running={self.running} unsent={self.unsent}>"
