"""The queue behind every deadline (RP-42)."""

from __future__ import annotations

import socket

from barnabas.net.channel import Channel, DisconnectReason
from barnabas.net.deadlines import DeadlineQueue


def test_a_queue_gives_up_its_oldest_channels_only() -> None:
    """RP-42: started again means young again; the check stops at the first that has time left."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        first, second, third = (Channel(name, ours) for name in "123")
        queue = DeadlineQueue(10, DisconnectReason.WRITE_TIMEOUT)
        assert queue.pop_expired(1000) is None
        for now, channel in enumerate((first, second, third)):
            assert queue.start(channel, now)
        queue.start(first, 5)
        assert queue.pop_expired(10) is None
        assert queue.pop_expired(11) is second
        queue.stop(third)
        queue.stop(third)
        assert queue.pop_expired(14) is None
        assert queue.pop_expired(15) is first
        assert len(queue) == 0
        assert "WRITE_TIMEOUT" in repr(queue)


def test_a_queue_without_duration_keeps_nobody() -> None:
    """RP-42: 0 = off."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        queue = DeadlineQueue(0, DisconnectReason.FRAME_TIMEOUT)
        assert not queue.start(Channel("c", ours), 1)
        assert queue.pop_expired(1 << 60) is None
