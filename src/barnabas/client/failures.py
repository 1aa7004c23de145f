"""Why no broker could be reached, for the error that a user sees after a time-out.

Role: the last failure of each address, bounded. Thread: any. Lock: its own, for a few byte codes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

__all__ = ["ConnectionFailures"]

MAX_ADDRESSES = 16
_NO_ANSWER = "no answer yet"


class ConnectionFailures:
    """The newest failures per address; a success clears them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._refused: set[str] = set()

    def tried(self, address: str) -> None:
        """A connection is begun; until it fails there is nothing else to say of it."""
        with self._lock:
            if len(self._reasons) < MAX_ADDRESSES:
                self._reasons.setdefault(address, _NO_ANSWER)

    def answered(self, address: str) -> None:
        with self._lock:
            self._reasons.pop(address, None)
            self._refused.discard(address)

    def refused(self, address: str) -> None:
        """Nobody listens there: the host answered at once that it takes no connection."""
        with self._lock:
            if len(self._refused) < MAX_ADDRESSES:
                self._refused.add(address)

    def all_refused(self, addresses: Collection[str]) -> bool:
        """Whether each of these was tried and refused the connection, and nobody else is there to be tried."""
        with self._lock:
            return self._refused.issuperset(addresses)

    def add(self, address: str, reason: str) -> None:
        with self._lock:
            self._reasons.pop(address, None)
            self._reasons[address] = reason
            if len(self._reasons) > MAX_ADDRESSES:
                del self._reasons[next(iter(self._reasons))]

    def clear(self) -> None:
        with self._lock:
            self._reasons.clear()
            self._refused.clear()

    def words(self) -> str:
        """For the end of an error message: empty, or the addresses tried and what each said."""
        with self._lock:
            if not self._reasons:
                return ""
            return "; tried " + ", ".join(f"{address} ({reason})" for address, reason in self._reasons.items())

    def __repr__(self) -> str:
        return f"<ConnectionFailures {self._reasons}>"
