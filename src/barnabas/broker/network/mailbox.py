"""What other threads leave for a processor: new connections and responses (RP-6, RP-13).

Role:    two queues, and whether the processor sleeps, so that it is woken only then. New connections are bounded; responses are bounded by
         the number of connections, because each has at most one request.
Thread:  `put_*`, `close` and `wake` from any; the rest on the thread that runs the processor's turns.
Lock:    `_changed`, a leaf, held for a few byte codes.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.network.request import Response

__all__ = ["NEW_CONNECTIONS", "Mailbox"]

NEW_CONNECTIONS = 20
WAIT_SLICE_SECONDS = 0.1


class Mailbox:
    """See the file header. `wakeup` ends the processor's sleep."""

    __slots__ = ("_asleep", "_changed", "_connections", "_open", "_wakeup", "responses")

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        self._changed = threading.Condition(threading.Lock())
        self._connections: deque[tuple[socket.socket, str]] = deque()
        self.responses: deque[Response] = deque()
        self._asleep = False
        self._open = True

    # ---- from any thread -----------------------------------------------------------------------------------------

    def put_connection(self, sock: socket.socket, address: str) -> bool:
        """Hand over a counted socket. False when there is no room or the processor ends."""
        with self._changed:
            if len(self._connections) >= NEW_CONNECTIONS or not self._open:
                return False
            self._connections.append((sock, address))
        self._wakeup()
        return True

    def put_connection_waiting(self, sock: socket.socket, address: str, still_wanted: Callable[[], bool]) -> bool:
        """As `put_connection`, but wait for room."""
        while not self.put_connection(sock, address):
            with self._changed:
                if not self._open or not still_wanted():
                    return False
                if len(self._connections) >= NEW_CONNECTIONS:
                    self._changed.wait(WAIT_SLICE_SECONDS)
        return True

    def put_response(self, response: Response) -> bool:
        """Queue it; True when somebody must call `wake` soon."""
        with self._changed:
            self.responses.append(response)
            return self._asleep

    def wake(self) -> None:
        """Many responses before the processor wakes cost one system call."""
        with self._changed:
            asleep, self._asleep = self._asleep, False
        if asleep:
            self._wakeup()

    # ---- the processor -------------------------------------------------------------------------------------------

    def fall_asleep(self) -> bool:
        """The processor is about to wait. False when something is here already."""
        with self._changed:
            if self.responses or self._connections:
                return False
            self._asleep = True
        return True

    def awake(self) -> None:
        self._asleep = False

    def connections_waiting(self) -> int:
        return len(self._connections)

    def take_connection(self) -> tuple[socket.socket, str]:
        with self._changed:
            taken = self._connections.popleft()
            self._changed.notify()
        return taken

    def close(self) -> list[tuple[socket.socket, str]]:
        """No further connection is taken; those that wait, whose sockets the caller closes."""
        with self._changed:
            self._open = False
            waiting = list(self._connections)
            self._connections.clear()
            self._changed.notify_all()
        return waiting

    def __repr__(self) -> str:
        return f"<Mailbox connections={len(self._connections)} responses={len(self.responses)} asleep={self._asleep}>"
