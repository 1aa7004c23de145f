"""Whether channels make progress while others wait for what they hold.

Role: remembers of each channel that is asked for when that was and how far it had come; kept only while memory is short.
Thread: the selector's owner; no lock.
"""

from __future__ import annotations

from barnabas.net.channel import Channel

__all__ = ["Pace"]


class Pace:
    """See the file header."""

    __slots__ = ("_seen", "window_ns")

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self._seen: dict[Channel, tuple[int, int]] = {}

    def is_slow(self, channel: Channel, done: int, least: int, now_ns: int) -> bool:
        """Whether `channel`, which has come to `done` bytes, has come less than `least` further in a whole window."""
        since_ns, before = self._seen.get(channel, (-1, 0))
        if since_ns < 0 or (now_ns - since_ns >= self.window_ns and done - before >= least):
            self._seen[channel] = (now_ns, done)
            return False
        return now_ns - since_ns >= self.window_ns

    def forget(self, channel: Channel) -> None:
        self._seen.pop(channel, None)

    def clear(self) -> None:
        self._seen.clear()
