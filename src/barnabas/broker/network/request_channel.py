"""The one bounded queue between processors and handlers, and the way back to the right processor (RP-27, RP-30).

Role:    `put` by processors, `take` by handlers, `send_response` by whoever answers. Nothing is ever dropped for lack of
         room: `put` waits, so back-pressure reaches the sockets.
Thread:  any.
Lock:    `_lock` guards queue, seats and registry; it is held for a few byte codes and never while calling out.

Waking. Under the GIL every further active thread costs more than it brings, so a `put` wakes an idle handler only when no
handler is awake: an awake one looks at the queue again before it parks. A handler that is awake but blocked (a slow disk)
must not hold up the queue, so a processor that has left a backlog behind polls for a millisecond only and then calls
`nudge`, which wakes a further handler when the queue has not moved, and from then on does not count the blocked one as
awake. Idle handlers are woken last in, first out: the most recent one has warm caches, and the others stay asleep. Builds
without the GIL set `eager` and wake an idle handler for each request.

Slow requests, heavy ones and those of administrators, have a lane of their own (`slow_lane.py`). Of the oldest of both kinds the older one
is taken; others overtake when no slow one may begin. Who runs a slow one counts as blocked from the start, and gives its place back when it
returns to the queue.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Protocol

from barnabas.broker.budget import Budget
from barnabas.broker.network.request import (
    CloseConnectionResponse,
    ConnectionContext,
    EndThrottlingResponse,
    Request,
    Response,
    SendResponse,
    StartThrottlingResponse,
)
from barnabas.broker.network.slow_lane import SlowLane, Turns
from barnabas.clock import Clock, SystemClock

log = logging.getLogger(__name__)

Schedule = Callable[[int, Callable[[], None]], Callable[[], object] | None]
"""`schedule(delay_ms, callback)`: run `callback` once, on some other thread, after the delay. What it returns prevents that."""

PUT_SLICE_SECONDS = 0.1
"""How long a blocked `put` waits before it looks whether it is still wanted."""

STALLED_NS = 1_000_000
"""A queue that has not moved for this long wakes a further handler."""

STALE_NS = 5_000_000
"""A request that has waited this long does so even though the queue moves."""


class ShutdownRequest:
    """Ends the handler that takes it (RP-34)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SHUTDOWN"


SHUTDOWN = ShutdownRequest()


class ResponseSink(Protocol):
    """What the registry needs of a processor."""

    id: int

    def enqueue_response(self, response: Response) -> None:
        """Queue it and wake the processor if it sleeps."""

    def post_response(self, response: Response) -> bool:
        """Queue it only; True when the processor sleeps, so that somebody must `wake` it soon."""

    def wake(self) -> None:
        """Wake the processor if it sleeps although responses wait."""

    def response_queue_size(self) -> int: ...


class Seat:
    """One handler's place at the queue: parked on its bell while there is nothing to do."""

    __slots__ = ("bell", "blocked", "parked", "slow")

    def __init__(self) -> None:
        self.bell = threading.Lock()
        self.bell.acquire()
        self.parked = False
        self.blocked = False  # awake but in a request that does not come to an end: not counted as awake
        self.slow: Turns | None = None  # where its slow request comes from

    def ring(self) -> None:
        """Wake its handler. Never waits, and may come late, when the handler has woken up by itself: then its next wait ends at once."""
        try:
            self.bell.release()
        except RuntimeError:
            log.debug("a handler is rung for twice")  # an earlier ring has not been heard yet: it wakes the handler too


