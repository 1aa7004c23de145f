"""The request handlers, Kafka's "I/O threads" (RP-34, RP-35, RP-37), and the one way in which an API is run.

Role:    a handler takes requests from the channel, runs the API, gives the request's buffer back and hands the response to
         the processor it came from. `execute` is also what a processor calls for the inline short cut.
Thread:  each handler has its own; the pool's methods may be called from any.
Lock:    `RequestHandlerPool._lock` guards the list of handlers.

Wake-ups are batched: while further requests wait that cannot block, a handler puts its responses into the processors' queues
and wakes the processors at the end of the turn, at most `MAX_DEFER_NS` later. Under the GIL that is the difference between
a thread switch per response and one per batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from barnabas.broker import inline_work
from barnabas.broker.budget import NeedsHandler
from barnabas.broker.network.intake import decode_rest
from barnabas.broker.network.plane import Plane
from barnabas.broker.network.request import Request, Response
from barnabas.broker.network.request_channel import ResponseSink, ShutdownRequest
from barnabas.broker.network.time_share import TimeShare
from barnabas.broker.switch_interval import SHORT_TURNS
from barnabas.clock import SharedTimeout
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, MalformedRequest
from barnabas.protocol.api import ApiKey
from barnabas.threads import FreeNumbers, ServerThread

log = logging.getLogger(__name__)

TAKE_SECONDS = 0.3
MAX_DEFER_NS = 500_000
PRODUCE = int(ApiKey.PRODUCE)


def execute(request: Request, services: Any) -> Response | None:
    """Run the API of a request. The response to send now, or None when the request was answered or will be later. Only what
    ends the broker is raised, and, while it runs as a light one, `NeedsHandler`."""
    try:
        message = request.row.handle(request, services)
    except KafkaError as error:
        return _fail(request, error)
    except Exception as error:
        if request.inline and isinstance(error, NeedsHandler):
            raise
        log.exception("unexpected error while handling %s", request.describe())
        return _fail(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__} in the broker"))
    if message is None:
        if not request.local_done_ns:
            request.local_done_ns = request.request_channel.now_ns()
        return None
    return request.prepare(message)


def execute_light(request: Request, services: Any) -> Response | None:
    """As `execute`, for a light request of an inline API: `NeedsHandler` when it is heavy after all. Then it is unanswered."""
    request.inline = True
    inline_work.begin()
    try:
        return execute(request, services)
    except NeedsHandler:
        request.heavy = True
        raise
    finally:
        inline_work.end()
        request.inline = False


def execute_heavy(request: Request, services: Any, max_elements: int) -> Response | None:
    """As `execute`, for a request that is more than light: what the processor has not decoded is decoded first."""
    with SHORT_TURNS:
        try:
            decode_rest(request, max_elements)
        except MalformedRequest as error:
            return request.reject(error)
        except Exception:
            log.exception("unexpected error while decoding %s, closing the connection", request.describe())
            request.close_connection()
            return None
        return execute(request, services)


def _fail(request: Request, error: KafkaError) -> Response | None:
    """The API's own error response; a peer that expects no response learns of the error by a disconnect (RP-40)."""
    if request.answered:
        log.warning("%s failed after it was answered: %s", request, error)
        return None
    if request.header.api_key == PRODUCE and request.body is not None and request.body.acks == 0:
        request.close_connection()
        return None
    try:
        message = request.error_message(error)
    except Exception:
        log.exception("%s: no error response can be made, closing the connection", request)
        request.close_connection()
        return None
    return request.prepare(message)


