"""The stand-in: runs the loop of a processor whose own thread is kept by the disk.

Role:    with durable acks a processor brings to disk itself what its turn has appended (`GroupCommit`): handing that to the flusher and
         waiting to be woken costs two thread switches per request, which is more than a good disk takes. A bad disk may take seconds.
         Then this thread runs the processor's turns, so that nobody else waits, until the processor is back.
Thread:  its own, asleep unless processors commit; `commit`, `add` and `remove` on a processor's.
Lock:    `Processor.loop` says who runs the processor's turns: its own thread, or this one. `_watched_lock` guards the list of
         processors, which is replaced whole.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from barnabas.clock import Clock
from barnabas.threads import FatalHandler, ServerThread

if TYPE_CHECKING:
    from barnabas.broker.network.processor import Processor

log = logging.getLogger(__name__)

PATIENCE_NS = 5_000_000
PARK_AFTER_NS = 1_000_000_000
PARKED_SECONDS = 0.1


class GroupCommit(Protocol):
    """What a processor does between two turns: bring to disk what requests wait for."""

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for a commit."""

    def join(self) -> None:
        """The calling thread will commit after each of its turns what it has asked for in it."""

    def leave(self) -> None:
        """It will not any more."""

    def commit(self) -> None:
        """May take as long as the disk."""


class StandIn(ServerThread):
    """See the file header. One for all processors of a plane."""

    def __init__(self, plane: str, commit: GroupCommit, clock: Clock, on_fatal: FatalHandler | None = None) -> None:
        super().__init__(f"{plane}-kafka-network-stand-in", on_fatal)
        self.group_commit = commit
        self._now_ns = clock.monotonic_ns
        self._watched: dict[Processor, None] = {}
        self._watched_lock = threading.Lock()
        self._bell = threading.Event()
        self._parked = False
        self._last_commit_ns = 0

    def commit(self, processor: Processor) -> None:
        """On the processor's thread, between two turns; the loop is free meanwhile."""
        processor.away_ns = self._last_commit_ns = self._now_ns()
        if self._parked:
            self._parked = False
            self._bell.set()
        try:
            self.group_commit.commit()
        finally:
            processor.away_ns = 0

    def add(self, processor: Processor) -> None:
        with self._watched_lock:
            self._watched = {**self._watched, processor: None}

    def remove(self, processor: Processor) -> None:
        with self._watched_lock:
            self._watched = {each: None for each in self._watched if each is not processor}

    def wakeup(self) -> None:
        self._bell.set()

    def run_once(self) -> None:
        self._bell.wait(PARKED_SECONDS if self._parked else PATIENCE_NS / 1e9)
        self._bell.clear()
        for processor in self._watched:
            self._help(processor)
        self._parked = self._now_ns() - self._last_commit_ns > PARK_AFTER_NS

    def _help(self, processor: Processor) -> None:
        away_ns = processor.away_ns
        if not away_ns or self._now_ns() - away_ns < PATIENCE_NS or not processor.loop.acquire(False):
            return
        try:
            log.info("the disk keeps %s, its connections are served by %s", processor.name, self.name)
            while processor.away_ns and self.running and processor.running:
                self._run_turn(processor)
        finally:
            processor.loop.release()

    def _run_turn(self, processor: Processor) -> None:
        try:
            processor.turn()
        except Exception:
            log.exception("%s: an unexpected error in one turn; going on", processor.name)
