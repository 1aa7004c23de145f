"""Authenticator of a channel (RP-24): who is at the other end.

Role: interface that SASL implements later, and the one for listeners without authentication. Thread: the selector's owner; no lock.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.errors import BarnabasError
from barnabas.net.transport import Transport

__all__ = ["ANONYMOUS", "NO_AUTHENTICATION", "AuthenticationFailed", "Authenticator", "NoAuthenticator"]

ANONYMOUS = "User:ANONYMOUS"


class AuthenticationFailed(BarnabasError):
    """The peer is not who it says; the channel is closed after `Deadlines.failed_authentication_delay_ns`."""


class Authenticator(Protocol):
    """Driven by the selector on every readiness event until `complete`."""

    complete: bool
    wants_write: bool
    principal: str

    def authenticate(self, transport: Transport) -> None:
        """One non-blocking step; raises AuthenticationFailed."""

    def fail(self, transport: Transport) -> None:
        """Called once when the delayed close of a failed authentication is due: last chance to answer."""

    def close(self) -> None: ...


class NoAuthenticator:
    """Everybody is anonymous. Without state: one object serves all channels."""

    __slots__ = ()
    complete = True
    wants_write = False
    principal = ANONYMOUS

    def authenticate(self, transport: Transport) -> None:
        """Nothing to do."""

    def fail(self, transport: Transport) -> None:
        """Cannot fail."""

    def close(self) -> None:
        """Nothing to close."""


NO_AUTHENTICATION = NoAuthenticator()
