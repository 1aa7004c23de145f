"""Deadlines of channels (RP-42) and the idle order (RP-22), all on the monotonic clock.

Role: `Deadlines` names the durations; `DeadlineQueue` keeps the channels that one duration applies to, oldest first, so that a check
looks at the oldest only: O(expired), never O(channels). Thread: the selector's owner; no lock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.net.channel import Channel

__all__ = ["NO_DEADLINES", "DeadlineQueue", "Deadlines"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Durations in nanoseconds; 0 = off. A byte every few seconds extends none of them but `write_ns`."""

    first_frame_ns: int = 10 * _SECOND  # registered (and authenticated) until the first whole frame
    frame_ns: int = 30 * _SECOND  # first byte of a frame until its last, not counting time in which we do not read
    write_ns: int = 60 * _SECOND  # a send without any progress
    authentication_ns: int = 10 * _SECOND  # registered until handshake and authentication are done
    failed_authentication_delay_ns: int = 0  # RP-22: the close after a failed authentication waits this long


NO_DEADLINES = Deadlines(0, 0, 0, 0, 0)


class DeadlineQueue:
    """Channels that must do something within `duration_ns`, the oldest first. A duration of 0 keeps nobody."""

    __slots__ = ("_since", "duration_ns")

    def __init__(self, duration_ns: int) -> None:
        self.duration_ns = duration_ns
        self._since: OrderedDict[Channel, int] = OrderedDict()

    def start(self, channel: Channel, now_ns: int) -> bool:
        """Start, or start again, at the young end; False when the queue is off."""
        if not self.duration_ns:
            return False
        self._since[channel] = now_ns
        self._since.move_to_end(channel)
        return True

    def stop(self, channel: Channel) -> None:
        self._since.pop(channel, None)

    def pop_expired(self, now_ns: int) -> Channel | None:
        """The oldest channel if its time is over (removed), else None."""
        since = self._since
        if not since:
            return None
        channel = next(iter(since))
        if now_ns - since[channel] < self.duration_ns:
            return None
        del since[channel]
        return channel

    def oldest(self) -> Channel | None:
        return next(iter(self._since), None)

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, channel: Channel) -> bool:
        return channel in self._since

    def __repr__(self) -> str:
        return f"<DeadlineQueue duration_ns={self.duration_ns} waiting={len(self._since)}>"
