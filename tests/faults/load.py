"""A light closed-loop load, to see whether a fault disturbs others: its latency before and during the fault, and its history."""

from __future__ import annotations

import itertools
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

from tests import wire
from tests.history import History, Source, check_file, encode_value
from tests.history.record import now_us

PARTS = 5
VALUE_BYTES = 100


class ProbeLoad:
    """A few connections, each sends one small Produce after the other and notes how long the answer took.

    When the block ends without an error, everything is read and checked as the history of any other load; `figures` says what it had.
    """

    def __init__(self, port: int, topic: str, connections: int = 4) -> None:
        self._port = port
        self._topic = topic
        self._latencies: list[list[float]] = [[] for _ in range(connections)]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(f"probe{number}", mine), name="probe")
            for number, mine in enumerate(self._latencies)
        ]
        self._directory = tempfile.TemporaryDirectory(prefix="barnabas-probe-")
        self._history = History(Path(self._directory.name) / "history.jsonl")
        self.errors: list[str] = []
        self.figures = ""

    def __enter__(self) -> ProbeLoad:
        with wire.connect(self._port) as sock:
            wire.ask(sock, wire.create_topic(self._topic))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)
        with self._directory, self._history:
            if kind is None:
                Source(f"127.0.0.1:{self._port}", self._topic, 1, self._history).read_everything()
                self._history.close()
                found = check_file(self._history.path)
                found.demand_clean()
                self.figures = found.figures()

    def _run(self, name: str, mine: list[float]) -> None:
        pace = threading.Event()
        with wire.connect(self._port) as sock:
            for seq in itertools.count():
                if self._stop.is_set() or not self._send(sock, name, seq, mine):
                    return
                pace.wait(0.002)

    def _send(self, sock: socket.socket, name: str, seq: int, mine: list[float]) -> bool:
        value, payload = encode_value(name, seq, VALUE_BYTES)
        data = wire.produce(self._topic, wire.batch([payload]))
        began = now_us()
        start = time.perf_counter()
        answer = wire.ask(sock, data)
        mine.append(time.perf_counter() - start)
        error, offset = wire.produce_result(answer, self._topic) if answer else (None, None)
        if error == 0:
            self._history.sent(name, "ok", began, (f"{self._topic}-0", offset, value))
            return True
        self._history.sent(name, "info", began, (f"{self._topic}-0", None, value))
        self.errors.append("closed" if not answer else f"answer {answer!r}")
        return False

    def window(self, seconds: float) -> float:
        """The p99 in milliseconds over the next seconds: the median of five parts, so that one hiccup of the machine does
        not decide, but a lasting disturbance does."""
        return statistics.median(self._p99(seconds / PARTS) for _ in range(PARTS))

    def _p99(self, seconds: float) -> float:
        marks = [len(mine) for mine in self._latencies]
        threading.Event().wait(seconds)
        seen = sorted(value for mine, mark in zip(self._latencies, marks, strict=True) for value in mine[mark:])
        assert seen, "the probe load got no answer at all"
        return seen[min(len(seen) - 1, int(len(seen) * 0.99))] * 1000


def p99_limit(base: float, full: bool) -> float:
    """Twice the baseline. In the short windows of `make test`, which shares two cores with other tests, a few milliseconds
    are noise, so there the limit is not below base + 5 ms."""
    return 2 * base if full else max(2 * base, base + 5)
