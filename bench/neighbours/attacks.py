"""What a hostile client does, for the seconds that it is given. One class for each way; a row says which and with which bytes.

Role: an attack is made in the attacker's process; `prepare` builds its bytes, `run` does it and counts. Every wait ends with the run; what
is sent again and again is sent by a thread for each connection, which waits for each answer.
Thread: `run` on the main one, connections on their own. Lock: none; each thread has a tally of its own.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from confluent_kafka import Producer

from bench.brokers import HOST
from bench.neighbours import payloads

__all__ = [
    "Attack",
    "Connects",
    "Flush",
    "Frames",
    "HangUp",
    "Hold",
    "Repeat",
    "Scrapes",
    "Sessions",
    "SlowScrapes",
    "Tally",
    "Target",
]

Frames = Callable[[], Sequence[bytes]]
KEPT_ANSWER, HEAD = 1 << 20, 32
ANSWERS_KEPT = 3
"""The first ones may say only that a topic is not there yet."""
PAUSE_SECONDS = 0.01
"""After a connection that the broker has closed, so that a row about large requests is not one about connects."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the broker listens; `side_port` is the metrics page of ours."""

    port: int
    side_port: int


@dataclass(slots=True)
class Tally:
    """What was sent and what came of it."""

    sent_bytes: int = 0
    received_bytes: int = 0
    requests: int = 0
    answers: int = 0
    closed: int = 0
    """Connections that the broker closed before it had answered."""
    slowest_ms: float = 0.0
    suffered: str = ""
    """What the client of the row had to bear itself, when it is more than it should."""
    remark: str = ""
    kept: bytes = field(default=b"", repr=False)
    """One of the first answers, if it is small enough to be looked at."""

    def add(self, other: Tally) -> None:
        for each in ("sent_bytes", "received_bytes", "requests", "answers", "closed"):
            setattr(self, each, getattr(self, each) + getattr(other, each))
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.kept = self.kept or other.kept

    def as_dict(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "kept"}


class Attack(Protocol):
    def prepare(self, target: Target) -> None: ...
    def run(self, target: Target, seconds: float) -> Tally: ...


class Closed(Exception):
    """The broker has closed the connection."""


class Line:
    """A connection whose every wait ends with the run (`TimeoutError`). Not thread-safe."""

    def __init__(self, port: int, deadline: float, tally: Tally) -> None:
        self._deadline = deadline
        self._tally = tally
        self.head = b""
        """The beginning of the last answer."""
        self._scratch = memoryview(b"")
        self.socket = socket.create_connection((HOST, port), timeout=self._left())
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, frame: bytes) -> None:
        """One request and its answer."""
        began = time.monotonic()
        self.send(frame)
        self._receive_answer()
        self._tally.answers += 1
        self._tally.slowest_ms = max(self._tally.slowest_ms, (time.monotonic() - began) * 1e3)

    def send(self, frame: bytes) -> None:
        self._tally.requests += 1
        left = memoryview(frame)
        try:
            while left:
                self.socket.settimeout(self._left())
                sent = self.socket.send(left[: 1 << 20])
                self._tally.sent_bytes += sent
                left = left[sent:]
        except (ConnectionError, BrokenPipeError):
            raise Closed from None

    def _receive_answer(self) -> None:
        size = struct.unpack(">i", self._receive(4))[0]
        self.head = self._receive(min(size, HEAD))
        keep = size <= KEPT_ANSWER and self._tally.answers < ANSWERS_KEPT
        rest = self._receive(size - len(self.head), keep)
        if keep:
            self._tally.kept = self.head + rest

    def _receive(self, size: int, keep: bool = True) -> bytes:
        """So many bytes; they are dropped unless they are to be kept."""
        kept = bytearray()
        self._scratch = self._scratch or memoryview(bytearray(1 << 20))  # most lines of some rows never get an answer
        while size:
            self.socket.settimeout(self._left())
            try:
                count = self.socket.recv_into(self._scratch[: min(size, len(self._scratch))])
            except ConnectionError:
                count = 0
            if not count:
                raise Closed
            self._tally.received_bytes += count
            size -= count
            if keep:
                kept += self._scratch[:count]
        return bytes(kept)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def close(self, reset: bool = False) -> None:
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def on_threads(count: int, work: Callable[[int, Tally], None]) -> Tally:
    """Run `work(number, tally)` on so many threads; the sum of their tallies."""
    tallies = [Tally() for _ in range(count)]
    threads = [threading.Thread(target=work, args=(number, tally)) for number, tally in enumerate(tallies)]
    for thread in threads:
        thread.start()
    total = Tally()
    for thread, tally in zip(threads, tallies, strict=True):
        thread.join()
        total.add(tally)
    return total


