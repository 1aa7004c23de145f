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
        "has_early",
        "hung_up",
        "polling",
    )

    def __init__(self) -> None:
        self.polling = False
        self.has_early = False
        self.completed_receives: list[Receive] = []
        self.completed_sends: list[Send] = []
        self.connected: list[Channel] = []
        self.disconnected: list[tuple[Channel, DisconnectReason]] = []
        self.failed_sends: list[Send] = []
        self.hung_up: list[Channel] = []
        self._early_disconnected: list[tuple[Channel, DisconnectReason]] = []
        self._early_failed_sends: list[Send] = []

    def begin(self) -> None:
        """A poll begins: drop what the last one found."""
        if self.completed_receives:
            self.completed_receives.clear()
        if self.completed_sends:
            self.completed_sends.clear()
        if self.connected:
            self.connected.clear()
        if self.disconnected:
            self.disconnected.clear()
        if self.failed_sends:
            self.failed_sends.clear()
        if self.hung_up:
            self.hung_up.clear()
        self.polling = True

    def take_early(self) -> None:
        """Report what happened since the last poll."""
        self.has_early = False
        self.disconnected.extend(self._early_disconnected)
        self.failed_sends.extend(self._early_failed_sends)
        self._early_disconnected.clear()
        self._early_failed_sends.clear()

    def add_disconnected(self, channel: Channel) -> None:
        entry = (channel, channel.close_reason or DisconnectReason.LOCAL_CLOSE)
        if self.polling:
            self.disconnected.append(entry)
        else:
            self._early_disconnected.append(entry)
            self.has_early = True

    def add_failed_send(self, send: Send) -> None:
        if self.polling:
            self.failed_sends.append(send)
        else:
            self._early_failed_sends.append(send)
            self.has_early = True
