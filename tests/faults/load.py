"""A light closed-loop load, to see whether a fault disturbs others: its latency before and during the fault."""

from __future__ import annotations

import statistics
import threading
import time

from tests import wire

PARTS = 5


class ProbeLoad:
    """A few connections, each sends one small Produce after the other and notes how long the answer took."""

    def __init__(self, port: int, topic: str, connections: int = 4) -> None:
        self._port = port
        self._topic = topic
        self._latencies: list[list[float]] = [[] for _ in range(connections)]
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(mine,), name="probe") for mine in self._latencies]
        self.errors: list[str] = []

    def __enter__(self) -> ProbeLoad:
        with wire.connect(self._port) as sock:
            wire.ask(sock, wire.create_topic(self._topic))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _run(self, mine: list[float]) -> None:
        data = wire.produce(self._topic, wire.batch([b"x" * 100]))
        pace = threading.Event()
        with wire.connect(self._port) as sock:
            while not self._stop.is_set():
                start = time.perf_counter()
                answer = wire.ask(sock, data)
                mine.append(time.perf_counter() - start)
                if wire.produce_result(answer, self._topic)[0] if answer else True:
                    self.errors.append("closed" if not answer else f"answer {answer!r}")
                    return
                pace.wait(0.002)

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
