"""Names of hosts in `max.connections.per.ip.overrides`, looked up where nobody waits for it.

Role:    one thread asks the name servers about the newest list of names, and ends with it. Whoever changes the list again stops the look-up
         of the list before after the name that it is at, so that there are never two threads, however often the list changes.
Thread:  any may call `look_up`; `found` is called on the thread of the look-up. Lock: `_lock` guards the list that waits and whether the
         thread runs, and is never held while a name server is asked.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence

from barnabas.errors import shown

log = logging.getLogger(__name__)

Found = Callable[[str, frozenset[str]], None]


class HostNames:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: tuple[Sequence[str], Found] | None = None
        self._running = False

    def look_up(self, names: Sequence[str], found: Found) -> None:
        """Call `found(name, addresses)` for each name as soon as its addresses are known; those of the list before are forgotten."""
        with self._lock:
            self._next = (names, found)
            if self._running or not names:
                return
            threading.Thread(target=self._run, name="barnabas-resolver", daemon=True).start()
            self._running = True

    def _run(self) -> None:
        while True:
            with self._lock:
                job, self._next = self._next, None
                if job is None:
                    self._running = False
                    return
            self._ask(*job)

    def _ask(self, names: Sequence[str], found: Found) -> None:
        unknown = []
        for name in names:
            addresses = addresses_of(name)
            if self._next is not None:
                return
            if addresses:
                found(name, addresses)
            else:
                unknown.append(name)
        if unknown:
            text = "max.connections.per.ip.overrides: %s is not known, its limit is ignored (%d names in all)"
            log.warning(text, shown(unknown[0]), len(unknown))


def addresses_of(name: str) -> frozenset[str]:
    """Empty when the name servers know none, or do not answer."""
    try:
        return frozenset(str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return frozenset()
