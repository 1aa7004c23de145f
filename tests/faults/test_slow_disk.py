"""Row 10 of faults.md: a disk that takes seconds to flush. Whoever does not wait for it is served as ever."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil
import pytest

from bench.brokers import OURS
from tests import wire
from tests.faults.conftest import Report
from tests.faults.faulty_broker import faulty_broker, set_rules
from tests.faults.faulty_disk import SYNCS, Rule
from tests.history import Workload, WorkloadPlan

P99_MS = 200.0
PACE_SECONDS = 0.005
MORE_MEMORY = 64 << 20
"""What clients may have in flight (a request per connection) and the history of metrics are far below this."""


class Asker:
    """Asks ApiVersions and Metadata, one after the other, on a connection of its own, and notes how long each answer took."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asker")
        self.seconds: list[float] = []
        self.unanswered = 0

    def __enter__(self) -> Asker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        questions = (wire.api_versions(), wire.request(wire.METADATA, 1, b"\xff\xff\xff\xff"))
        with wire.connect(self._port, timeout=50) as sock:
            while not self._stop.wait(PACE_SECONDS):
                for question in questions:
                    began = time.perf_counter()
                    self.unanswered += not wire.ask(sock, question)
                    self.seconds.append(time.perf_counter() - began)

    def p99_ms(self) -> float:
        """As if it had asked all the time: while one answer is awaited, others would have waited too, each a little less."""
        waited = [
            seconds - PACE_SECONDS * number
            for seconds in self.seconds
            for number in range(1 + int(seconds / PACE_SECONDS))
        ]
        return sorted(waited)[int(len(waited) * 0.99)] * 1000

    def longest_ms(self) -> float:
        return max(self.seconds) * 1000


@pytest.mark.serial
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["default", "durable acks"])
def test_row_10_a_slow_disk(mode: str, full: bool, report: Report, tmp_path: Path) -> None:
    """Flushes take 0.5 to 5 s, some stall for 30 s: nobody else waits, and clients that lose patience write nothing twice."""
    stalls = [(0.5, 5.0), (30.0, 30.0)] if full else [(0.5, 1.0), (1.5, 1.5)]
    plan = WorkloadPlan(
        writers=3,
        readers=1,
        sends_per_second=100,
        topic_config={"segment.bytes": "65536"},
        # What gathers meanwhile is sent in batches that fit into a segment.
        writer_config={"request.timeout.ms": 5000 if full else 1000, "batch.size": 16384},
        finish_seconds=150,
    )
    with faulty_broker(OURS.durable if mode == "durable acks" else {}) as broker:
        with Workload(broker.bootstrap, tmp_path / "history.jsonl", plan) as load:
            load.await_acked(100)
            before = psutil.Process(broker.process.pid).memory_info().rss
            with Asker(broker.place.port) as asker:
                for shortest, longest in stalls:
                    load.fault(f"flushes take {shortest} to {longest} s")
                    set_rules(broker, Rule(SYNCS, delay=(shortest, longest)))
                    threading.Event().wait(longest + 0.5)
            more = psutil.Process(broker.process.pid).memory_info().rss - before
            set_rules(broker)
            load.await_resumed(40)
        found = load.check()
        found.demand_clean()
        assert broker.stop() == 0, broker.log_tail(40)
    assert not asker.unanswered
    assert asker.p99_ms() <= P99_MS
    assert more <= MORE_MEMORY
    figures = f"p99 of {len(asker.seconds)} ApiVersions and Metadata {asker.p99_ms():.1f} ms (at most 200)"
    figures += f", the longest {asker.longest_ms():.0f} ms"
    report(10, f"{mode}: {figures}, {more / 2**20:+.1f} MiB, {found.figures()}")
