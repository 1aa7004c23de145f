"""A processor: the network thread that owns a share of a listener's connections (RP-12 … RP-22).

Role:    reads requests from its connections, queues them (or runs them itself, see `short_cut.py`), sends the responses, and
         records each finished request. `run_once` is the table of contents: seven phases in Kafka's order.
Thread:  everything runs on the processor's own thread, except `accept*`, `*_response`, `wake*`, `stop_reading` and the
         figures. Only this thread touches the selector and its channels; while the disk keeps it, its stand-in does.
Lock:    `loop` is held by the thread that runs the turns; what other threads leave here is in a `Mailbox`, which has its own.

No error of one channel ends the loop: it is logged with the connection's id, the channel is closed and its quota returned.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from barnabas import TRACE
from barnabas.broker.budget import NeedsHandler
from barnabas.broker.listeners import Listener
from barnabas.broker.network.baton import TurnPoller
from barnabas.broker.network.intake import Intake, OverBudget
from barnabas.broker.network.mailbox import Mailbox
from barnabas.broker.network.outbox import Outbox
from barnabas.broker.network.plane import Plane
from barnabas.broker.network.request import (
    CloseConnectionResponse,
    ConnectionContext,
    EndThrottlingResponse,
    NoOpResponse,
    Request,
    Response,
    SendResponse,
    StartThrottlingResponse,
    connection_id,
    log_rejected,
    trace_response,
)
from barnabas.broker.network.short_cut import ShortCut
from barnabas.broker.network.software import SoftwareCounts
from barnabas.broker.network.time_share import TimeShare
from barnabas.errors import ErrorCode, MalformedRequest
from barnabas.log_limit import LogLimit
from barnabas.net.mute import THROTTLE_ENDED, THROTTLE_STARTED
from barnabas.net.poller import default_poller
from barnabas.net.read_on import ReadOn
from barnabas.net.selector import Selector
from barnabas.protocol.api import ApiKey
from barnabas.threads import ServerThread

if TYPE_CHECKING:
    from barnabas.broker.network.request_channel import Seat
    from barnabas.net.channel import Channel, Receive

log = logging.getLogger(__name__)

POLL_SECONDS = 0.3
WATCH_SECONDS = 0.001
LOOP_SECONDS = 0.05
FLUSH_NS = 5_000_000_000
MAX_INDEX = 2**31 - 1
API_VERSIONS = int(ApiKey.API_VERSIONS)
_peek = Struct(">hh").unpack_from


class Processor(ServerThread):
    """See the file header."""

    def __init__(self, processor_id: int, listener: Listener, plane: Plane) -> None:
        name = (
            f"{plane.name}-kafka-network-thread-{plane.node_id}-ListenerName({listener.name})-"
            f"{listener.security_protocol}-{processor_id}"
        )
        super().__init__(name, plane.on_fatal)
        self.id = processor_id
        self.listener = listener
        self._plane = plane
        self._request_channel = plane.request_channel
        self._quotas = plane.quotas
        self._intake = Intake(plane, listener.name)
        self._short_cut = ShortCut(name, plane)
        self._now_ns = plane.clock.monotonic_ns
        self._warnings = LogLimit(log, self._now_ns)
        self.shard = plane.request_metrics.new_shard()
        self.idle = TimeShare(plane.clock)
        self._baton_turn = plane.baton.turn()
        self.selector = Selector(
            plane.memory_pool,
            plane.max_request_bytes,
            plane.idle_ns,
            plane.deadlines,
            plane.clock,
            TurnPoller(default_poller(), self._baton_turn, self._ring, self._may_stay_awake),
        )
        self.selector.reading.read_on = ReadOn(*plane.read_on)
        self.selector.sending.memory = plane.unsent
        self._stand_in = plane.stand_in
        self.loop = threading.Lock()
        self.away_ns = 0  # since when this thread waits for the disk; 0 when it does not
        self._mailbox = Mailbox(self.selector.wakeup)
        self._responses = self._mailbox.responses
        self._outbox = Outbox(self.selector, self._process_response, self._finish_sent)
        self._sent: list[SendResponse] = []  # their last byte has left, and nothing else is done about them yet
        self._owes = False  # whether a request of this turn is answered by another thread, which needs the core more
        self._to_ring: list[Seat] = []  # handlers to wake just before this thread sleeps
        self._reading = True
        self._index = 0
        self._turns = 0
        self._trace = log.isEnabledFor(TRACE)
        self.over_budget = 0  # requests that named more elements than the cap
        self._software = SoftwareCounts()
        self.software = self._software.counts
        self.expired_killed = 0  # connections whose authentication had expired; SASL counts here
        self._by_kind: dict[type[Response], Callable[[Any], None]] = {
            SendResponse: self._send_response,
            NoOpResponse: self._no_response,
            CloseConnectionResponse: self._close_as_response,
            StartThrottlingResponse: self._start_throttling,
            EndThrottlingResponse: self._end_throttling,
        }

    def on_start(self) -> None:
        self._plane.shared_core.join()
        if self._stand_in is not None:
            self._stand_in.add(self)
            self._stand_in.group_commit.join()

    # ---- the loop ------------------------------------------------------------------------------------------------

    def run_once(self) -> None:
        """One turn, and what it has written to the disk when somebody waits for that."""
        stand_in = self._stand_in
        if stand_in is None:
            self.turn()
            return
        self._take_loop()
        try:
            self.turn()
            wanted = stand_in.group_commit.wanted
            if wanted:
                self._outbox.push()
        finally:
            self.loop.release()
        if wanted:
            self._baton_turn.end()
            stand_in.commit(self)

    def _take_loop(self) -> None:
        """Back from the disk: the stand-in, if it runs the turns now, ends with its next one."""
        if not self.loop.acquire(False):
            self.selector.wakeup()
            while not self.loop.acquire(True, LOOP_SECONDS):
                self.selector.wakeup()

    def turn(self) -> None:
        self.configure_new_connections()
        self.process_new_responses()
        self.poll()
        self.process_completed_receives()
        self.process_completed_sends()
        self.process_disconnected()
        self.close_excess_connections()

    # ---- 1: new connections --------------------------------------------------------------------------------------

    def configure_new_connections(self) -> None:
        """Register what the acceptor left here (RP-12), at most a queue's worth per turn, so that the others go on."""
        for _ in range(self._mailbox.connections_waiting()):
            sock, address = self._mailbox.take_connection()
            try:
                self._register(sock, address)
            except Exception as error:
                text = "processor %d closed the connection from %s: %s"
                bug = None if isinstance(error, OSError) else error  # the peer may be gone already
                self._warnings.warning("register", text, self.id, address, error, exc_info=bug)
                sock.close()
                self._quotas.release(self.listener.name, address)

    def _register(self, sock: socket.socket, address: str) -> None:
        connection = connection_id(sock, self._index)
        self._index = 0 if self._index == MAX_INDEX else self._index + 1
        context = ConnectionContext(connection, address, self.listener.name, self.listener.security_protocol)
        channel = self.selector.register(context.connection_id, sock, attachment=context)
        context.channel = channel
        context.principal = channel.principal
        if not self._reading:
            self.selector.mute(channel)

    # ---- 2: responses --------------------------------------------------------------------------------------------

    def process_new_responses(self) -> None:
        """By kind (RP-13). What arrives meanwhile waits for the next turn, which does not sleep then."""
        responses = self._responses
        for _ in range(len(responses)):
            self._process_response(responses.popleft())
        self._finish_sent()

    def _process_response(self, response: Response) -> None:
        response.request.response_dequeue_ns = self._now_ns()
        try:
            self._by_kind[type(response)](response)
        except Exception:
            self._channel_failed(response.request.connection, "processing a response")

    def _send_response(self, response: SendResponse) -> None:
        context = response.request.connection
        channel = context.channel
        if channel is None:
            log.debug("%s is closed, its response is dropped", context.connection_id)
            self._record(response.request, self._now_ns())
            self._answer_gone(response.request)
            return
        if self._trace:
            trace_response(log, "sending %d bytes", response, response.send.size)
        if self.selector.send(channel, response.send):
            self._sent.append(response)
        else:
            context.in_flight = response

    def _no_response(self, response: NoOpResponse) -> None:
        request = response.request
        self._record(request, self._now_ns())
        if self._trace:
            trace_response(log, "no response is needed", response)
        channel = request.connection.channel
        if channel is not None:
            self._end_request(channel)

    def _close_as_response(self, response: CloseConnectionResponse) -> None:
        if self._trace:
            trace_response(log, "the connection is closed", response)
        request = response.request
        if response.error is not None:
            self._rejected(request.connection, request.header.api_key, request.header.api_version, response.error)
        elif request.connection.in_flight is None:  # else its answer is under way, and recorded with the close
            self._record(request, self._now_ns())
        self._close_connection(request.connection)

    def _start_throttling(self, response: StartThrottlingResponse) -> None:
        if self._trace:
            trace_response(log, "throttling starts for %d ms", response, response.request.throttle_ms)
        context = response.request.connection
        channel = context.channel
        if channel is not None and not context.hung_up:
            channel.handle_mute_event(THROTTLE_STARTED)
            context.throttled = response

    def _end_throttling(self, response: EndThrottlingResponse) -> None:
        if self._trace:
            trace_response(log, "throttling ends", response)
        context = response.request.connection
        if context.throttled is not None and context.throttled.request is response.request:
            self._stop_throttling(context)

    def _stop_throttling(self, context: ConnectionContext) -> None:
        throttled, context.throttled = context.throttled, None
        if throttled is None:
            return
        if throttled.cancel_end is not None:
            throttled.cancel_end()
        channel = context.channel
        if channel is not None:
            channel.handle_mute_event(THROTTLE_ENDED)
            if self._reading:
                self.selector.unmute(channel)

    # ---- 3: poll -------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Wait for something to do (RP-14) and move bytes. With a backlog that nobody takes, wait only briefly and see that
        another handler wakes up."""
        if not self._reading:
            self._mute_all()
        watching = False
        timeout = 0.0
        if self._mailbox.fall_asleep():
            watching = self._request_channel.has_backlog()
            timeout = WATCH_SECONDS if watching else POLL_SECONDS
        try:
            self.selector.poll(timeout)
        except Exception:
            log.exception("%s: poll failed; what it had done is processed", self.name)
            self._baton_turn.end()
            self._stop_requested.wait(WATCH_SECONDS)  # never spin on an error that stays
        finally:
            self._mailbox.awake()
            self._owes = False
            self.idle.total_ns = self.selector.select_ns
        if watching:
            self._request_channel.nudge()
        self._turns += 1
        if not self._turns & 63:
            self._trace = log.isEnabledFor(TRACE)
            self._plane.shared_core.watch()

    def _may_stay_awake(self) -> bool:
        return not self._owes and self._request_channel.all_parked()

    def _mute_all(self) -> None:
        for channel in self.selector.channels.values():
            self.selector.mute(channel)

    # ---- 4: requests ---------------------------------------------------------------------------------------------

    def process_completed_receives(self) -> None:
        for receive in self.selector.completed_receives:
            try:
                self._receive(receive)
            except MalformedRequest as error:
                self._reject(receive, error)
            except Exception:
                receive.release()
                self._channel_failed(cast(ConnectionContext, receive.channel.attachment), "processing a request")
        self._outbox.empty()

    def _receive(self, receive: Receive) -> None:
        """Parse one frame and pass it on (RP-15). From here on the channel is muted until its response is sent (RP-19)."""
        channel = receive.channel
        context = cast(ConnectionContext, channel.attachment)
        request = self._intake.read(receive, context, self.selector.now_ns)
        request.processor_id = self.id
        context.principal = channel.principal
        self.selector.begin_request(channel)
        if self._short_cut.is_open(request):
            self._run_inline(request)
        else:
            self._queue(request)

    def _queue(self, request: Request) -> None:
        """Put a request on the shared queue. A full queue blocks here, so what sleeps must be woken first."""
        if self._request_channel.is_full() and not request.is_slow():
            self._ring()
            self._baton_turn.end()
        queued, seat = self._request_channel.post(request, self._still_wanted)
        if seat is not None:
            self._to_ring.append(seat)
        if not queued:
            request.release_buffer()
            self._close_connection(request.connection)

    def _ring(self) -> None:
        if self._to_ring:
            for seat in self._to_ring:
                seat.ring()
            self._to_ring.clear()

    def _reject(self, receive: Receive, error: MalformedRequest) -> None:
        """RP-29: a peer that does not speak the protocol loses its connection, with a line in the log."""
        receive.release()
        context = cast(ConnectionContext, receive.channel.attachment)
        key, version = _peek(receive.payload) if len(receive.payload) >= 4 else (-1, -1)
        self._rejected(context, key, version, error)
        self._close_connection(context)

    def _rejected(self, context: ConnectionContext, key: int, version: int, error: MalformedRequest) -> None:
        self.shard.record_error(key, ErrorCode.INVALID_REQUEST)
        self.over_budget += isinstance(error, OverBudget)
        log_rejected(self._warnings, context, (key, version), error)

    def _still_wanted(self) -> bool:
        return self.running

    def _run_inline(self, request: Request) -> None:
        """The short cut. Responses leave by the outbox."""
        self._ring()
        try:
            response = self._short_cut.run(request)
        except NeedsHandler:
            self._queue(request)
            return
        if response is None:
            self._owes = True
        elif request.throttle_ms:
            request.deliver(response)  # StartThrottling must come first, so both go through the queue
        else:
            self._outbox.add(response, request.complete_ns)

    # ---- 5: sent responses ---------------------------------------------------------------------------------------

    def process_completed_sends(self) -> None:
        """Responses that needed more than one write (RP-16)."""
        for send in self.selector.completed_sends:
            channel = cast("Channel", send.channel)
            context = cast(ConnectionContext, channel.attachment)
            response, context.in_flight = context.in_flight, None
            try:
                if response is None:
                    raise AssertionError("a send completed that is not in flight")
                self._finish(response, self._now_ns())
            except Exception:
                self._channel_failed(context, "completing a send")

    def _finish_sent(self) -> None:
        """Responses that went out by one write."""
        sent, self._sent = self._sent, []
        for response in sent:
            try:
                self._finish(response, cast("Channel", response.send.channel).last_active_ns)
            except Exception:
                self._channel_failed(response.request.connection, "completing a send")

    def _finish(self, response: SendResponse, end_ns: int) -> None:
        """The last byte has left: callback, metrics, read on."""
        request = response.request
        if response.on_complete is not None:
            response.on_complete(request)
        self._record(request, end_ns)
        self._answer_gone(request)
        channel = request.connection.channel
        if channel is not None:
            if request.header.api_key == API_VERSIONS:
                self._software.note(request.connection, channel)
            self._end_request(channel)

    def _record(self, request: Request, end_ns: int) -> None:
        self.shard.record(request, end_ns)
        if request.throttle_ms:
            request.body = request.response = None  # the request itself is kept until its delay is over

    def _answer_gone(self, request: Request) -> None:
        if request.heavy:
            self._request_channel.answer_gone(request.connection)

    def _end_request(self, channel: Channel) -> None:
        self.selector.end_request(channel)
        if not self._reading:
            self.selector.mute(channel)

    # ---- 6: disconnected -----------------------------------------------------------------------------------------

    def process_disconnected(self) -> None:
        """Connections that the selector closed (RP-17), and peers that hung up while their request is handled."""
        for channel in self.selector.hung_up:
            context = cast(ConnectionContext, channel.attachment)
            try:
                self._hung_up(context, channel)
            except Exception:
                self._channel_failed(context, "ending a wait")
        for channel, _ in self.selector.disconnected:
            context = cast(ConnectionContext, channel.attachment)
            try:
                self._forget(context)
            except Exception:
                log.exception("an error after the end of %s", context.connection_id)

    def _hung_up(self, context: ConnectionContext, channel: Channel) -> None:
        """A peer that only finished sending still gets its answers, without further wait or delay: a quota has nothing more to slow down,
        and what is read tells whether the connection is at its end. One that is gone needs none; what a handler has
        begun for it comes to its end first, so that requests in the broker never outnumber connections."""
        context.hung_up = (
            True  # before the look at `waiting`; who begins to wait sets that first and looks at this then
        )
        self._stop_throttling(context)
        waiting = context.waiting
        if waiting is None:
            return
        if channel.broken:
            self._close_connection(context)
        else:
            waiting.hang_up()

    def _forget(self, context: ConnectionContext) -> None:
        """A channel is gone: exactly once, give back its quota (RP-11) and finish its unsent response."""
        if context.channel is None:
            return
        context.channel = None
        self._stop_throttling(context)
        self._quotas.release(self.listener.name, context.client_address)
        self._software.forget(context)
        self._request_channel.answer_gone(context)
        if context.waiting is not None:
            context.waiting.cancel()
        response, context.in_flight = context.in_flight, None
        if response is not None:
            self._record(response.request, self._now_ns())

    def _close_connection(self, context: ConnectionContext) -> None:
        channel = context.channel
        if channel is not None:
            try:
                self.selector.close(channel)
            finally:
                self._forget(context)

    def _channel_failed(self, context: ConnectionContext, what: str) -> None:
        log.exception("closing %s because of an error while %s", context.connection_id, what)
        try:
            self._close_connection(context)
        except Exception:
            log.exception("an error while closing %s", context.connection_id)

    # ---- 7: excess connections -----------------------------------------------------------------------------------

    def close_excess_connections(self) -> None:
        """One per turn, the one that matters least (RP-18)."""
        if self._quotas.exceeded(self.listener.name):
            channel = self.selector.lowest_priority_channel()
            if channel is not None:
                log.info("closing %s: the broker has more connections than max.connections", channel.id)
                self._close_connection(cast(ConnectionContext, channel.attachment))

    # ---- called by other threads ---------------------------------------------------------------------------------

    def accept(self, sock: socket.socket, address: str) -> bool:
        """The acceptor hands over a counted socket. False when the queue is full or the processor ends."""
        return self._mailbox.put_connection(sock, address)

    def accept_waiting(self, sock: socket.socket, address: str, still_wanted: Callable[[], bool]) -> bool:
        """As `accept`, but wait for room."""
        return self._mailbox.put_connection_waiting(sock, address, still_wanted)

    def enqueue_response(self, response: Response) -> None:
        """Queue a response and wake the thread if it sleeps."""
        if self._mailbox.put_response(response):
            self._mailbox.wake()

    def post_response(self, response: Response) -> bool:
        """Queue only; True when somebody must call `wake` soon."""
        return self._mailbox.put_response(response)

    def wake(self) -> None:
        self._mailbox.wake()

    def wakeup(self) -> None:
        self.selector.wakeup()

    def stop_reading(self) -> None:
        """From now on no further request is read; responses still go out (RP-3)."""
        self._reading = False
        self.selector.wakeup()

    # ---- the end -------------------------------------------------------------------------------------------------

    def on_stop(self) -> None:
        """Flush what was answered, then close everything."""
        self._plane.shared_core.leave()
        if self._stand_in is not None:
            self._stand_in.remove(self)
            self._stand_in.group_commit.leave()
            self._take_loop()
        self._baton_turn.end()
        self._reading = False
        for sock, address in self._mailbox.close():
            sock.close()
            self._quotas.release(self.listener.name, address)
        try:
            self._flush()
        finally:
            for channel in (*self.selector.channels.values(), *self.selector.closing_channels.values()):
                self._close_connection(cast(ConnectionContext, channel.attachment))
            self.process_disconnected()
            self.selector.close_all()
            self._baton_turn.end()
            self._plane.request_metrics.retire(self.shard)

    def _flush(self) -> None:
        """Send the responses that are queued or half written, for a bounded time."""
        self._ring()
        deadline_ns = self._now_ns() + FLUSH_NS
        self.process_new_responses()
        while self.in_flight() and self._now_ns() < deadline_ns:
            self.selector.poll(0.05)
            self.process_completed_sends()
            self.process_disconnected()
            self.process_new_responses()

    # ---- figures, from any thread --------------------------------------------------------------------------------

    def in_flight(self) -> int:
        """Responses that are partly written."""
        return len(self.selector.sending)

    @property
    def inline_runs(self) -> int:
        return self._short_cut.runs

    def response_queue_size(self) -> int:
        return len(self._responses)

    def connection_count(self) -> int:
        return len(self.selector.channels) + len(self.selector.closing_channels)

    def __repr__(self) -> str:
        return (
            f"<Processor {self.id} {self.listener.name} connections={self.connection_count()} "
            f"responses={len(self._responses)} inline={self.inline_runs}>"
        )
