"""The channels of one selector: by id, by descriptor, in the order of their last use, and what the poller watches for each.

Role: bookkeeping only, moves no bytes. `recency` holds every open channel, the one idle longest first (RP-18, RP-22); whoever does
I/O on a channel stamps `last_active_ns` and calls `touch`. Thread: the selector's owner; no lock.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from barnabas.errors import BarnabasError
from barnabas.net.channel import Channel
from barnabas.net.poller import Poller

__all__ = ["ChannelExists", "ChannelTable"]

log = logging.getLogger(__name__)


class ChannelExists(BarnabasError):
    """A channel of this id is open or still closing."""


class ChannelTable:
    """See the file header."""

    __slots__ = ("_poller", "by_fd", "closing", "open", "recency", "touch")

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self.open: dict[str, Channel] = {}
        self.closing: dict[str, Channel] = {}
        self.by_fd: dict[int, Channel] = {}
        self.recency: OrderedDict[Channel, None] = OrderedDict()
        self.touch = self.recency.move_to_end

    def ensure_new(self, channel_id: str) -> None:
        if channel_id in self.open:
            raise ChannelExists(f"there is already a connection with id {channel_id}")
        if channel_id in self.closing:
            raise ChannelExists(f"the connection with id {channel_id} is still being closed")

    def add(self, channel: Channel, interest: int, now_ns: int) -> None:
        if interest:
            self._poller.register(channel.fd, interest)
        channel.interest = interest
        channel.last_active_ns = now_ns
        self.open[channel.id] = channel
        self.by_fd[channel.fd] = channel
        self.recency[channel] = None

    def set_interest(self, channel: Channel, wanted: int) -> None:
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

    def remove(self, channel: Channel) -> None:
        """Off the poller and out of the open channels; the socket stays open."""
        try:
            self.set_interest(channel, 0)
        except (OSError, KeyError, ValueError) as error:  # the descriptor was closed behind our back
            channel.interest = 0
            log.debug("Could not unregister %s: %s", channel.id, error)
        del self.open[channel.id]
        del self.by_fd[channel.fd]
        del self.recency[channel]

    def expired(self, now_ns: int, idle_ns: int) -> Channel | None:
        """The channel idle longest, if that is `idle_ns` or more."""
        channel = next(iter(self.recency), None)
        if channel is None or now_ns - channel.last_active_ns < idle_ns:
            return None
        return channel

    def lowest_priority(self) -> Channel | None:
        """RP-18: one that is closing already, else the one idle longest."""
        return next(iter(self.closing.values()), None) or next(iter(self.recency), None)
