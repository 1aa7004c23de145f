"""The selector: non-blocking input and output of many channels on one thread (RP-23, PP-33 .. PP-37).

Role: `poll` moves bytes and fills plain lists of results, the owner reads them before it polls again; nothing calls back. Used by the
broker's processors and by the clients. It knows frames, not APIs. No error of one channel leaves `poll` or `send`: that channel is
closed and reported in `disconnected`, exactly once.
Thread: one owner; only `wakeup` (and the memory pool's listener, which is `wakeup`) may be called from other threads. Lock: the waker's.

Order of one poll (PP-36): clear the results, then what needs no readiness (channels being closed, channels whose memory came back,
frames that were read ahead), then select (without waiting when any of those did something), ready channels, immediate connects,
deadlines and idle channels.
"""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Iterable
from contextlib import suppress

from barnabas.clock import Clock, SystemClock
from barnabas.errors import BarnabasError
from barnabas.net.authenticator import AuthenticationFailed, Authenticator
from barnabas.net.channel import Channel, ChannelState, DisconnectReason, Receive
from barnabas.net.connecting import start_connect
from barnabas.net.deadlines import NO_DEADLINES, DeadlineQueue, Deadlines
from barnabas.net.frame import EndOfStream, FrameReader, InvalidReceive, PooledReader, ReadAheadReader
from barnabas.net.memory_pool import MemoryPool, OversizedClaim, UnlimitedMemoryPool
from barnabas.net.mute import (
    MUTED,
    MUTED_AND_RESPONSE_PENDING,
    NOT_MUTED,
    REQUEST_RECEIVED,
    RESPONSE_SENT,
)
from barnabas.net.poller import READ, WRITE, Poller, Waker, default_poller
from barnabas.net.send import Send
from barnabas.net.transport import Transport

__all__ = ["ChannelExists", "Selector", "SendInProgress"]

log = logging.getLogger(__name__)

DEFAULT_MAX_RECEIVE = 104_857_600
_MAX_EVENTS = 512
_EXPIRY_CHECK_NS = 20_000_000  # deadlines are seconds: looking at them more often than this buys nothing
_LOW_MEMORY_SHARE = 0.1

READY = ChannelState.READY
CLOSING = ChannelState.CLOSING
CLOSED = ChannelState.CLOSED


class ChannelExists(BarnabasError):
    """A channel of this id is open or still closing."""


