"""The sends of one selector: the first write, and what is left of it while the socket takes no more (RP-24).

Role: writes, keeps the write deadline (RP-42), and knows which responses are stuck, since when and with how many bytes. What stuck ones
hold in memory is counted in an `UnsentMemory`, which the selectors of a broker share. Errors of a connection pass to the selector, which
closes the channel.
Thread: the selector's owner; `unsent` and `UnsentMemory` from any. Lock: that of `UnsentMemory`; `_since` is copied whole by whoever looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from barnabas.net.channel import READY, Channel
from barnabas.net.channel_table import ChannelTable
from barnabas.net.deadlines import Timers
from barnabas.net.pace import Pace
from barnabas.net.poller import READ, WRITE
from barnabas.net.send import Send

__all__ = ["Sending", "UnsentMemory"]

PATIENCE_NS: Final = 5_000_000_000
FAIR_BYTES: Final = 5 * 65_536
"""While memory is short, who takes less of its response in PATIENCE_NS loses its connection."""
_LOOK_NS: Final = 200_000_000
_NEGLIGIBLE: Final = 4096  # a connection costs as much anyway


class UnsentMemory:
    """How much memory is held by responses that their peers are slow to take, and how much may be."""

    __slots__ = ("_limit", "_lock", "held")

    def __init__(self, limit: int = 2**63 - 1) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self.held = 0

    def add(self, size: int) -> None:
        with self._lock:
            self.held += size

    def excess(self) -> int:
        return self.held - self._limit


class Sending:
    """See the file header."""

    __slots__ = ("_held", "_next_look_ns", "_now_ns", "_pace", "_since", "_table", "_timers", "bytes_out", "memory")

    def __init__(self, table: ChannelTable, timers: Timers, now_ns: Callable[[], int]) -> None:
        self._table = table
        self._timers = timers
        self._now_ns = now_ns
        self._since: dict[Channel, int] = {}  # channels with a send in progress, and when it began
        self._held: dict[Channel, int] = {}  # how much memory they take, the oldest first
        self._pace = Pace(PATIENCE_NS)
        self._next_look_ns = 0
        self.memory = UnsentMemory()  # the owner may put one with a limit here before the first send
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
        held = send.memory()
        if held > _NEGLIGIBLE:
            self._held[channel] = held
            self.memory.add(held)
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
            self.memory.add(-self._held.pop(channel, 0))
            self._pace.forget(channel)

    def overdue(self, now: int) -> list[Channel]:
        """Channels that take too little of their responses, the oldest first, as many as must go for the others to fit."""
        excess = self.memory.excess()
        if excess <= 0:
            self._pace.clear()
            return []
        if now < self._next_look_ns:
            return []
        self._next_look_ns = now + _LOOK_NS
        slow = []
        for channel, held in self._held.items():
            send = channel.current_send
            if send is not None and self._pace.is_slow(channel, send.written, FAIR_BYTES, now):
                slow.append(channel)
                excess -= held
                if excess <= 0:
                    break
        return slow

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
