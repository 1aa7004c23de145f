"""A proxy between a client and a broker that delays, narrows, cuts and replays what passes.

`with FaultyProxy() as proxy:` listens first; the broker then advertises `proxy.address`, so that clients never go around it, and
`proxy.target` is set to the broker. Each connection has two threads, one per direction; all of them end with the proxy.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

CHUNK = 16 * 1024
NO_LINGER = struct.pack("ii", 1, 0)  # close with RST

Meddle = Callable[[bytes, bool], bytes]


class FaultyProxy:
    """What it does to traffic may be changed at any time: `delay`, `bytes_per_second`, held directions, `lifetime` of connections, and
    the chance that one of them breaks in the middle of what is being sent."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.target = 0
        self.lifetime: tuple[float, float] | None = None
        self.meddle: Meddle | None = None
        self.hold_requests = threading.Event()
        self.hold_responses = threading.Event()
        self.heal()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="faulty-proxy")]

    def heal(self) -> None:
        """No fault any more, and nothing counted: the next test begins. Connections that have a set end keep it."""
        self.delay = self.break_chance = 0.0
        self.bytes_per_second = self.broken = self.connections = 0
        self.lifetime = self.meddle = None
        self.hold_requests.clear()
        self.hold_responses.clear()

    @property
    def advertised(self) -> str:
        return f"PLAINTEXT://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> FaultyProxy:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.reset_all()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        self._threads[0].join(10)
        self._listener.close()
        for thread in self._threads[1:]:
            thread.join(10)

    def reset_all(self) -> int:
        """Every connection ends with a reset, wherever its bytes are."""
        with self._lock:
            ended, self._open = self._open, set()
        for sock in ended:
            _reset(sock)
        return len(ended) // 2

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._over.is_set():
                client.close()
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), 5)
            except OSError:
                client.close()
                continue
            self.connections += 1
            with self._lock:
                self._open |= {client, server}
            ends = time.monotonic() + random.uniform(*self.lifetime) if self.lifetime else float("inf")
            for source, sink, requests in ((client, server, True), (server, client, False)):
                thread = threading.Thread(target=self._pump, args=(source, sink, requests, ends), name="faulty-proxy")
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, requests: bool, ends: float) -> None:
        held = self.hold_requests if requests else self.hold_responses
        try:
            while not self._over.is_set() and time.monotonic() < ends:
                if held.is_set():
                    self._over.wait(0.01)
                    continue
                if not select.select([source], [], [], 0.02)[0]:
                    continue
                data = source.recv(CHUNK)
                if not data:
                    break
                if self.meddle is not None:
                    data = self.meddle(data, requests)
                self._slow_down(len(data))
                if random.random() < self.break_chance:
                    self.broken += 1
                    sink.sendall(data[: len(data) // 2])
                    break
                sink.sendall(data)
        except (OSError, ValueError):
            pass  # the other direction has closed them
        finally:
            with self._lock:
                self._open -= {source, sink}
            _reset(source)
            _reset(sink)

    def _slow_down(self, size: int) -> None:
        seconds = self.delay + (size / self.bytes_per_second if self.bytes_per_second else 0)
        if seconds:
            self._over.wait(seconds)


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
