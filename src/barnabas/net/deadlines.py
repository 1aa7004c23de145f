"""Deadlines of channels (RP-42), all on the monotonic clock.

Role: `Deadlines` names the durations; a `DeadlineQueue` keeps the channels that one duration applies to, oldest first, so that a check
looks at the oldest only: O(expired), never O(channels); `Timers` are the queues of one selector. At most one read-side deadline runs
for a channel at a time (authentication, then first frame, then each frame that began), so the channel itself remembers which.
Thread: the selector's owner; no lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.net.channel import Channel, DisconnectReason

__all__ = ["NO_DEADLINES", "DeadlineQueue", "Deadlines", "Timers"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Durations in nanoseconds; 0 = off. A byte every few seconds extends none of them but `write_ns`."""

    first_frame_ns: int = 10 * _SECOND  # registered (and authenticated) until the first whole frame
    frame_ns: int = 30 * _SECOND  # first byte of a frame until its last, not counting time in which we do not read
    write_ns: int = 60 * _SECOND  # a send without any progress
    authentication_ns: int = 10 * _SECOND  # registered until handshake and authentication are done
    failed_authentication_delay_ns: int = 0  # RP-22: the close after a failed authentication waits this long
    stuck_ns: int = 10 * _SECOND  # a send that takes longer is named in the log, once


NO_DEADLINES = Deadlines(0, 0, 0, 0, 0, 0)


class DeadlineQueue:
    """Channels that must do something within `duration_ns`, the oldest first. A duration of 0 keeps nobody."""

    __slots__ = ("_since", "duration_ns", "reason")

    def __init__(self, duration_ns: int, reason: DisconnectReason) -> None:
        self.duration_ns = duration_ns
        self.reason = reason
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

    def __len__(self) -> int:
        return len(self._since)

    def __repr__(self) -> str:
        return f"<DeadlineQueue {self.reason.name} duration_ns={self.duration_ns} waiting={len(self._since)}>"


class Timers:
    """The deadline queues of one selector."""

    __slots__ = ("authentication", "delayed_close", "first_frame", "frame", "stuck", "write")

    def __init__(self, deadlines: Deadlines) -> None:
        self.first_frame = DeadlineQueue(deadlines.first_frame_ns, DisconnectReason.FIRST_FRAME_TIMEOUT)
        self.frame = DeadlineQueue(deadlines.frame_ns, DisconnectReason.FRAME_TIMEOUT)
        self.write = DeadlineQueue(deadlines.write_ns, DisconnectReason.WRITE_TIMEOUT)
        self.stuck = DeadlineQueue(deadlines.stuck_ns, DisconnectReason.WRITE_TIMEOUT)
        self.authentication = DeadlineQueue(deadlines.authentication_ns, DisconnectReason.AUTHENTICATION_TIMEOUT)
        delay_ns = deadlines.failed_authentication_delay_ns
        self.delayed_close = DeadlineQueue(delay_ns, DisconnectReason.AUTHENTICATION_FAILED)

    def start_reading(self, channel: Channel, queue: DeadlineQueue, now_ns: int) -> None:
        """Let `queue` be the read-side deadline of the channel, instead of the one that runs."""
        self.stop_reading(channel)
        if queue.start(channel, now_ns):
            channel.read_timer = queue

    def stop_reading(self, channel: Channel) -> None:
        timer = channel.read_timer
        if timer is not None:
            timer.stop(channel)
            channel.read_timer = None

    def stop_all(self, channel: Channel) -> None:
        self.stop_reading(channel)
        self.write.stop(channel)
        self.stuck.stop(channel)
        self.delayed_close.stop(channel)

    def expired(self, now_ns: int) -> Iterator[tuple[Channel, DeadlineQueue]]:
        for queue in (self.first_frame, self.frame, self.authentication, self.write, self.stuck, self.delayed_close):
            while (channel := queue.pop_expired(now_ns)) is not None:
                yield channel, queue
