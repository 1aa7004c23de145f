"""By which host names the metrics page may be asked for: the defence against DNS rebinding.

Role: a web page of an attacker may let his own host name point to 127.0.0.1, and then read from there through the browser of somebody
who looks at it. The browser sends that name as `Host`, so names that nobody has told us are refused. Numbers and localhost cannot be
an attacker's.
Thread: any. Lock: none, nothing here changes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

ANY = "*"


class KnownHosts:
    """The host names of this broker."""

    __slots__ = ("_configured", "_names")

    def __init__(self, configured: Iterable[str] = (), own: Iterable[str] = ()) -> None:
        """`configured`: what the setting allows; `own`: names under which the broker is known anyway."""
        self._configured = frozenset(name.lower().rstrip(".") for name in configured)
        machine = socket.gethostname()
        self._names = self._configured | {name.lower() for name in (*own, machine, machine.partition(".")[0])}

    def allow(self, host: str, reached_at: str) -> bool:
        """Whether a request for `host` may be served that came to our address `reached_at`. Browsers always name a host."""
        if not host or is_numeric(host) or host == "localhost":
            return True
        if host in self._names or ANY in self._configured:
            return True
        return not self._configured and not is_loopback(reached_at)

    def __repr__(self) -> str:
        return f"<KnownHosts {sorted(self._names)}>"


def is_numeric(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return True
    return False


def is_loopback(address: str) -> bool:
    return address.removeprefix("::ffff:").startswith("127.") or address == "::1"