class RequestHandler(ServerThread):
    """One handler thread; ends when it takes a ShutdownRequest."""

    def __init__(self, handler_id: int, plane: Plane) -> None:
        super().__init__(f"{plane.name}-kafka-request-handler-{handler_id}", plane.on_fatal)
        self.id = handler_id
        self._channel = plane.request_channel
        self._services = plane.services
        self._max_elements: int = plane.budget.max_elements
        self._now_ns = plane.clock.monotonic_ns
        self._baton_turn = plane.baton.turn()
        self._shared_core = plane.shared_core
        self.idle = TimeShare(plane.clock)
        self.handled = 0
        self._to_wake: dict[ResponseSink, None] = {}
        self._deferred_since_ns = 0
        self.on_end: Callable[[RequestHandler], None] | None = None

    def on_start(self) -> None:
        self._shared_core.join()
        self._seat = self._channel.sit_down()

    def on_stop(self) -> None:
        self._shared_core.leave()
        self._channel.stand_up(self._seat)
        if self.on_end is not None:
            self.on_end(self)

    def run_once(self) -> None:
        """Wait for a request, then handle what is there."""
        start_ns = self._now_ns()
        request = self._channel.take(TAKE_SECONDS, self._seat)
        now_ns = self._now_ns()
        self.idle.total_ns += now_ns - start_ns
        self._channel.drop_slow_answers()
        try:
            while request is not None:
                if isinstance(request, ShutdownRequest):
                    self.initiate_shutdown()
                    return
                self._handle(request, now_ns)
                request = self._channel.take_more(self._seat)
                now_ns = self._now_ns()
        finally:
            self._baton_turn.end()
            if self._to_wake:
                self._wake_processors()

    def _prepare(self, request: Request, now_ns: int) -> None:
        may_block = request.heavy or not request.row.inline
        if may_block:
            self._baton_turn.end()
        else:
            self._baton_turn.begin()
        if self._to_wake and (may_block or now_ns - self._deferred_since_ns > MAX_DEFER_NS):
            self._wake_processors()  # a finished response must not wait for what comes now
        if not request.local_done_ns:  # one that has waited comes back: that is RemoteTime
            request.dequeue_ns = now_ns

    def _handle(self, request: Request, now_ns: int) -> None:
        self._prepare(request, now_ns)
        try:
            response = self._execute(request)
        except NeedsHandler:
            if self._channel.put(request):
                return
            response = execute(request, self._services)  # the broker stops: no other handler takes it
        except BaseException:
            request.release_buffer()
            raise
        if request.buffer is not None:
            request.release_buffer()
        self.handled += 1
        if response is not None:
            asleep = request.deliver(response)
            if asleep is not None:
                if not self._to_wake:
                    self._deferred_since_ns = request.complete_ns
                self._to_wake[asleep] = None

    def _execute(self, request: Request) -> Response | None:
        """`NeedsHandler` when a request that looked light belongs among the heavy ones, of which only a few may run at a time."""
        if request.heavy:
            return execute_heavy(request, self._services, self._max_elements)
        if request.row.inline:
            return execute_light(request, self._services)
        return execute(request, self._services)

    def _wake_processors(self) -> None:
        for processor in self._to_wake:
            processor.wake()
        self._to_wake.clear()


class RequestHandlerPool:
    """Thread-safe. `num.io.threads` handlers on one channel."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._channel = plane.request_channel
        self._clock = plane.clock
        self._resizing = threading.Lock()
        self._lock = threading.Lock()
        self._handlers: dict[RequestHandler, None] = {}
        self._free_ids = FreeNumbers()
        self._target = 0
        self._closed = False

    def start(self, count: int) -> None:
        self.resize(count)

    def resize(self, count: int) -> None:
        """Have `count` handlers (RP-35). Those that are too many end after what is queued now; no request is lost. When a handler
        cannot be started its exception is raised, and those that were started stay."""
        with self._resizing:
            while (handler := self._new_handler(count)) is not None:
                self._start(handler)
            with self._lock:
                surplus = max(0, self._target - count)
                self._target -= surplus
        for _ in range(surplus):
            self._channel.put_shutdown()

    def _new_handler(self, count: int) -> RequestHandler | None:
        """One that is still to be started; None when there are enough."""
        with self._lock:
            if self._closed:
                raise BarnabasError("the broker is stopping")
            if self._target >= count:
                return None
            self._target += 1
            handler = RequestHandler(self._free_ids.take(), self._plane)
            handler.on_end = self._ended
            self._handlers[handler] = None
            return handler

    def _start(self, handler: RequestHandler) -> None:
        """Without the lock: a stop does not wait for it."""
        try:
            handler.start()
        except BaseException:
            self._ended(handler)
            with self._lock:
                self._target = max(0, self._target - 1)
            raise

    def _ended(self, handler: RequestHandler) -> None:
        with self._lock:
            if handler in self._handlers:
                del self._handlers[handler]
                self._free_ids.give_back(handler.id)

    def shutdown(self, timeout: float = 30.0) -> bool:
        """Let every handler end after what is queued (RP-3). False when one is still busy after `timeout` seconds."""
        with self._lock:
            self._closed = True
            handlers = list(self._handlers)
            surplus, self._target = self._target, 0
        for _ in range(surplus):
            self._channel.put_shutdown()
        patience = SharedTimeout(self._clock, timeout, least=0.01)
        ended = [handler.await_shutdown(patience.left) for handler in handlers]
        return all(ended)

    @property
    def handlers(self) -> list[RequestHandler]:
        with self._lock:
            return list(self._handlers)

    @property
    def size(self) -> int:
        """How many handlers there are to be; some may still be ending."""
        return self._target

    def idle_share(self) -> float:
        """RequestHandlerAvgIdlePercent, 0 to 1."""
        handlers = self.handlers
        return sum(handler.idle.share() for handler in handlers) / len(handlers) if handlers else 1.0

    def __repr__(self) -> str:
        return f"<RequestHandlerPool {self._plane.name} target={self._target} running={len(self._handlers)}>"
