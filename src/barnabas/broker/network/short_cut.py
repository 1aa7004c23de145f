"""The short cut of ADR 1: a processor runs a light request itself, instead of handing it to another thread.

Role:    decides which requests may, and is the one place where a processor runs an API, with the stamps and metrics of the full path.
         Who breaks the promise not to block turns it off for a while; who finds more work than expected steps back (`NeedsHandler`).
Thread:  whoever runs the processor's turns. Lock: none of its own; they hold `Processor.loop`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.budget import NeedsHandler
from barnabas.broker.handlers import execute_light
from barnabas.broker.network.request import Request, Response

if TYPE_CHECKING:
    from barnabas.broker.network.plane import Plane

log = logging.getLogger(__name__)

LIMIT_NS = 20_000_000
PAUSE_NS = 1_000_000_000
PAUSE_FACTOR = 10
"""A request that blocks the processor sends the next ones to the handlers for ten times as long, but at most for a second: a thread
that had to wait for a core must not pay like one that had to wait for a disk."""


class ShortCut:
    """One for each processor."""

    __slots__ = ("_channel", "_name", "_now_ns", "_open_from_ns", "_plane", "runs", "stepped_back")

    def __init__(self, name: str, plane: Plane) -> None:
        self._name = name
        self._plane = plane
        self._channel = plane.request_channel
        self._now_ns = plane.clock.monotonic_ns
        self._open_from_ns = 0
        self.runs = 0
        self.stepped_back = 0

    def is_open(self, request: Request) -> bool:
        """Whether this request may take it. Heavy requests that wait are no reason to queue: light ones overtake them anyway."""
        return (
            self._plane.inline
            and request.row.inline
            and not request.heavy
            and not self._channel.has_light_waiting()
            and request.start_ns >= self._open_from_ns
        )

    def run(self, request: Request) -> Response | None:
        """The response to send now, or None when the request was answered or will be later. `NeedsHandler` when the request must be
        queued after all: it is unanswered, heavy, and still has its bytes."""
        request.dequeue_ns = start_ns = self._now_ns()
        try:
            response = execute_light(request, self._plane.services)
        except NeedsHandler:
            self.stepped_back += 1
            self._check_time(request, start_ns, self._now_ns())
            raise
        except BaseException:
            request.release_buffer()
            raise
        self.runs += 1
        if request.buffer is not None:
            request.release_buffer()
        self._check_time(request, start_ns, request.local_done_ns if response is None else request.complete_ns)
        return response

    def _check_time(self, request: Request, start_ns: int, end_ns: int) -> None:
        took_ns = end_ns - start_ns
        if took_ns > LIMIT_NS:
            self._open_from_ns = end_ns + min(PAUSE_NS, PAUSE_FACTOR * took_ns)
            log.info("%s: %s took %d ms inline, using handlers for a while", self._name, request, took_ns // 1_000_000)

    def __repr__(self) -> str:
        return f"<ShortCut of {self._name} runs={self.runs} stepped_back={self.stepped_back}>"
