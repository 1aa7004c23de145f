"""A TCP proxy whose connections die: after some bytes of the broker's answers, each connection at another place.

Threads of its own, one per direction and connection; `close` ends and joins all of them.
"""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress

CHUNK = 4096


class FlakyProxy:
    """Listens on `port` and passes on to `target`; `lifetime` is the range of bytes after which a connection is reset."""

    def __init__(self, lifetime: tuple[int, int], seed: int = 1) -> None:
        self._lifetime = lifetime
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target = 0
        self.connections = 0
        self.killed = 0
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    def start(self, target: int) -> None:
        self.target = target
        self._spawn(self._accept)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for sock in self._sockets:
            sock.close()

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.target))
                with self._lock:
                    self._sockets += (client, broker)
                self.connections += 1
                self._spawn(self._pump, client, broker, None)
                self._spawn(self._pump, broker, client, self._random.randint(*self._lifetime))

    def _pump(self, source: socket.socket, sink: socket.socket, left: int | None) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if left is not None and len(data) >= left:
                    sink.sendall(data[:left])
                    self.killed += 1
                    break
                sink.sendall(data)
                left = None if left is None else left - len(data)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