class Again:
    """Repeats `once(line, number)` on new connections until the run ends; `number` counts the calls."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self._deadline = time.monotonic() + seconds

    def __call__(self, tally: Tally, once: Callable[[Line, int], None]) -> None:
        number = 0
        while time.monotonic() < self._deadline:
            line = None
            try:
                line = Line(self._port, self._deadline, tally)
                while True:
                    once(line, number)
                    number += 1
            except (Closed, ConnectionError):
                tally.closed += 1
                number += 1
            except TimeoutError:
                return
            finally:
                if line is not None:
                    line.close()
            time.sleep(PAUSE_SECONDS)


class Repeat:
    """The same requests in a loop, each answered before the next; connections begin at different ones."""

    def __init__(self, frames: Frames, connections: int = 1) -> None:
        self._build = frames
        self._connections = connections
        self._frames: Sequence[bytes] = ()

    def prepare(self, target: Target) -> None:
        self._frames = self._build()

    def run(self, target: Target, seconds: float) -> Tally:
        again = Again(target.port, seconds)

        def work(first: int, tally: Tally) -> None:
            again(tally, lambda line, number: line.ask(self._frames[(first + number) % len(self._frames)]))

        return on_threads(max(self._connections, 1), work)


class Sessions:
    """Fetch sessions of many partitions: with `incremental` one, asked for what is new again and again by some 50 bytes; without, one after
    the other."""

    def __init__(self, partitions: int, incremental: bool, topic: str = "none") -> None:
        self._partitions = partitions
        self._incremental = incremental
        self._topic = topic
        self._full = b""

    def prepare(self, target: Target) -> None:
        self._full = payloads.fetch(self._partitions, 0, 0, self._topic)

    def run(self, target: Target, seconds: float) -> Tally:
        tally = Tally()
        again = Again(target.port, seconds)
        opened = 0

        def once(line: Line, number: int) -> None:
            nonlocal opened
            line.ask(self._full)
            session = payloads.session_of(line.head)
            opened += bool(session)
            epoch = 1
            while self._incremental and session:
                line.ask(payloads.fetch(0, session, epoch))
                epoch += 1

        again(tally, once)
        tally.remark = f"sessions opened: {opened}"
        return tally


class Hold:
    """Connections that send their bytes and then wait, as many as the row says; one that is closed comes back."""

    def __init__(self, frames: Frames, connections: int) -> None:
        self._build = frames
        self._connections = connections
        self._frame = b""

    def prepare(self, target: Target) -> None:
        self._frame = self._build()[0]

    def run(self, target: Target, seconds: float) -> Tally:
        tally = Tally()
        deadline = time.monotonic() + seconds
        lines: list[Line] = []
        with suppress(TimeoutError):
            while time.monotonic() < deadline:
                lines = [line for line in lines if not _is_closed(line, tally)]
                while len(lines) < self._connections:
                    lines.append(Line(target.port, deadline, tally))
                    with suppress(Closed):
                        lines[-1].send(self._frame)
                time.sleep(0.05)
        for line in lines:
            line.close()
        return tally


class HangUp:
    """Connections that send their bytes and are reset at once, a hundred at a time."""

    def __init__(self, frames: Frames, at_once: int = 100) -> None:
        self._build = frames
        self._at_once = at_once
        self._frame = b""

    def prepare(self, target: Target) -> None:
        self._frame = self._build()[0]

    def run(self, target: Target, seconds: float) -> Tally:
        tally = Tally()
        deadline = time.monotonic() + seconds
        with suppress(TimeoutError):
            while time.monotonic() < deadline:
                lines = [Line(target.port, deadline, tally) for _ in range(self._at_once)]
                for line in lines:
                    with suppress(Closed):
                        line.send(self._frame)
                time.sleep(0.1)
                for line in lines:
                    line.close(reset=True)
        return tally


def _is_closed(line: Line, tally: Tally) -> bool:
    line.socket.setblocking(False)
    try:
        gone = line.socket.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except OSError:
        gone = True
    tally.closed += gone
    if gone:
        line.close()
    return gone


class Connects:
    """A thousand connects in a row, then all are closed; again and again."""

    COUNT = 1000
    MOST_SECONDS = 2.0

    def prepare(self, target: Target) -> None: ...

    def run(self, target: Target, seconds: float) -> Tally:
        tally = Tally()
        deadline = time.monotonic() + seconds
        slowest = 0.0
        while time.monotonic() < deadline:
            began = time.monotonic()
            lines: list[Line] = []
            with suppress(TimeoutError):
                lines.extend(Line(target.port, deadline, tally) for _ in range(self.COUNT))
            took = time.monotonic() - began
            if len(lines) == self.COUNT or not tally.requests:  # the last turn is cut short; a first one is projected
                slowest = max(slowest, took * self.COUNT / max(len(lines), 1))
            tally.requests += len(lines)
            for line in lines:
                line.close()
        tally.remark = f"1000 connects took up to {slowest:.1f} s"
        tally.suffered = tally.remark if slowest > self.MOST_SECONDS else ""
        return tally


class Flush:
    """An ordinary librdkafka producer: one record to each of 10 000 partitions, then a flush. Not hostile at all."""

    TOPICS, PARTITIONS = 100, 100
    MOST_SECONDS = 10.0

    def prepare(self, target: Target) -> None: ...

    def run(self, target: Target, seconds: float) -> Tally:
        producer = Producer({"bootstrap.servers": f"{HOST}:{target.port}", "log_level": 0})
        began = time.monotonic()
        for topic in range(self.TOPICS):
            for partition in range(self.PARTITIONS):
                producer.produce(f"flushed-{topic}", b"x" * 100, partition=partition)
            producer.poll(0)
        left = producer.flush(seconds)
        took = time.monotonic() - began
        total = self.TOPICS * self.PARTITIONS
        tally = Tally(requests=total, answers=total - left, sent_bytes=total * 200, slowest_ms=took * 1e3)
        tally.remark = f"{left} of {total} records unsent after {took:.0f} s" if left else f"flush took {took:.1f} s"
        tally.suffered = tally.remark if left or took > self.MOST_SECONDS else ""
        producer.purge()
        return tally


class Scrapes:
    """The metrics page in a loop."""

    REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def prepare(self, target: Target) -> None: ...

    def run(self, target: Target, seconds: float) -> Tally:
        tally = Tally()
        deadline = time.monotonic() + seconds
        scratch = bytearray(1 << 20)
        with suppress(TimeoutError):
            while time.monotonic() < deadline:
                began = time.monotonic()
                line = Line(target.side_port, deadline, tally)
                with suppress(Closed, ConnectionError):
                    line.send(self.REQUEST)
                    while count := line.socket.recv_into(scratch):
                        tally.received_bytes += count
                    tally.answers += 1
                line.close()
                tally.slowest_ms = max(tally.slowest_ms, (time.monotonic() - began) * 1e3)
        pages = max(tally.answers, 1)
        tally.remark = f"{tally.answers} pages of {tally.received_bytes / pages / 1e6:.1f} MB"
        return tally


class SlowScrapes:
    """Connections to the metrics port that send a byte of their request now and then."""

    CONNECTIONS = 48

    def prepare(self, target: Target) -> None: ...

    def run(self, target: Target, seconds: float) -> Tally:
        tally = Tally()
        deadline = time.monotonic() + seconds
        lines: list[Line] = []
        with suppress(TimeoutError):
            while time.monotonic() < deadline:
                lines = [line for line in lines if not _is_closed(line, tally)]
                while len(lines) < self.CONNECTIONS:
                    lines.append(Line(target.side_port, deadline, tally))
                for line in lines:
                    with suppress(Closed):
                        line.send(b"G")
                time.sleep(0.2)
        for line in lines:
            line.close()
        return tally
