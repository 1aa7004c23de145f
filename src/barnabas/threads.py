"""The common base of the broker's threads (RP-1).

Role: a start-up latch (`start()` returns only when the thread is ready or has failed, and then raises why) and a shutdown
latch (`shutdown()` wakes the thread and waits until it has closed everything it owns). A thread whose turns fail pauses between them.
Thread: `start`, `shutdown` and `is_alive` from any thread; the `on_*` hooks and `run_once` on the thread itself.
Lock: none; the latches are events. `FreeNumbers` is guarded by its owner's lock.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable

from barnabas.clock import SystemClock
from barnabas.errors import BarnabasError, FatalBrokerError
from barnabas.log_limit import MINUTE_NS, LogLimit

log = logging.getLogger(__name__)

FatalHandler = Callable[[str, BaseException], None]

LONGEST_WAIT_SECONDS = 86_400.0
"""More than any platform refuses to wait; who wants to wait longer looks again after a day."""
FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 1.0
_MOST_DOUBLINGS = 11


def wait_seconds(milliseconds: int) -> float:
    """The timeout for a wait of so many milliseconds: settings allow more than `threading.TIMEOUT_MAX` and epoll's int."""
    return min(milliseconds / 1000, LONGEST_WAIT_SECONDS)


def pause_seconds(failures: int) -> float:
    """How long a thread pauses after so many turns that failed: short at first, since the next turn may well succeed."""
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures, _MOST_DOUBLINGS) / 2)


class FreeNumbers:
    """Numbers from 0 for the threads of a pool: the smallest that nobody has."""

    def __init__(self) -> None:
        self._returned: list[int] = []
        self._next = 0

    def take(self) -> int:
        if self._returned:
            return heapq.heappop(self._returned)
        self._next += 1
        return self._next - 1

    def give_back(self, number: int) -> None:
        heapq.heappush(self._returned, number)


class ThreadFailedToStart(BarnabasError):
    """A thread raised before it was ready; `__cause__` says why."""


class ServerThread:
    """A loop over `run_once()` with an owner that starts and stops it.

    Subclasses override the hooks. An exception out of `run_once` is logged and the loop goes on after a pause, because one bad turn
    must never leave the broker half-dead; only `FatalBrokerError` ends the loop, and then `on_fatal` is told. While turns go on
    failing, pauses grow to `LONGEST_PAUSE_SECONDS` and the log gets one traceback of each kind per minute.
    """

    def __init__(self, name: str, on_fatal: FatalHandler | None = None) -> None:
        self.name = name
        self._on_fatal = on_fatal
        self._ready = threading.Event()
        self._stopped = threading.Event()
        self._stop_requested = threading.Event()
        self._failure: BaseException | None = None
        self._worker: threading.Thread | None = None
        self._failed_turns = 0
        """Turns that failed, less those that have succeeded since; counted up to what makes the pause longest."""
        self._errors = LogLimit(log, SystemClock.monotonic_ns, MINUTE_NS)

    # Hooks, all on the thread itself.

    def on_start(self) -> None:
        """Open what the thread owns; an exception here is raised by `start()`."""

    def run_once(self) -> None:
        """One turn of the loop; must return within a bounded time."""
        raise AssertionError(f"{type(self).__name__} has no run_once")

    def on_stop(self) -> None:
        """Close what the thread owns; runs on every way out."""

    def wakeup(self) -> None:
        """Make a waiting `run_once` return soon; called from other threads."""

    # Life cycle, from any thread.

    @property
    def running(self) -> bool:
        """False as soon as shutdown was asked for."""
        return not self._stop_requested.is_set()

    @property
    def ident(self) -> int | None:
        return self._worker.ident if self._worker else None

    def is_alive(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    def start(self, timeout: float = 30.0) -> None:
        """Start the thread and wait until it is ready; raise `ThreadFailedToStart` when it is not."""
        if self._worker is not None:
            raise BarnabasError(f"{self.name} was started before")
        self._worker = threading.Thread(target=self._run, name=self.name, daemon=True)
        try:
            self._worker.start()
        except RuntimeError as error:  # the system has no thread left
            self._worker = None
            raise ThreadFailedToStart(f"{self.name}: {error}") from error
        if not self._ready.wait(timeout):
            self._stop_requested.set()
            raise ThreadFailedToStart(f"{self.name} was not ready after {timeout} s")
        if self._failure is not None:
            raise ThreadFailedToStart(f"{self.name}: {self._failure}") from self._failure

    def initiate_shutdown(self) -> None:
        """Ask the thread to stop, without waiting."""
        self._stop_requested.set()
        self.wakeup()

    def await_shutdown(self, timeout: float = 30.0) -> bool:
        """Wait until the thread has closed what it owns. True when it has."""
        thread = self._worker
        if thread is None:
            return True
        if thread is threading.current_thread():
            return False
        stopped = self._stopped.wait(timeout)
        if stopped:
            thread.join(timeout)
        else:
            log.error("%s did not stop within %s s", self.name, timeout)
        return stopped

    def shutdown(self, timeout: float = 30.0) -> bool:
        self.initiate_shutdown()
        return self.await_shutdown(timeout)

    def _run(self) -> None:
        try:
            self.on_start()
        except BaseException as error:
            self._failure = error
            self._close()
            self._ready.set()
            return
        self._ready.set()
        try:
            while not self._stop_requested.is_set():
                self._turn()
        except BaseException as error:  # FatalBrokerError, or what is no Exception: the thread must not end unnoticed
            self._fatal(error)
        finally:
            self._close()

    def _turn(self) -> None:
        try:
            self.run_once()
        except FatalBrokerError:
            raise
        except Exception as error:
            self._failed_turns = min(self._failed_turns + 1, _MOST_DOUBLINGS)
            text = "%s: an unexpected error in one turn; going on"
            self._errors.error(type(error).__name__, text, self.name, exc_info=error)
            self._stop_requested.wait(pause_seconds(self._failed_turns))
            return
        if self._failed_turns:
            self._failed_turns -= 1

    def _fatal(self, error: BaseException) -> None:
        log.critical("%s: fatal: %s", self.name, error, exc_info=error)
        if self._on_fatal is not None:
            self._on_fatal(self.name, error)

    def _close(self) -> None:
        try:
            self.on_stop()
        except Exception:
            log.exception("%s: an error while closing", self.name)
        finally:
            self._stopped.set()

    def __repr__(self) -> str:
        state = "new" if self._worker is None else "running" if self.is_alive() else "stopped"
        return f"<{type(self).__name__} {self.name!r} {state}>"
