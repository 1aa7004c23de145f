"""The sends of one selector: the first write, and what is left of it while the socket takes no more (RP-24).

Role: writes, keeps the write deadline (RP-42), and knows which responses are stuck, since when and with how many bytes. Errors of a
connection pass to the selector, which closes the channel.
Thread: the selector's owner; `unsent` from any. Lock: none; `_since` is copied whole by whoever looks.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.net.channel import READY, Channel
from barnabas.net.channel_table import ChannelTable
from barnabas.net.deadlines import Timers
from barnabas.net.poller import READ, WRITE
from barnabas.net.send import Send

__all__ = ["Sending"]


class Sending:
    """See the file header."""

    __slots__ = ("_now_ns", "_since", "_table", "_timers", "bytes_out")

    def __init__(self, table: ChannelTable, timers: Timers, now_ns: Callable[[], int]) -> None:
        self._table = table
        self._timers = timers
        self._now_ns = now_ns
        self._since: dict[Channel, int] = {}  # channels with a send in progress, and when it began
        self.bytes_out = 0

    def begin(self, channel: Channel, send: Send) -> bool:
        """Write what the socket takes now; True when that was everything. A channel that is not ready yet begins later."""
        if channel.state is READY:
            count = send.write_to(channel.transport)
            self.bytes_out += count
            if count == send.size:
                channel.last_active_ns = self._now_ns()
                self._table.touch(channel)
                return True
            # READ too: a peer that is not read may be unable to tell us that it has received (read_on.py).
            self._table.set_interest(channel, channel.interest | WRITE | READ)
        channel.current_send = send
        now = self._now_ns()
        self._since[channel] = now
        self._timers.write.start(channel, now)
        self._timers.stuck.start(channel, now)
        return False

    def go_on(self, channel: Channel, send: Send, now: int) -> bool:
        """The socket takes more; True when the last byte has left."""
        count = send.write_to(channel.transport)
        self.bytes_out += count
        if count:
            channel.last_active_ns = now
            self._table.touch(channel)
        if send.written < send.size:
            if count:
                self._timers.write.start(channel, now)
            return False
        channel.current_send = None
        self.stop(channel)
        self._table.set_interest(channel, channel.interest & ~WRITE)
        return True

    def stop(self, channel: Channel) -> None:
        """Sent, or given up."""
        if self._since.pop(channel, None) is not None:
            self._timers.write.stop(channel)
            self._timers.stuck.stop(channel)

    def __len__(self) -> int:
        return len(self._since)

    def unsent(self) -> tuple[int, int]:
        """Bytes that wait for their peers, and for how long the oldest send has waited, in nanoseconds."""
        size = 0
        oldest = now = self._now_ns()
        for channel, since in self._since.copy().items():
            send = channel.current_send
            if send is not None:
                size += send.size - send.written
                oldest = min(oldest, since)
        return size, now - oldest