class SendInProgress(BarnabasError):
    """One send at a time per channel (RP-24): a bug of the owner."""


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
        self.idle_ns = idle_ns
        self.deadlines = deadlines
        self._monotonic_ns = (clock if clock is not None else SystemClock()).monotonic_ns
        self._poller: Poller = poller if poller is not None else default_poller()
        self._waker = Waker()
        self._poller.register(self._waker.fd, READ)
        self.channels: dict[str, Channel] = {}
        self.closing_channels: dict[str, Channel] = {}
        self._by_fd: dict[int, Channel] = {}

        # Results of the last poll.
        self.completed_receives: list[Receive] = []
        self.completed_sends: list[Send] = []
        self.connected: list[Channel] = []
        self.disconnected: list[tuple[Channel, DisconnectReason]] = []
        self.failed_sends: list[Send] = []

        # What happened between two polls and belongs to the results of the next one.
        self._early_disconnected: list[tuple[Channel, DisconnectReason]] = []
        self._early_failed_sends: list[Send] = []
        self._polling = False
        self._immediate: list[Channel] = []
        self._buffered: dict[Channel, None] = {}  # may hold a whole frame that no readiness event will announce
        self._served: set[Channel] = set()  # got a receive in this poll already

        self._reader, self._pooled = self._make_reader(max_receive_size)
        self._idle = DeadlineQueue(max(idle_ns, 0))
        self._first_frame = DeadlineQueue(deadlines.first_frame_ns)
        self._frame = DeadlineQueue(deadlines.frame_ns)
        self._write = DeadlineQueue(deadlines.write_ns)
        self._authentication = DeadlineQueue(deadlines.authentication_ns)
        self._delayed_close = DeadlineQueue(deadlines.failed_authentication_delay_ns)
        self._next_expiry_ns = 0

        self.now_ns = self._monotonic_ns()
        self.connections_created = 0
        self.connections_closed = 0
        self.bytes_out = 0
        self.select_ns = 0
        self.io_ns = 0
        self.polls = 0

    def _make_reader(self, max_receive_size: int) -> tuple[FrameReader, PooledReader | None]:
        if self.memory_pool.unlimited:
            return ReadAheadReader(max_receive_size), None
        pooled = PooledReader(max_receive_size, self.memory_pool)
        self.memory_pool.add_listener(self.wakeup)
        return pooled, pooled

    @property
    def bytes_in(self) -> int:
        return self._reader.bytes_in

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
        try:
            self._ensure_new(channel_id)
            sock.setblocking(False)
            channel = Channel(channel_id, sock, transport, authenticator)
            self._add(channel, READ)
        except BaseException:
            sock.close()
            raise
        channel.attachment = attachment
        self.connections_created += 1
        if channel.transport.ready and channel.authenticator.complete:
            self._become_ready(channel)
            self._start_read_timer(channel, self._first_frame)
        else:
            channel.state = ChannelState.AUTHENTICATE
            self._start_read_timer(channel, self._authentication)
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
        self._ensure_new(channel_id)
        sock, immediate = start_connect(address, send_buffer, receive_buffer)
        try:
            channel = Channel(channel_id, sock)
            self._add(channel, 0 if immediate else WRITE)
        except BaseException:
            sock.close()
            raise
        channel.attachment = attachment
        if immediate:
            self._immediate.append(channel)
        return channel

    def _ensure_new(self, channel_id: str) -> None:
        if channel_id in self.channels:
            raise ChannelExists(f"there is already a connection with id {channel_id}")
        if channel_id in self.closing_channels:
            raise ChannelExists(f"the connection with id {channel_id} is still being closed")

    def _add(self, channel: Channel, interest: int) -> None:
        if interest:
            self._poller.register(channel.fd, interest)
        channel.interest = interest
        self.channels[channel.id] = channel
        self._by_fd[channel.fd] = channel
        channel.last_active_ns = self.now_ns
        self._idle.start(channel, self.now_ns)

    # ---------------------------------------------------------------- writing

    def send(self, channel: Channel, send: Send) -> bool:
        """Write now. True: completely written, not reported again. False: `completed_sends` of a later poll reports it, or
        `failed_sends` (PP-34) and `disconnected` do when the channel is closing, closed or breaks."""
        if channel.current_send is not None:
            raise SendInProgress(f"{channel!r} is still sending")
        send.channel = channel
        if channel.state is READY:
            try:
                count = send.write_to(channel.transport)
            except Exception as error:
                channel.current_send = send
                self._break(channel, error, DisconnectReason.FAILED_SEND)
                return False
            self.bytes_out += count
            if count == send.size:
                channel.last_active_ns = self.now_ns
                return True
        elif channel.state is CLOSING or channel.state is CLOSED:
            self._fail_send(channel, send)
            return False
        channel.current_send = send
        self._write.start(channel, self.now_ns)
        if channel.state is READY:
            self._set_interest(channel, channel.interest | WRITE)
        return False

    def _fail_send(self, channel: Channel, send: Send) -> None:
        (self.failed_sends if self._polling else self._early_failed_sends).append(send)
        if channel.state is CLOSING:
            self._dispose(channel, True)

    def _write_more(self, channel: Channel, send: Send, now: int) -> None:
        count = send.write_to(channel.transport)
        self.bytes_out += count
        if send.written >= send.size:
            channel.current_send = None
            self._write.stop(channel)
            self._set_interest(channel, channel.interest & ~WRITE)
            self.completed_sends.append(send)
        elif count:
            self._write.start(channel, now)

    # ---------------------------------------------------------------- muting

    def mute(self, channel: Channel) -> None:
        """Stop reading `channel`. The poller is told only if bytes arrive meanwhile."""
        if channel.mute_state is NOT_MUTED:
            channel.mute_state = MUTED

    def unmute(self, channel: Channel) -> bool:
        """Read again, if nothing but `mute` held the channel; says whether it is unmuted now."""
        if channel.mute_state is not MUTED:
            return channel.mute_state is NOT_MUTED
        channel.mute_state = NOT_MUTED
        if channel.leftover or channel.transport.buffers:
            self._buffered[channel] = None
        if not channel.interest & READ and channel.state is READY and not channel.muted_for_memory:
            self._set_interest(channel, channel.interest | READ)
        return True

    def begin_request(self, channel: Channel) -> None:
        """`mute` and REQUEST_RECEIVED in one call."""
        if channel.mute_state is NOT_MUTED:
            channel.mute_state = MUTED_AND_RESPONSE_PENDING
        else:
            channel.handle_mute_event(REQUEST_RECEIVED)

    def end_request(self, channel: Channel) -> bool:
        """RESPONSE_SENT and `unmute` in one call; False while the channel is throttled."""
        if channel.mute_state is MUTED_AND_RESPONSE_PENDING:
            channel.mute_state = MUTED
        else:
            channel.handle_mute_event(RESPONSE_SENT)
        return self.unmute(channel)

    def _set_interest(self, channel: Channel, wanted: int) -> None:
        """A channel without interest leaves the poller: epoll would report its errors for ever."""
        have = channel.interest
        if wanted == have:
            return
        if not have:
            self._poller.register(channel.fd, wanted)
        elif not wanted:
            self._poller.unregister(channel.fd)
        else:
            self._poller.modify(channel.fd, wanted)
        channel.interest = wanted

    # ---------------------------------------------------------------- polling

    def poll(self, timeout: float) -> None:
        """Do what can be done, waiting at most `timeout` seconds for something to do."""
        if timeout < 0:
            raise ValueError(f"poll timeout must not be negative: {timeout}")
        self._clear()
        self._polling = True
        try:
            if self._needs_no_readiness() and self._serve_without_readiness():
                timeout = 0
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
            self._polling = False

    def _clear(self) -> None:
        self.completed_receives.clear()
        self.completed_sends.clear()
        self.connected.clear()
        self.disconnected.clear()
        self.failed_sends.clear()
        if self._served:
            self._served.clear()

    def _needs_no_readiness(self) -> bool:
        return bool(
            self._buffered
            or self._early_disconnected
            or self._early_failed_sends
            or self._immediate
            or self.closing_channels
            or (self._pooled is not None and self._pooled.waiters)
        )

    def _serve_without_readiness(self) -> bool:
        """True when there is something to report, so that select must not wait."""
        self.disconnected.extend(self._early_disconnected)
        self._early_disconnected.clear()
        self.failed_sends.extend(self._early_failed_sends)
        self._early_failed_sends.clear()
        for channel in list(self.closing_channels.values()):
            self._advance_closing(channel)
        if self._pooled is not None:
            self._resume_waiters(self._pooled)
        if self._buffered:
            self._serve_buffered()
        return bool(
            self.disconnected or self.failed_sends or self._immediate or self.completed_receives or self._buffered
        )

    def _serve_buffered(self) -> None:
        """One frame per channel and poll, in the order in which the channels came (RP-19)."""
        buffered = self._buffered
        self._buffered = {}
        for channel in buffered:
            if channel.state is not READY or channel.mute_state or channel.muted_for_memory or channel in self._served:
                continue
            try:
                receive = self._reader.next_buffered(channel)
                if receive is None and channel.transport.buffers and channel.transport.has_buffered():
                    receive = self._reader.read(channel)
                self._received(channel, receive, self.now_ns)
            except BlockingIOError:
                continue
            except Exception as error:
                self._break(channel, error, DisconnectReason.IO_ERROR)

    def _resume_waiters(self, pooled: PooledReader) -> None:
        """Channels that wait for memory get it in the order in which they began to wait."""
        while pooled.waiters and self.memory_pool.available() > 0:
            channel = next(iter(pooled.waiters))
            try:
                if not pooled.resume(channel):
                    return
                if not channel.mute_state and not channel.interest & READ:
                    self._set_interest(channel, channel.interest | READ)
                self._received(channel, pooled.read(channel), self.now_ns)
            except BlockingIOError:
                self._received(channel, None, self.now_ns)
            except Exception as error:
                self._break(channel, error, DisconnectReason.IO_ERROR)

    def _handle_events(self, events: list[tuple[int, int]], now: int) -> None:
        if self._pooled is not None and self.memory_pool.available() < self.memory_pool.size * _LOW_MEMORY_SHARE:
            # The OS may report channels in the same order every time; with little memory the first would take it all (RP-23).
            random.shuffle(events)
        by_fd = self._by_fd
        read = self._reader.read
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
                    self._set_interest(channel, channel.interest & ~READ)
                elif channel not in self._served:
                    self._received(channel, read(channel), now)
            except BlockingIOError:
                continue
            except Exception as error:
                self._break(channel, error, DisconnectReason.IO_ERROR)

    def _received(self, channel: Channel, receive: Receive | None, now: int) -> None:
        channel.last_active_ns = now
        self._idle.start(channel, now)
        if receive is not None:
            self.completed_receives.append(receive)
            timer = channel.read_timer
            if timer is not None:
                timer.stop(channel)
                channel.read_timer = None
            if channel.leftover or channel.transport.buffers:
                self._served.add(channel)
                self._buffered[channel] = None
        elif channel.muted_for_memory:
            self._stop_read_timer(channel)  # not the peer's fault
        elif channel.read_timer is None:
            self._start_read_timer(channel, self._frame)

    def _handle_event(self, channel: Channel, event: int, now: int) -> None:
        """Everything that is not a plain readable event (PP-37)."""
        if channel.state is ChannelState.NOT_CONNECTED and not self._finish_connect(channel):
            return
        if channel.state is ChannelState.AUTHENTICATE and not self._prepare(channel, now):
            return
        if event & ~WRITE and channel not in self._served:  # readable, hang-up or error: reading tells which
            if channel.mute_state or channel.muted_for_memory:
                self._set_interest(channel, channel.interest & ~READ)
            else:
                with suppress(BlockingIOError):
                    self._received(channel, self._reader.read(channel), now)
        send = channel.current_send
        if send is not None and event & ~READ:
            try:
                self._write_more(channel, send, now)
            except Exception as error:
                self._break(channel, error, DisconnectReason.FAILED_SEND)

    # ---------------------------------------------------------------- connect, handshake, authentication

    def _finish_connect(self, channel: Channel) -> bool:
        code = channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._break(channel, _os_error(code), DisconnectReason.CONNECT_FAILED)
            return False
        self.connections_created += 1
        self.connected.append(channel)
        self._set_interest(channel, READ)
        if channel.transport.ready and channel.authenticator.complete:
            self._become_ready(channel)
        else:
            channel.state = ChannelState.AUTHENTICATE
            self._start_read_timer(channel, self._authentication)
        return True

    def _finish_immediate(self, now: int) -> None:
        immediate, self._immediate = self._immediate, []
        for channel in immediate:
            if channel.state is ChannelState.NOT_CONNECTED:
                try:
                    self._finish_connect(channel)
                    self._after_connect(channel, now)
                except Exception as error:
                    self._break(channel, error, DisconnectReason.CONNECT_FAILED)

    def _after_connect(self, channel: Channel, now: int) -> None:
        if channel.state is ChannelState.AUTHENTICATE:
            self._prepare(channel, now)

    def _prepare(self, channel: Channel, now: int) -> bool:
        """One step of handshake and authentication; True when the channel is ready."""
        transport = channel.transport
        authenticator = channel.authenticator
        try:
            if not transport.ready:
                transport.handshake()
            if transport.ready and not authenticator.complete:
                authenticator.authenticate(transport)
        except BlockingIOError:
            pass
        except AuthenticationFailed as error:
            log.info("Failed authentication with %s (%s)", channel.id, error)
            self._close_delayed(channel, error, now)
            return False
        if not (transport.ready and authenticator.complete):
            writes = transport.wants_write or authenticator.wants_write
            self._set_interest(channel, READ | WRITE if writes else READ)
            return False
        self._stop_read_timer(channel)
        self._start_read_timer(channel, self._first_frame)
        self._become_ready(channel)
        return True

    def _become_ready(self, channel: Channel) -> None:
        channel.state = READY
        channel.principal = channel.authenticator.principal
        self._set_interest(channel, READ if channel.current_send is None else READ | WRITE)
        if channel.transport.buffers:
            self._buffered[channel] = None

    def _close_delayed(self, channel: Channel, error: AuthenticationFailed, now: int) -> None:
        """RP-22: answer a failed authentication late, so that guessing is slow."""
        channel.error = error
        channel.close_reason = DisconnectReason.AUTHENTICATION_FAILED
        self._stop_read_timer(channel)
        self._set_interest(channel, 0)
        if not self._delayed_close.start(channel, now):
            self._fail_authentication(channel)

    def _fail_authentication(self, channel: Channel) -> None:
        try:
            channel.authenticator.fail(channel.transport)
        except Exception as error:
            log.debug("Could not answer the failed authentication of %s: %s", channel.id, error)
        self._dispose(channel, True)

    # ---------------------------------------------------------------- deadlines

    def _start_read_timer(self, channel: Channel, queue: DeadlineQueue) -> None:
        if queue.start(channel, self.now_ns):
            channel.read_timer = queue

    def _stop_read_timer(self, channel: Channel) -> None:
        if channel.read_timer is not None:
            channel.read_timer.stop(channel)
            channel.read_timer = None

    def _expire(self, now: int) -> None:
        self._next_expiry_ns = now + _EXPIRY_CHECK_NS
        self._expire_queue(self._first_frame, DisconnectReason.FIRST_FRAME_TIMEOUT, now)
        self._expire_queue(self._frame, DisconnectReason.FRAME_TIMEOUT, now)
        self._expire_queue(self._authentication, DisconnectReason.AUTHENTICATION_TIMEOUT, now)
        self._expire_queue(self._write, DisconnectReason.WRITE_TIMEOUT, now)
        while (channel := self._delayed_close.pop_expired(now)) is not None:
            self._fail_authentication(channel)
        while (channel := self._idle.pop_expired(now)) is not None:
            self._expire_idle(channel, now)

    def _expire_queue(self, queue: DeadlineQueue, reason: DisconnectReason, now: int) -> None:
        while (channel := queue.pop_expired(now)) is not None:
            channel.close_reason = reason
            log.info(
                "Closing connection %s: %s (limit %d ms)", channel.id, reason.value, queue.duration_ns // 1_000_000
            )
            self._dispose(channel, True)

    def _expire_idle(self, channel: Channel, now: int) -> None:
        """Unlike Kafka, a channel whose request is being handled is not idle: a long-poll may last longer than the idle limit.
        A channel that does not read its response is."""
        if channel.mute_state and channel.current_send is None:
            self._idle.start(channel, now)
            return
        if now - channel.last_active_ns < self.idle_ns:  # a send that was written at once does not move the queue
            self._idle.start(channel, channel.last_active_ns)
            return
        log.debug("Closing connection %s, idle for %d ms", channel.id, (now - channel.last_active_ns) // 1_000_000)
        self._begin_closing(channel, DisconnectReason.EXPIRED)

    # ---------------------------------------------------------------- channels go

    def close(self, channel: Channel, graceful: bool = False, report: bool = False) -> None:
        """Close a channel. Gracefully (RP-21): what was fully received is still delivered, then it is reported in `disconnected`.
        Otherwise at once; reported by the next poll only when asked."""
        if channel.state is CLOSED:
            return
        if channel.close_reason is None:
            channel.close_reason = DisconnectReason.LOCAL_CLOSE
        if graceful and channel.state is READY:
            self._begin_closing(channel, channel.close_reason)
        elif not (graceful and channel.state is CLOSING):
            self._dispose(channel, report or graceful)

    def close_all(self) -> None:
        """Close every channel, unreported, and the selector itself."""
        for channel in (*self.channels.values(), *self.closing_channels.values()):
            self.close(channel)
        if self._pooled is not None:
            self.memory_pool.remove_listener(self.wakeup)
        self._poller.close()
        self._waker.close()

    def _break(self, channel: Channel, error: Exception, reason: DisconnectReason) -> None:
        """`error` happened on `channel`: close it, gently when it was only the reading that failed."""
        channel.error = error
        channel.close_reason = _reason_of(error, reason)
        if isinstance(error, InvalidReceive | OversizedClaim):
            log.warning("Closing connection %s: %s", channel.id, error)
        elif not isinstance(error, OSError | EndOfStream):
            log.warning("Unexpected error from %s; closing connection", channel.id, exc_info=error)
            channel.close_reason = DisconnectReason.INTERNAL_ERROR
        else:
            log.debug("Connection %s disconnected: %s", channel.id, error)
        self._dispose(channel, True)

    def _begin_closing(self, channel: Channel, reason: DisconnectReason) -> None:
        channel.close_reason = reason
        self._detach(channel)
        channel.state = CLOSING
        self.closing_channels[channel.id] = channel
        if self._polling:
            self._advance_closing(channel)

    def _advance_closing(self, channel: Channel) -> None:
        """Deliver the next whole frame, or end the channel; a muted one waits until its request is done."""
        if (
            channel.mute_state
            or channel in self._served
            or any(one.channel is channel for one in self.completed_receives)
        ):
            return
        try:
            receive = self._reader.next_buffered(channel)
            if receive is None and not channel.muted_for_memory:
                receive = self._reader.read(channel)
        except Exception:
            receive = None
        if receive is None:
            self._dispose(channel, True)
        else:
            self.completed_receives.append(receive)

    def _detach(self, channel: Channel) -> None:
        """Off the poller and out of every queue; the socket stays open."""
        if channel.interest:
            try:
                self._poller.unregister(channel.fd)
            except (OSError, KeyError, ValueError) as error:  # the descriptor was closed behind our back
                log.debug("Could not unregister %s: %s", channel.id, error)
            channel.interest = 0
        self.channels.pop(channel.id, None)
        self._by_fd.pop(channel.fd, None)
        self._buffered.pop(channel, None)
        if self._pooled is not None:
            self._pooled.waiters.pop(channel, None)
        self._stop_read_timer(channel)
        self._idle.stop(channel)
        self._write.stop(channel)
        self._delayed_close.stop(channel)

    def _dispose(self, channel: Channel, report: bool) -> None:
        """The end of a channel; the only place that closes its socket."""
        if channel.state is CLOSED:
            return
        if channel.state is CLOSING:
            del self.closing_channels[channel.id]
        else:
            self._detach(channel)
        was_connected = channel.state is not ChannelState.NOT_CONNECTED
        channel.state = CLOSED
        _close_quietly(channel)
        if was_connected:
            self.connections_closed += 1
        if channel in self.connected:
            self.connected.remove(channel)
        send, channel.current_send = channel.current_send, None
        if report:
            self._report(channel, send)

    def _report(self, channel: Channel, send: Send | None) -> None:
        entry = (channel, channel.close_reason or DisconnectReason.LOCAL_CLOSE)
        if self._polling:
            self.disconnected.append(entry)
            if send is not None:
                self.failed_sends.append(send)
        else:
            self._early_disconnected.append(entry)
            if send is not None:
                self._early_failed_sends.append(send)

    # ---------------------------------------------------------------- for the owner

    def wakeup(self) -> None:
        """Any thread: the current or the next poll returns at once. Many calls before that cost one."""
        self._waker.wake()

    def channel(self, channel_id: str) -> Channel | None:
        return self.channels.get(channel_id)

    def lowest_priority_channel(self) -> Channel | None:
        """RP-18: one that is closing already, else the one idle longest, else any."""
        if self.closing_channels:
            return next(iter(self.closing_channels.values()))
        if len(self._idle):
            return min(self.channels.values(), key=_last_active)
        return next(iter(self.channels.values()), None)

    def statistics(self) -> dict[str, int]:
        return {
            "channels": len(self.channels),
            "closing": len(self.closing_channels),
            "buffered": len(self._buffered),
            "waiting_for_memory": len(self._pooled.waiters) if self._pooled is not None else 0,
            "connections_created": self.connections_created,
            "connections_closed": self.connections_closed,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "polls": self.polls,
            "select_ns": self.select_ns,
            "io_ns": self.io_ns,
        }

    def __repr__(self) -> str:
        return (
            f"<Selector channels={len(self.channels)} closing={len(self.closing_channels)} pool={self.memory_pool!r}>"
        )


def _last_active(channel: Channel) -> int:
    return channel.last_active_ns


def _os_error(code: int) -> OSError:
    import os

    return OSError(code, os.strerror(code))


def _reason_of(error: Exception, default: DisconnectReason) -> DisconnectReason:
    if isinstance(error, EndOfStream):
        return DisconnectReason.REMOTE_CLOSE
    if isinstance(error, InvalidReceive | OversizedClaim):
        return DisconnectReason.INVALID_RECEIVE
    return default


def _close_quietly(channel: Channel) -> None:
    closers: Iterable[Transport | Authenticator] = (channel.authenticator, channel.transport)
    for one in closers:
        try:
            one.close()
        except Exception as error:
            log.warning("Could not close %r of %s: %s", one, channel.id, error)
    if channel.buffer is not None:
        channel.buffer.release()
        channel.buffer = None
    channel.body = None
