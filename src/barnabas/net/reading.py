"""What may be read from which channel of one selector (RP-19, RP-20): mute states, and channels whose next frame needs no readiness.

Role: the counterpart of `Sending`. Muting never touches the poller; a muted channel that becomes readable anyway is taken off it then
(`hold_back`) and put back by `unmute`. `buffered` holds the channels that may have a whole frame in memory: bytes that were read ahead,
held while a send was stuck (read_on.py), or kept by the transport (TLS); no event will announce it.
Thread: the selector's owner; no lock.
"""

from __future__ import annotations

from barnabas.net.channel import READY, Channel, Receive
from barnabas.net.channel_table import ChannelTable
from barnabas.net.deadlines import Timers
from barnabas.net.mute import MUTED, MUTED_AND_RESPONSE_PENDING, NOT_MUTED, REQUEST_RECEIVED, RESPONSE_SENT
from barnabas.net.poller import BROKEN, HANG_UP, READ
from barnabas.net.read_on import ReadOn

__all__ = ["Reading"]

_READ_OR_HANG_UP = READ | HANG_UP


class Reading:
    """See the file header."""

    __slots__ = ("_completed", "_hung_up", "_table", "_timers", "buffered", "read_on")

    def __init__(
        self, table: ChannelTable, timers: Timers, completed_receives: list[Receive], hung_up: list[Channel]
    ) -> None:
        self._table = table
        self._timers = timers
        self._completed = completed_receives
        self._hung_up = hung_up
        self.buffered: dict[Channel, None] = {}  # in the order in which they came
        self.read_on = ReadOn()  # the owner may put one with other limits here before the first poll

    def mute(self, channel: Channel) -> None:
        """Stop reading `channel`. The poller is told only if bytes arrive meanwhile."""
        if channel.mute_state is NOT_MUTED:
            channel.mute_state = MUTED
            if channel.read_timer is not None:  # time in which we do not read is not the peer's
                self._timers.stop_reading(channel)

    def unmute(self, channel: Channel) -> bool:
        """Read again, if nothing but `mute` held the channel; says whether it is unmuted now."""
        if channel.mute_state is not MUTED:
            return channel.mute_state is NOT_MUTED
        channel.mute_state = NOT_MUTED
        if channel.leftover or channel.body is not None or channel.held is not None or channel.transport.buffers:
            self.buffered[channel] = None
        if not channel.interest & READ and channel.state is READY and not channel.muted_for_memory:
            self._table.set_interest(channel, channel.interest | READ)
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

    def received(self, channel: Channel, receive: Receive | None, now: int) -> None:
        """The channel was read; `receive` is the whole frame, if that brought one."""
        channel.last_active_ns = now
        self._table.touch(channel)
        if receive is not None:
            self._completed.append(receive)
            if channel.read_timer is not None:
                self._timers.stop_reading(channel)
            if channel.leftover or channel.held is not None or channel.transport.buffers:
                self.buffered[channel] = None
        elif channel.muted_for_memory:
            self._timers.stop_reading(channel)  # not the peer's fault
        else:
            if channel.held is not None:
                self.buffered[channel] = None  # part of a frame was held, the rest may be too
            if channel.read_timer is None and (channel.leftover or channel.body is not None):
                self._timers.start_reading(channel, self._timers.frame, now)

    def hold_back(self, channel: Channel, event: int) -> None:
        """Something came from a peer that is not read now: bytes, which wait unless a send is stuck (ADR 14), or its hang-up, which the
        owner is told of once, so that nothing waits on the peer's behalf any longer."""
        if event & (HANG_UP | BROKEN):
            if event & BROKEN:
                channel.broken = True
                if channel.muted_for_memory and not channel.mute_state:
                    raise ConnectionResetError("the connection broke while it waited for memory")
            self._table.set_interest(channel, channel.interest & ~_READ_OR_HANG_UP)
            if not channel.hung_up:
                channel.hung_up = True
                self._hung_up.append(channel)
        elif channel.current_send is None or not self.read_on.read(channel):
            self._table.set_interest(channel, channel.interest & ~READ)

    def forget(self, channel: Channel) -> None:
        """The channel leaves the selector."""
        self.buffered.pop(channel, None)
