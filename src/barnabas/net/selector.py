"""The selector: non-blocking input and output of many channels on one thread (RP-23, PP-33 .. PP-37).

Role: `poll` moves bytes and fills plain lists of results, the owner reads them before it polls again; nothing calls back. Used by the
broker's processors and by the clients. It knows frames, not APIs. No error of one channel leaves `poll` or `send`: that channel is
closed and reported in `disconnected`, exactly once.
Thread: one owner; only `wakeup` (and the memory pool's listener, which is `wakeup`) may be called from other threads. Lock: the waker's.

Order of one poll (PP-36): clear the results; what needs no readiness (channels being closed, channels whose memory came back, frames
that were read ahead); select, without waiting when any of those has something to report; ready channels; immediate connects;
deadlines and idle channels.
"""

from __future__ import annotations

import logging
import random
import socket
from contextlib import suppress

from barnabas.clock import Clock, SystemClock
from barnabas.log_limit import LogLimit
from barnabas.net.authenticator import AuthenticationFailed, Authenticator
from barnabas.net.channel import (
    CLOSED,
    CLOSING,
    NOT_CONNECTED,
    READY,
    Channel,
    DisconnectReason,
    Receive,
)
from barnabas.net.channel_table import ChannelExists, ChannelTable
from barnabas.net.connecting import Preparing, start_connect
from barnabas.net.deadlines import NO_DEADLINES, DeadlineQueue, Deadlines, Timers
from barnabas.net.frame import EndOfStream, InvalidReceive, PooledReader, make_reader
from barnabas.net.memory_pool import MemoryPool, OversizedClaim, UnlimitedMemoryPool
from barnabas.net.poller import HANG_UP, READ, WRITE, Poller, Waker, default_poller
from barnabas.net.reading import Reading
from barnabas.net.results import PollResults
from barnabas.net.send import Send, SendInProgress
from barnabas.net.sending import Sending
from barnabas.net.transport import Transport

__all__ = ["ChannelExists", "Selector", "SendInProgress"]

log = logging.getLogger(__name__)

DEFAULT_MAX_RECEIVE = 104_857_600
_MAX_EVENTS = 512
_EXPIRY_CHECK_NS = 20_000_000  # deadlines are seconds: looking at them more often than this buys nothing
_LOW_MEMORY_SHARE = 0.1
_COUNTERS = ("connections_created", "connections_closed", "bytes_in", "bytes_out", "polls", "select_ns", "io_ns")
_READ_OR_HANG_UP = READ | HANG_UP


