"""What one poll found, as plain lists that the selector's owner reads before it polls again.

Role: also keeps what happened between two polls (a send that failed, a close that shall be reported) for the next one.
Thread: the selector's owner; no lock.
"""

from __future__ import annotations

from barnabas.net.channel import Channel, DisconnectReason, Receive
from barnabas.net.send import Send

__all__ = ["PollResults"]


class PollResults:
    """The lists are the same objects for the selector's whole life; `begin` empties them."""

    __slots__ = (
        "_early_disconnected",
        "_early_failed_sends",
        "completed_receives",
        "completed_sends",
        "connected",
        "disconnected",
        "failed_sends",
        "polling",
    )

    def __init__(self) -> None:
        self.polling = False
        self.completed_receives: list[Receive] = []
        self.completed_sends: list[Send] = []
        self.connected: list[Channel] = []
        self.disconnected: list[tuple[Channel, DisconnectReason]] = []
        self.failed_sends: list[Send] = []
        self._early_disconnected: list[tuple[Channel, DisconnectReason]] = []
        self._early_failed_sends: list[Send] = []

    def begin(self) -> None:
        """A poll begins: drop what the last one found."""
        self.completed_receives.clear()
        self.completed_sends.clear()
        self.connected.clear()
        self.disconnected.clear()
        self.failed_sends.clear()
        self.polling = True

    @property
    def has_early(self) -> bool:
        return bool(self._early_disconnected or self._early_failed_sends)

    def take_early(self) -> None:
        self.disconnected.extend(self._early_disconnected)
        self.failed_sends.extend(self._early_failed_sends)
        self._early_disconnected.clear()
        self._early_failed_sends.clear()

    def add_disconnected(self, channel: Channel) -> None:
        entry = (channel, channel.close_reason or DisconnectReason.LOCAL_CLOSE)
        (self.disconnected if self.polling else self._early_disconnected).append(entry)

    def add_failed_send(self, send: Send) -> None:
        (self.failed_sends if self.polling else self._early_failed_sends).append(send)
