"""Reading on while a response is stuck (ADR 14).

Role: a peer may send requests faster than it takes its responses. If we do not read meanwhile, the kernel's receive buffer fills up; a
kernel that runs out of receive memory drops the peer's segments, and the acknowledgements of our response in them, so that both
directions stand still. So while a send is stuck its channel is read into memory here, up to a limit per channel and one per selector.
The frame readers take these bytes first, by the same `recv_into`, and still cut one request at a time (RP-19).
Thread: the selector's owner; no lock.
"""

from __future__ import annotations

from typing import Final

from barnabas.net.channel import Channel

__all__ = ["READ_ON_PER_CONNECTION", "READ_ON_PER_PROCESSOR", "HeldBytes", "ReadOn"]

_CHUNK: Final = 64 * 1024
_SHARE: Final = (
    4  # a channel may hold a quarter of what is still free: however many hold something, there is room for one more
)
READ_ON_PER_CONNECTION: Final = 1024 * 1024
READ_ON_PER_PROCESSOR: Final = 32 * 1024 * 1024


class ReadOn:
    """See the file header. `held` is what all channels of the selector hold together."""

    __slots__ = ("_in_total", "_per_channel", "_scratch", "_view", "held")

    def __init__(self, per_channel: int = READ_ON_PER_CONNECTION, in_total: int = READ_ON_PER_PROCESSOR) -> None:
        self._per_channel = per_channel
        self._in_total = in_total
        self._scratch = bytearray(_CHUNK)
        self._view = memoryview(self._scratch)
        self.held = 0

    def read(self, channel: Channel) -> bool:
        """Read what is there now. False when there is no room, or the peer has finished: then there is nothing to watch for."""
        bytes_held = channel.held
        own = 0 if bytes_held is None else len(bytes_held.data)
        room = min(_CHUNK, min(self._per_channel, (self._in_total - self.held) // _SHARE) - own)
        if room <= 0:
            return False
        try:
            count = channel.transport.recv_into(self._scratch, room)
        except BlockingIOError:
            return True
        except OSError:
            return False  # the stuck send finds out too, and says so
        if not count:
            return False  # reading the socket later says so again
        if bytes_held is None:
            bytes_held = HeldBytes(channel, self)
        bytes_held.data += self._view[:count]
        self.held += count
        return True

    def drop(self, channel: Channel) -> None:
        """The channel is closed: what it held is gone."""
        bytes_held = channel.held
        if bytes_held is not None:
            self.held -= len(bytes_held.data)
            channel.held = None


class HeldBytes:
    """What one channel holds. Stands in for the socket's `recv_into` until it is empty."""

    __slots__ = ("_channel", "_owner", "data")

    def __init__(self, channel: Channel, owner: ReadOn) -> None:
        self._channel = channel
        self._owner = owner
        self.data = bytearray()
        channel.held = self
        channel.recv_into = self.recv_into

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0) -> int:
        """As the socket's."""
        count = min(len(self.data), nbytes or len(buffer))
        with memoryview(self.data) as held, memoryview(buffer) as target:
            target[:count] = held[:count]
        del self.data[:count]
        self._owner.held -= count
        if not self.data:
            channel = self._channel
            channel.held = None
            channel.recv_into = channel.transport.recv_into
        return count