class Selector:
    """See the file header."""

    def __init__(
        self,
        memory_pool: MemoryPool | None = None,
        max_receive_size: int = DEFAULT_MAX_RECEIVE,
        idle_ns: int = 0,
        deadlines: Deadlines = NO_DEADLINES,
        clock: Clock | None = None,
        poller: Poller | None = None,
    ) -> None:
        self.memory_pool: MemoryPool = memory_pool if memory_pool is not None else UnlimitedMemoryPool()
        self.idle_ns = idle_ns  # 0 or less: never
        self._monotonic_ns = (clock if clock is not None else SystemClock()).monotonic_ns
        self._warnings = LogLimit(log, self._monotonic_ns)
        self._poller: Poller = poller if poller is not None else default_poller()
        self._waker = Waker()
        self._poller.register(self._waker.fd, READ)
        self._table = ChannelTable(self._poller)
        self.channels = self._table.open
        self.closing_channels = self._table.closing
        self._timers = Timers(deadlines)
        self.sending = Sending(self._table, self._timers, self._monotonic_ns)
        self._next_expiry_ns = 0
        self._reader = make_reader(self.memory_pool, max_receive_size)
        self._pooled = self._reader if isinstance(self._reader, PooledReader) else None
        self.memory_pool.add_listener(self.wakeup)

        self._results = results = PollResults()
        self.completed_receives = results.completed_receives
        self.completed_sends = results.completed_sends
        self.connected = results.connected
        self.disconnected = results.disconnected
        self.failed_sends = results.failed_sends
        self._preparing = Preparing(self._table, self._timers, self.connected)
        self.hung_up = results.hung_up  # peers that hung up while we did not read them, each once
        self.reading = Reading(self._table, self._timers, self.completed_receives, self.hung_up)

        self._immediate: list[Channel] = []  # connected at once, which no readiness event will announce (PP-33)
        self._served: set[Channel] = set()  # got a receive in this poll without a readiness event

        self.now_ns = self._monotonic_ns()  # the end of the last select
        self.connections_created = 0
        self.connections_closed = 0
        self.select_ns = 0
        self.io_ns = 0
        self.polls = 0

    @property
    def bytes_in(self) -> int:
        return self._reader.bytes_in

    @property
    def bytes_out(self) -> int:
        return self.sending.bytes_out

    # ---------------------------------------------------------------- channels come

    def register(
        self,
        channel_id: str,
        sock: socket.socket,
        transport: Transport | None = None,
        authenticator: Authenticator | None = None,
        attachment: object = None,
    ) -> Channel:
        """Take over an accepted socket. If this raises, the socket is closed."""
        now = self._monotonic_ns()
        try:
            self._table.ensure_new(channel_id)
            sock.setblocking(False)
            channel = Channel(channel_id, sock, transport, authenticator)
            self._table.add(channel, _READ_OR_HANG_UP, now)
        except BaseException:
            sock.close()
            raise
        channel.attachment = attachment
        self.connections_created += 1
        self._preparing.begin(channel, now)
        if channel.transport.buffers and channel.state is READY:
            self.reading.buffered[channel] = None
        return channel

    def connect(
        self,
        channel_id: str,
        address: tuple[str, int],
        send_buffer: int = -1,
        receive_buffer: int = -1,
        attachment: object = None,
    ) -> Channel:
        """Begin to connect without blocking; `connected` or `disconnected` of a later poll tells the end (PP-33).

        `address` is numeric: resolving names blocks, so it is the caller's business. An error that is known at once is raised.
        """
        self._table.ensure_new(channel_id)
        sock, immediate = start_connect(address, send_buffer, receive_buffer)
        try:
            channel = Channel(channel_id, sock)
            self._table.add(channel, 0 if immediate else WRITE, self._monotonic_ns())
        except BaseException:
            sock.close()
            raise
        channel.attachment = attachment
        if immediate:
            self._immediate.append(channel)
        return channel

    # ---------------------------------------------------------------- writing

    def send(self, channel: Channel, send: Send) -> bool:
        """Write now. True: completely written, not reported again. False: `completed_sends` of a later poll reports it, or
        `failed_sends` (PP-34) and, when that ends the channel, `disconnected`. Never raises for an error of the connection."""
        if channel.current_send is not None:
            raise SendInProgress(f"{channel!r} is still sending")
        send.channel = channel
        state = channel.state
        if state is CLOSING or state is CLOSED:
            self._results.add_failed_send(send)
            if state is CLOSING:
                self._dispose(channel, True)
            return False
        try:
            return self.sending.begin(channel, send)
        except Exception as error:
            channel.current_send = send
            self._break(channel, error, DisconnectReason.FAILED_SEND)
            return False

    # ---------------------------------------------------------------- muting (reading.py)

    def mute(self, channel: Channel) -> None:
        self.reading.mute(channel)

    def unmute(self, channel: Channel) -> bool:
        return self.reading.unmute(channel)

    def begin_request(self, channel: Channel) -> None:
        self.reading.begin_request(channel)

    def end_request(self, channel: Channel) -> bool:
        return self.reading.end_request(channel)

    # ---------------------------------------------------------------- polling

    def poll(self, timeout: float) -> None:
        """Do what can be done, waiting at most `timeout` seconds for something to do."""
        if timeout < 0:
            raise ValueError(f"poll timeout must not be negative: {timeout}")
        results = self._results
        results.begin()
        try:
            if (
                self.reading.buffered
                or self._served
                or self._immediate
                or self.closing_channels
                or results.has_early
                or (self._pooled is not None and self._pooled.waiters)
            ) and self._serve_without_readiness():
                timeout = 0.0
            monotonic_ns = self._monotonic_ns
            start = monotonic_ns()
            events = self._poller.poll(timeout, _MAX_EVENTS)
            self.now_ns = now = monotonic_ns()
            self.select_ns += now - start
            self.polls += 1
            if events:
                self._handle_events(events, now)
                self.io_ns += monotonic_ns() - now
            if self._immediate:
                self._finish_immediate(now)
            if now >= self._next_expiry_ns:
                self._expire(now)
        finally:
            results.polling = False

    def _serve_without_readiness(self) -> bool:
        """True when there is something to report, so that select must not wait."""
        self._served.clear()
        self._results.take_early()
        for channel in list(self.closing_channels.values()):
            self._advance_closing(channel)
        if self._pooled is not None:
            self._resume_waiters(self._pooled)
        if self.reading.buffered:
            self._serve_buffered()
        return bool(self.completed_receives or self.disconnected or self.failed_sends or self._immediate)

    def _serve_buffered(self) -> None:
        """One frame per channel and poll, in the order in which the channels came (RP-19)."""
        reading = self.reading
        buffered, reading.buffered = reading.buffered, {}
        for channel in buffered:
            if channel.state is not READY or channel.mute_state or channel.muted_for_memory:
                continue  # `unmute` puts it back
            try:
                receive = self._reader.next_buffered(channel)
                while receive is None and channel.held is not None and not channel.muted_for_memory:
                    receive = self._reader.read(channel)
                if receive is None and channel.transport.buffers and channel.transport.has_buffered():
                    receive = self._reader.read(channel)
                self._serve(channel, receive)
            except BlockingIOError:
                self._serve(channel, None)
            except Exception as error:
                self._break(channel, error, DisconnectReason.IO_ERROR)

    def _resume_waiters(self, pooled: PooledReader) -> None:
        """Channels that wait for memory get it in the order in which they began to wait (RP-25)."""
        while pooled.waiters:
            channel = next(iter(pooled.waiters))
            try:
                if not pooled.resume(channel):
                    return
                if channel.mute_state:
                    continue
                self._table.set_interest(channel, channel.interest | READ)
                self._serve(channel, pooled.read(channel))
            except BlockingIOError:
                self._serve(channel, None)
            except Exception as error:
                self._break(channel, error, DisconnectReason.IO_ERROR)

    def _serve(self, channel: Channel, receive: Receive | None) -> None:
        if receive is not None:
            self._served.add(channel)
        self.reading.received(channel, receive, self.now_ns)

    def _handle_events(self, events: list[tuple[int, int]], now: int) -> None:
        if self._pooled is not None and self.memory_pool.available() < self.memory_pool.size * _LOW_MEMORY_SHARE:
            random.shuffle(events)  # else the OS's first channel would take the last memory every time (RP-23)
        by_fd = self._table.by_fd
        read = self._reader.read
        received = self.reading.received
        for fd, event in events:
            channel = by_fd.get(fd)
            if channel is None:
                if fd == self._waker.fd:
                    self._waker.drain()
                continue
            try:
                if event != READ or channel.state is not READY:
                    self._handle_event(channel, event, now)
                elif channel.mute_state or channel.muted_for_memory:
                    self.reading.hold_back(channel, event)
                elif channel not in self._served:
                    received(channel, read(channel), now)
            except BlockingIOError:
                continue
            except Exception as error:
                self._break(channel, error, DisconnectReason.IO_ERROR)

    def _handle_event(self, channel: Channel, event: int, now: int) -> None:
        """Everything that is not a plain readable event (PP-37)."""
        if channel.state is not READY and not self._prepare(channel, now):
            return
        if event & ~WRITE and channel not in self._served:  # readable, hang-up or error: reading tells which
            if channel.mute_state or channel.muted_for_memory:
                self.reading.hold_back(channel, event)
            else:
                with suppress(BlockingIOError):
                    self.reading.received(channel, self._reader.read(channel), now)
        send = channel.current_send
        if send is not None and event & ~_READ_OR_HANG_UP:
            try:
                if self.sending.go_on(channel, send, now):
                    self.completed_sends.append(send)
            except Exception as error:
                self._break(channel, error, DisconnectReason.FAILED_SEND)

    # ---------------------------------------------------------------- connect, handshake, authentication

    def _prepare(self, channel: Channel, now: int) -> bool:
        """One step of a channel that is not ready; True when it is now."""
        connecting = channel.state is NOT_CONNECTED
        try:
            ready = self._preparing.step(channel, now)
        except AuthenticationFailed as error:
            log.info("Failed authentication with %s (%s)", channel.id, error)
            if not self._preparing.refuse(channel, error, now):
                self._fail_authentication(channel)
            ready = False
        except OSError as error:
            failed = DisconnectReason.CONNECT_FAILED if channel.state is NOT_CONNECTED else DisconnectReason.IO_ERROR
            self._break(channel, error, failed)
            return False
        if connecting:
            self.connections_created += 1
        if ready and channel.transport.buffers:
            self.reading.buffered[channel] = None
        return ready

    def _finish_immediate(self, now: int) -> None:
        immediate, self._immediate = self._immediate, []
        for channel in immediate:
            if channel.state is NOT_CONNECTED:
                try:
                    self._handle_event(channel, WRITE, now)
                except Exception as error:
                    self._break(channel, error, DisconnectReason.CONNECT_FAILED)

    def _fail_authentication(self, channel: Channel) -> None:
        try:
            channel.authenticator.fail(channel.transport)
        except Exception as error:
            log.debug("Could not answer the failed authentication of %s: %s", channel.id, error)
        self._dispose(channel, True)

    # ---------------------------------------------------------------- deadlines and idle channels

    def _expire(self, now: int) -> None:
        self._next_expiry_ns = now + _EXPIRY_CHECK_NS
        for channel, queue in self._timers.expired(now):
            self._expire_deadline(channel, queue)
        stalled = self._pooled.stalled(now) if self._pooled is not None else None
        if stalled is not None:
            self._close_overdue(stalled, DisconnectReason.STALLED)
        for slow in self.sending.overdue(now):
            self._close_overdue(slow, DisconnectReason.SLOW)
        if self.idle_ns > 0:
            while (idle := self._table.expired(now, self.idle_ns)) is not None:
                self._expire_idle(idle, now)

    def _expire_deadline(self, channel: Channel, queue: DeadlineQueue) -> None:
        if queue is self._timers.delayed_close:
            self._fail_authentication(channel)
            return
        limit_ms = queue.duration_ns // 1_000_000
        if queue is self._timers.stuck:
            self._name_stuck(channel, limit_ms)
            return
        channel.close_reason = queue.reason
        log.info("Closing connection %s: %s (limit %d ms)", channel.id, queue.reason.value, limit_ms)
        self._dispose(channel, True)

    def _close_overdue(self, channel: Channel, reason: DisconnectReason) -> None:
        """It keeps memory from others."""
        channel.close_reason = reason
        self._warnings.warning(reason.name, "Closing connection %s: %s", channel.id, reason.value)
        self._dispose(channel, True)

    def _name_stuck(self, channel: Channel, limit_ms: int) -> None:
        send = channel.current_send
        if send is not None:
            text = "Connection %s has not taken its response for %d ms: %d of %d bytes are unsent"
            self._warnings.warning("stuck", text, channel.id, limit_ms, send.size - send.written, send.size)

    def _expire_idle(self, channel: Channel, now: int) -> None:
        """Unlike Kafka's, a channel whose request is being handled, or waits for our memory, is not idle, however long that takes;
        one that does not read its response is (RP-22)."""
        if (channel.mute_state or channel.muted_for_memory) and channel.current_send is None:
            channel.last_active_ns = now
            self._table.touch(channel)
            return
        log.debug("Closing connection %s, idle for %d ms", channel.id, (now - channel.last_active_ns) // 1_000_000)
        channel.close_reason = DisconnectReason.EXPIRED
        self._close_gracefully(channel)

    # ---------------------------------------------------------------- channels go

    def close(self, channel: Channel, graceful: bool = False, report: bool = False) -> None:
        """Close a channel. Gracefully (RP-21): what was fully received is still delivered, then `disconnected` reports the end.
        Otherwise at once; `disconnected` of the next poll reports it only when asked to."""
        state = channel.state
        if state is CLOSED or (graceful and state is CLOSING):
            return
        if channel.close_reason is None:
            channel.close_reason = DisconnectReason.LOCAL_CLOSE
        if graceful and state is READY:
            self._close_gracefully(channel)
        else:
            self._dispose(channel, report or graceful)

    def close_all(self) -> None:
        """Close every channel, unreported, and the selector itself."""
        for channel in (*self.channels.values(), *self.closing_channels.values()):
            self.close(channel)
        self.memory_pool.remove_listener(self.wakeup)
        self._poller.close()
        self._waker.close()

    def _break(self, channel: Channel, error: Exception, reason: DisconnectReason) -> None:
        """`error` happened on `channel`. There is nothing whole left to deliver: a socket is only read when no frame is buffered,
        and after a failed send what the peer sent is no longer handled (RP-21)."""
        channel.error = error
        if isinstance(error, EndOfStream):
            reason = DisconnectReason.REMOTE_CLOSE
        elif isinstance(error, InvalidReceive | OversizedClaim):
            reason = DisconnectReason.INVALID_RECEIVE
            self._warnings.warning("invalid", "Closing connection %s: %s", channel.id, error)
        elif not isinstance(error, OSError):
            reason = DisconnectReason.INTERNAL_ERROR
            self._warnings.warning("other", "Unexpected error from %s; closing connection", channel.id, exc_info=error)
        channel.close_reason = reason
        log.debug("Connection %s disconnected: %s", channel.id, error)
        self._dispose(channel, True)

    def _close_gracefully(self, channel: Channel) -> None:
        self._detach(channel)
        channel.state = CLOSING
        self.closing_channels[channel.id] = channel
        if self._results.polling:
            self._advance_closing(channel)

    def _advance_closing(self, channel: Channel) -> None:
        """Deliver the next whole frame, or end the channel; a muted one waits until its request is done."""
        if channel.mute_state:
            return
        try:
            receive = self._reader.next_buffered(channel)
            while receive is None and not channel.muted_for_memory:
                receive = self._reader.read(channel)  # ends: by a frame, or by an error when nothing more is there
        except Exception as error:
            log.debug("Nothing more from closing connection %s: %s", channel.id, error)
            receive = None
        if receive is None:
            self._dispose(channel, True)
        else:
            self.completed_receives.append(receive)

    def _detach(self, channel: Channel) -> None:
        """Out of every queue; the socket stays open."""
        self._table.remove(channel)
        self._timers.stop_all(channel)
        self.reading.forget(channel)
        if self._pooled is not None:
            self._pooled.forget(channel)

    def _dispose(self, channel: Channel, report: bool) -> None:
        """The end of a channel; the only place that closes its socket."""
        state = channel.state
        if state is CLOSED:
            return
        if state is CLOSING:
            del self.closing_channels[channel.id]
            if self._pooled is not None:
                self._pooled.forget(channel)
        else:
            self._detach(channel)
        self.sending.stop(channel)
        self.reading.read_on.drop(channel)
        channel.state = CLOSED
        channel.dispose()
        if state is not NOT_CONNECTED:
            self.connections_closed += 1
        if channel in self.connected:
            self.connected.remove(channel)
        send, channel.current_send = channel.current_send, None
        if report:
            self._results.add_disconnected(channel)
            if send is not None:
                self._results.add_failed_send(send)

    # ---------------------------------------------------------------- for the owner

    def wakeup(self) -> None:
        """Any thread: the current or the next poll returns at once. Many calls before that cost one."""
        self._waker.wake()

    def channel(self, channel_id: str) -> Channel | None:
        """The open channel of this id."""
        return self.channels.get(channel_id)

    def has_next(self, channel: Channel) -> bool:
        """Whether the next poll gives a frame of `channel`, if nothing mutes it, without asking the socket."""
        return self._reader.has_next(channel)

    def lowest_priority_channel(self) -> Channel | None:
        """RP-18: one that is closing already, else the one idle longest."""
        return self._table.lowest_priority()

    def statistics(self) -> dict[str, int]:
        return {
            "channels": len(self.channels),
            "closing": len(self.closing_channels),
            "buffered": len(self.reading.buffered),
            "waiting_for_memory": len(self._pooled.waiters) if self._pooled is not None else 0,
            **{name: getattr(self, name) for name in _COUNTERS},
        }

    def __repr__(self) -> str:
        return f"<Selector channels={len(self.channels)} closing={len(self.closing_channels)} {self.memory_pool!r}>"
