"""The bystander: sends its small requests at fixed times, whatever becomes of the earlier ones, and notes how long each answer took.

Role: `python -m bench.neighbours.probe KIND PORT`. Kinds: `produce` (a record of 100 bytes every 5 ms, all on one connection), `newcomer`
(an ApiVersions every 20 ms, each on a connection of its own), `health` (GET /health of the metrics port every 50 ms, likewise).
A time begins when the request is written and ends when its answer has been read. On a busy machine the probe itself is woken late:
that time is not the broker's and is not counted, but reported beside the others (`late_ms`), since answers are read as late.
A request without an answer counts as long as it has waited so far, and as failed.
Thread: one; no garbage collection. Lock: none.
"""

from __future__ import annotations

import gc
import math
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from bench.brokers import API_VERSIONS_V0, HOST
from bench.neighbours import payloads
from bench.neighbours.children import serve, told_to_end

PATIENCE_SECONDS = 15.0
"""How long it waits for the last answers."""
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LOOK_UP_SECONDS = 0.05


class Stream(Protocol):
    """What sends the requests of a kind and sees their answers."""

    interval: float
    took: list[float]
    failed: int

    @property
    def waiting(self) -> bool: ...
    def send(self, now: float) -> None: ...
    def sockets(self) -> tuple[Sequence[socket.socket], Sequence[socket.socket]]: ...
    def turn(self, readable: Sequence[socket.socket], writable: Sequence[socket.socket]) -> None: ...
    def give_up(self, now: float) -> None: ...


class Pipeline:
    """One connection on which requests may overtake the answers."""

    interval = 0.005

    def __init__(self, port: int) -> None:
        self.took: list[float] = []
        self.failed = 0
        self._frame = payloads.probe_record()
        self._socket = socket.create_connection((HOST, port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._sent: deque[float] = deque()
        self._unwritten = b""
        self._answers = bytearray()
        self._closed = False

    @property
    def waiting(self) -> bool:
        return bool(self._sent) and not self._closed

    def send(self, now: float) -> None:
        if self._closed:
            self.failed += 1
            return
        self._sent.append(now)
        self._unwritten += self._frame
        self._write()

    def _write(self) -> None:
        try:
            self._unwritten = self._unwritten[self._socket.send(self._unwritten) :]
        except BlockingIOError:
            pass
        except OSError:
            self._closed = True

    def sockets(self) -> tuple[Sequence[socket.socket], Sequence[socket.socket]]:
        if self._closed:
            return (), ()
        return (self._socket,), (self._socket,) if self._unwritten else ()

    def turn(self, readable: Sequence[socket.socket], writable: Sequence[socket.socket]) -> None:
        if writable:
            self._write()
        if not readable:
            return
        try:
            data = self._socket.recv(65536)
        except OSError:
            data = b""
        now = time.monotonic()
        if not data:
            self._closed = True
        self._answers += data
        while (answer := self._next_answer()) is not None:
            self.took.append(now - self._sent.popleft())
            if payloads.probe_error(answer):
                self.failed += 1

    def _next_answer(self) -> bytes | None:
        if len(self._answers) < 4:
            return None
        end = 4 + struct.unpack_from(">i", self._answers)[0]
        if len(self._answers) < end:
            return None
        answer = bytes(self._answers[4:end])
        del self._answers[:end]
        return answer

    def give_up(self, now: float) -> None:
        self.failed += len(self._sent)
        self.took += [now - sent for sent in self._sent]
        self._closed = self._closed or bool(self._sent)  # a late answer must not be taken for the next one's
        self._sent.clear()

    def close(self) -> None:
        self._socket.close()


class Visits:
    """A connection for each request: opened, asked, closed."""

    def __init__(self, port: int, request: bytes, interval: float) -> None:
        self.interval = interval
        self.took: list[float] = []
        self.failed = 0
        self._address = (HOST, port)
        self._request = request
        self._began: dict[socket.socket, float] = {}
        self._connecting: set[socket.socket] = set()

    @property
    def waiting(self) -> bool:
        return bool(self._began)

    def send(self, now: float) -> None:
        visit = socket.socket()
        visit.setblocking(False)
        self._began[visit] = now
        self._connecting.add(visit)
        visit.connect_ex(self._address)

    def sockets(self) -> tuple[Sequence[socket.socket], Sequence[socket.socket]]:
        return [visit for visit in self._began if visit not in self._connecting], list(self._connecting)

    def turn(self, readable: Sequence[socket.socket], writable: Sequence[socket.socket]) -> None:
        for visit in writable:
            self._connecting.discard(visit)
            try:
                visit.send(self._request)
            except OSError:
                self._end(visit, answered=False)
        for visit in readable:
            try:
                self._end(visit, answered=bool(visit.recv(65536)))
            except OSError:
                self._end(visit, answered=False)

    def _end(self, visit: socket.socket, answered: bool) -> None:
        self.took.append(time.monotonic() - self._began.pop(visit))
        self.failed += not answered
        visit.close()

    def give_up(self, now: float) -> None:
        for visit in list(self._began):
            self._connecting.discard(visit)
            self._end(visit, answered=False)


def run(stream: Stream, seconds: float) -> dict[str, Any]:
    """Send for so long, or until told to end, and wait for what is outstanding."""
    stream.took.clear()
    stream.failed = 0
    late: list[float] = []
    due = look_up = time.monotonic()
    end = due + seconds
    while (now := time.monotonic()) < end or (stream.waiting and now < end + PATIENCE_SECONDS):
        if now >= look_up and now < end:
            look_up = now + LOOK_UP_SECONDS
            end = now if told_to_end() else end
        if due <= now < end:
            late.append(now - due)
            stream.send(now)
            due += stream.interval
            continue
        until = due if now < end else now + LOOK_UP_SECONDS
        readers, writers = stream.sockets()
        readable, writable, _ = select.select(readers, writers, [], max(0.0, min(until, end + PATIENCE_SECONDS) - now))
        stream.turn(readable, writable)
    stream.give_up(time.monotonic())
    return {
        **figures(stream.took),
        "failed": stream.failed,
        "late_ms": figures(late)["max_ms"],
        "late_p99_ms": figures(late)["p99_ms"],
    }


def figures(seconds: list[float]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    ordered = sorted(seconds) or [math.nan]
    at = {
        name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in (("p50", 0.5), ("p99", 0.99))
    }
    return {"count": len(seconds), "p50_ms": at["p50"] * 1e3, "p99_ms": at["p99"] * 1e3, "max_ms": ordered[-1] * 1e3}


def stream_of(kind: str, port: int) -> Stream:
    if kind == "newcomer":
        return Visits(port, API_VERSIONS_V0, 0.02)
    if kind == "health":
        return Visits(port, HEALTH, 0.05)
    return Pipeline(port)


def main(arguments: list[str]) -> None:
    stream = stream_of(arguments[0], int(arguments[1]))
    gc.collect()
    gc.disable()
    serve(lambda seconds: run(stream, seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
