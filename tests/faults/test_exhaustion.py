"""Row 28 of faults.md: a memory pool that holds one request only."""

from __future__ import annotations

import threading
import time

import psutil
import pytest

from barnabas.broker.request_metrics import RECENT
from tests import wire
from tests.faults.conftest import Report, Start


def _send_rounds(port: int, rounds: int, size: int, results: list[list[float]], begin: threading.Barrier) -> None:
    mine: list[float] = []
    data = wire.produce("pool", wire.batch([b"m" * size]))
    with wire.connect(port, timeout=60) as sock:
        wire.ask(sock, wire.api_versions())
        begin.wait(60)  # all are connected
        begin.wait(60)  # and the memory was looked at: what a connection costs is row 15's matter
        for _ in range(rounds):
            start = time.perf_counter()
            answer = wire.ask(sock, data)
            assert wire.produce_result(answer, "pool")[0] == 0
            mine.append(time.perf_counter() - start)
    results.append(mine)


@pytest.mark.serial
@pytest.mark.timeout(300)
def test_a_pool_for_one_request_serves_everybody_in_the_end(start_broker: Start, report: Report, full: bool) -> None:
    """Row 28, RP-25: channels are muted until memory is back, then all are served, fairly, within the pool's size."""
    connections, rounds, size = (64, 50, 500_000) if full else (16, 12, 500_000)
    broker = start_broker({"queued.max.request.bytes": size})
    with wire.connect(broker.port) as sock:
        wire.ask(sock, wire.create_topic("pool"))
        for _ in range(RECENT):  # the broker remembers so many requests, whatever their size: not the pool's memory
            wire.ask(sock, wire.api_versions())
        assert wire.produce_result(wire.ask(sock, wire.produce("pool", wire.batch([b"m" * size]))), "pool")[0] == 0
    results: list[list[float]] = []
    begin = threading.Barrier(connections + 1)
    arguments = (broker.port, rounds, size, results, begin)
    threads = [threading.Thread(target=_send_rounds, args=arguments) for _ in range(connections)]
    for thread in threads:
        thread.start()
    begin.wait(60)
    before = psutil.Process(broker.pid).memory_info().rss
    begin.wait(60)
    peak = 0
    while any(thread.is_alive() for thread in threads):
        peak = max(peak, psutil.Process(broker.pid).memory_info().rss)
        threads[0].join(0.02)
    assert len(results) == connections, "a connection was never served"
    totals = sorted(sum(mine) for mine in results)
    median = totals[len(totals) // 2]
    assert totals[-1] <= 10 * median
    assert peak - before <= size * 1.25
    available = broker.metric("kafka_network_socketserver_memorypoolavailable")
    assert available == [size], "a request's memory was not given back"
    report(
        28,
        f"{connections}×{rounds} requests of {size} B, slowest {totals[-1] / median:.1f}× the median, memory +{(peak - before) >> 10} KiB",
    )