class RequestChannel:
    """Thread-safe. One for the data plane, one for the control plane (RP-36)."""

    def __init__(
        self,
        limit: int = 500,
        *,
        clock: Clock | None = None,
        schedule: Schedule | None = None,
        eager: bool = False,
        budget: Budget | None = None,
    ) -> None:
        self.limit = limit
        self.now_ns: Callable[[], int] = (clock or SystemClock()).monotonic_ns
        self._schedule = schedule
        self._eager = eager
        self._lock = threading.Lock()
        self._not_full = threading.Condition(self._lock)
        self._queue: deque[Request | ShutdownRequest] = deque()
        self._slow = SlowLane((budget or Budget()).unsent_bytes)
        self._seats: set[Seat] = set()
        self._idle: list[Seat] = []
        self._inline_waiting = 0  # requests in the queue that a processor may run too
        self._awake = 0  # seats that are neither parked nor blocked
        self._putters = 0
        self._taken = 0
        self._taken_at_nudge = -1
        self._moved_ns = self._nudged_ns = 0
        self._closed = False
        self._slow_closed = False
        self._processors: dict[int, ResponseSink] = {}

    # ---- requests ------------------------------------------------------------------------------------------------

    def put(self, request: Request, still_wanted: Callable[[], bool] | None = None) -> bool:
        """Queue a request; wait while the queue is full. False when the channel was closed or `still_wanted` said no."""
        queued, seat = self.post(request, still_wanted)
        if seat is not None:
            seat.ring()
        return queued

    def post(self, request: Request, still_wanted: Callable[[], bool] | None = None) -> tuple[bool, Seat | None]:
        """As `put`, but the caller rings the bell of the seat that this returns: a processor does so just before it sleeps,
        because a handler that wakes while the processor still holds the GIL would only go to sleep again."""
        with self._lock:
            if request.is_slow():
                if self._slow_closed:
                    return False, None
                self._slow.append(request)
            else:
                if (len(self._queue) >= self.limit or self._closed) and not self._wait_for_room(still_wanted):
                    return False, None
                self._queue.append(request)
                self._inline_waiting += request.row.inline
            if not self._idle or (self._awake > 0 and not self._eager) or not self._has_work():
                return True, None
            return True, self._unpark()

    def _wait_for_room(self, still_wanted: Callable[[], bool] | None) -> bool:
        """Called with the lock. Every handler is needed now, so all idle ones are woken."""
        self._putters += 1
        try:
            while len(self._queue) >= self.limit and not self._closed:
                while self._idle:
                    self._unpark().ring()
                self._not_full.wait(PUT_SLICE_SECONDS)
                if still_wanted is not None and not still_wanted():
                    return False
        finally:
            self._putters -= 1
        return not self._closed

    def put_shutdown(self) -> None:
        """Let one handler end after what is queued now. Not bounded, so that shutdown cannot block behind the load."""
        with self._lock:
            self._queue.append(SHUTDOWN)
            seat = self._unpark() if self._idle else None
        if seat is not None:
            seat.ring()

    def take(self, timeout: float, seat: Seat | None = None) -> Request | ShutdownRequest | None:
        """The oldest request, or None after `timeout` seconds. A handler passes the seat it got from `sit_down`."""
        if seat is None:
            return self._take_without_a_seat(timeout)
        with self._lock:
            self._come_back(seat)
            request = self._pop(seat)
            if request is not None:
                return request
            seat.parked = True
            self._awake -= 1
            self._idle.append(seat)
        seat.bell.acquire(timeout=timeout)
        with self._lock:
            if seat.parked:  # nobody has chosen it: the time is over, or a ring came late
                self._idle.remove(seat)
                seat.parked = False
                self._awake += 1
            # Else its ring may still be on the way. To wait for it here would be a deadlock: who rings may need this lock first.
            return self._pop(seat)

    def _take_without_a_seat(self, timeout: float) -> Request | ShutdownRequest | None:
        seat = self.sit_down()
        try:
            return self.take(timeout, seat)
        finally:
            self.stand_up(seat)

    def take_more(self, seat: Seat) -> Request | ShutdownRequest | None:
        """The oldest request if there is one; a handler that is not finished with its turn calls this."""
        with self._lock:
            self._come_back(seat)
            return self._pop(seat)

    def _come_back(self, seat: Seat) -> None:
        """Whatever this handler did has ended."""
        if seat.blocked:
            seat.blocked = False
            self._awake += 1
        if seat.slow is not None:
            self._slow.end(seat.slow)
            seat.slow = None

    def _pop(self, seat: Seat) -> Request | ShutdownRequest | None:
        queue = self._queue
        turns = self._slow.next_turns(len(self._seats))
        if turns is not None and self._is_older(turns.first()):
            return self._pop_slow(seat, turns)
        if not queue:
            return None
        self._taken += 1
        if self._putters:
            self._not_full.notify()
        request = queue.popleft()
        if isinstance(request, Request):
            self._inline_waiting -= request.row.inline
        return request

    def _is_older(self, slow: Request) -> bool:
        """A ShutdownRequest comes after all that may still be begun."""
        head = self._queue[0] if self._queue else None
        return not isinstance(head, Request) or slow.start_ns <= head.start_ns

    def _pop_slow(self, seat: Seat, turns: Turns) -> Request:
        """From now on this handler is away for a while: another one takes over what is queued."""
        self._taken += 1
        seat.slow = turns
        seat.blocked = True
        self._awake -= 1
        request = self._slow.begin(turns)
        if self._idle and self._awake <= 0 and self._has_work():
            self._unpark().ring()
        return request

    def _has_work(self) -> bool:
        """Whether something waits that a handler may begin."""
        return bool(self._queue) or self._slow.next_turns(len(self._seats)) is not None

    def _unpark(self) -> Seat:
        seat = self._idle.pop()
        seat.parked = False
        self._awake += 1
        return seat

    # ---- handlers ------------------------------------------------------------------------------------------------

    def sit_down(self) -> Seat:
        """A handler joins; it counts as awake until its first `take`."""
        seat = Seat()
        with self._lock:
            self._seats.add(seat)
            self._awake += 1
        return seat

    def stand_up(self, seat: Seat) -> None:
        """A handler leaves. If it was the last one awake, another takes over what is queued."""
        other = None
        with self._lock:
            self._come_back(seat)
            self._seats.discard(seat)
            self._awake -= 1
            if self._idle and self._awake <= 0 and self._has_work():
                other = self._unpark()
        if other is not None:
            other.ring()

    def has_backlog(self) -> bool:
        """Whether requests wait although a handler is idle; a processor then polls briefly and nudges."""
        return bool(self._idle) and self._has_work()

    def nudge(self) -> bool:
        """A processor that saw a backlog, a moment later: wake a further handler when the queue has not moved for a while, or
        moves too slowly. True when one was woken."""
        with self._lock:
            if not self._idle or not self._has_work():
                return False
            now_ns = self.now_ns()
            if self._taken != self._taken_at_nudge:
                self._taken_at_nudge = self._taken
                self._moved_ns = now_ns
            stalled = now_ns - self._moved_ns >= STALLED_NS
            if not stalled and not self._is_stale(now_ns):
                return False
            if stalled:
                self._discount_blocked()
            self._moved_ns = self._nudged_ns = now_ns  # the one woken now needs a moment too
            seat = self._unpark()
        seat.ring()
        return True

    def _is_stale(self, now_ns: int) -> bool:
        head = self._queue[0] if self._queue else None
        if now_ns - self._nudged_ns < STALLED_NS or not isinstance(head, Request):
            return False
        return now_ns - head.start_ns >= STALE_NS

    def _discount_blocked(self) -> None:
        """Nobody has taken anything since the last nudge, so whoever is awake is blocked; each counts again when it comes
        back to the queue."""
        for seat in self._seats:
            if not seat.parked and not seat.blocked:
                seat.blocked = True
                self._awake -= 1

    # ---- responses -----------------------------------------------------------------------------------------------

    def send_response(self, response: Response) -> None:
        """Hand a response to the processor that received its request (RP-28)."""
        processor = self._processor_of(response)
        if processor is not None:
            processor.enqueue_response(response)

    def post_response(self, response: Response) -> ResponseSink | None:
        """As `send_response`, without waking: the caller wakes the processor that this returns, and may do so once for many
        responses."""
        processor = self._processor_of(response)
        return processor if processor is not None and processor.post_response(response) else None

    def _processor_of(self, response: Response) -> ResponseSink | None:
        request = response.request
        processor = self._processors.get(request.processor_id)
        if processor is None:
            log.warning("dropping %r: its processor was removed", response)
        elif request.heavy and type(response) is SendResponse:
            with self._lock:
                self._slow.hold(request, response.send.memory(), self.now_ns())
        return processor

    def answer_gone(self, connection: ConnectionContext) -> None:
        """The answer to a heavy request has left, or never will; every processor says so. Heavy requests may wait for its memory."""
        seat = None
        with self._lock:
            if self._slow.give_back(connection) and self._idle and self._awake <= 0 and self._has_work():
                seat = self._unpark()
        if seat is not None:
            seat.ring()

    def drop_slow_answers(self) -> None:
        """Disconnect a client that takes the answer to a heavy request too slowly while other heavy requests wait for the memory. Called
        by handlers in each of their turns."""
        if not self._slow.is_short():
            return
        with self._lock:
            late = self._slow.overdue(self.now_ns())
        if late is not None:
            log.warning(
                "closing the connection of %s: it takes its answer too slowly, and others wait for the memory", late
            )
            self.send_response(CloseConnectionResponse(late))

    def start_throttling(self, request: Request) -> None:
        """Mute the channel of `request` until its throttle time is over (RP-39). A peer that sends no more cannot be slowed down."""
        if request.connection.hung_up:
            return
        start, end = StartThrottlingResponse(request), EndThrottlingResponse(request)
        self.send_response(start)
        if self._schedule is None:
            log.error("nothing can delay %r: no scheduler was given", request)
            self.send_response(end)
        else:
            start.cancel_end = self._schedule(request.throttle_ms, lambda: self.send_response(end))

    # ---- processors ----------------------------------------------------------------------------------------------

    def add_processor(self, processor: ResponseSink) -> None:
        with self._lock:
            duplicate = processor.id in self._processors
            if not duplicate:
                self._processors = {**self._processors, processor.id: processor}
        if duplicate:
            log.warning("processor %d is registered already; the first one stays", processor.id)

    def remove_processor(self, processor_id: int) -> None:
        with self._lock:
            self._processors = {key: value for key, value in self._processors.items() if key != processor_id}

    @property
    def processors(self) -> Mapping[int, ResponseSink]:
        """A snapshot that never changes."""
        return self._processors

    # ---- life cycle and figures ----------------------------------------------------------------------------------

    def drop_slow(self) -> list[Request]:
        """For a stop, which must not wait for a lane that has no bound: no further slow request is accepted, and those that have not
        begun are taken out. The caller closes their connections."""
        with self._lock:
            self._slow_closed = True
            left = self._slow.waiting()
            self._slow.clear()
        return left

    def close(self) -> None:
        """No further request is accepted; what is queued can still be taken."""
        with self._lock:
            self._closed = self._slow_closed = True
            self._not_full.notify_all()

    def clear(self) -> list[Request]:
        """Take out everything that is queued, for a shutdown that must not wait for it."""
        with self._lock:
            left = [item for item in self._queue if isinstance(item, Request)]
            left.extend(self._slow.waiting())
            self._queue.clear()
            self._inline_waiting = 0
            self._slow.clear()
            self._not_full.notify_all()
        return left

    def is_full(self) -> bool:
        return len(self._queue) >= self.limit

    def depth(self) -> int:
        """Requests that wait, of all kinds."""
        return len(self._queue) + len(self._slow)

    def slow_depth(self) -> int:
        """Heavy requests and those of administrators that wait."""
        return len(self._slow)

    def slow_running(self) -> int:
        return self._slow.running

    def heavy_unsent(self) -> int:
        """Bytes of answers to heavy requests that have not left yet."""
        return self._slow.unsent

    def has_inline_waiting(self) -> bool:
        """Whether requests wait that a processor may run too: further ones of that kind queue behind them."""
        return self._inline_waiting > 0

    def all_parked(self) -> bool:
        """Whether no handler has anything to do."""
        return len(self._idle) == len(self._seats)

    def idle_handlers(self) -> int:
        return len(self._idle)

    def response_queue_size(self) -> int:
        return sum(processor.response_queue_size() for processor in self._processors.values())

    def wait_until_empty(self, timeout: float) -> bool:
        """Used by the orderly shutdown, before the handlers are asked to end."""
        deadline = monotonic() + timeout
        pause = threading.Event()
        while self.depth() and monotonic() < deadline:
            pause.wait(0.002)
        return not self.depth()

    def __repr__(self) -> str:
        return (
            f"<RequestChannel {len(self._queue)}/{self.limit} handlers={len(self._seats)} idle={len(self._idle)} "
            f"processors={len(self._processors)} {self._slow!r}>"
        )
