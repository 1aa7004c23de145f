"""Rows 14, 15 and 30 of faults.md: slowloris, thousands of idle connections, clients that never read."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from tests import wire
from tests.faults.conftest import Report, Start
from tests.faults.load import ProbeLoad, p99_limit
from tests.waiting import wait_until


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    """Connections of a test, closed at its end."""
    opened: list[socket.socket] = []
    yield opened
    for sock in opened:
        sock.close()


def closed_now(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.serial
@pytest.mark.timeout(300)
def test_a_byte_every_few_seconds_does_not_keep_a_connection_alive(
    start_broker: Start, sockets: list[socket.socket], report: Report, full: bool
) -> None:
    """Row 14, RP-42: half of them never finish their first frame, half drip the second one."""
    count, drip = (2_000, 5.0) if full else (100, 0.3)
    shorter = {"barnabas.connection.first.request.ms": 1500, "barnabas.request.read.ms": 2500}
    broker = start_broker({} if full else shorter)
    first_ms, frame_ms = (10_000, 30_000) if full else (1_500, 2_500)
    with ProbeLoad(broker.port, "probe") as load:
        base = load.window(5 if full else 2)
        before = psutil.Process(broker.pid).memory_info().rss
        for number in range(count):
            sockets.append(wire.connect(broker.port, timeout=30))
            if number % 2:
                assert wire.ask(sockets[-1], wire.api_versions())
        start = time.monotonic()
        stop = threading.Event()
        dripper = threading.Thread(target=_drip, args=(sockets, drip, stop))
        dripper.start()
        during = load.window(5 if full else 1)
        grown = psutil.Process(broker.pid).memory_info().rss - before
        wait_until(lambda: all(map(closed_now, sockets)), frame_ms / 1000 + 5, "every slow connection being closed")
        took = time.monotonic() - start
        stop.set()
        dripper.join(20)
    assert not load.errors
    assert took >= first_ms / 1000 * 0.9
    assert grown / count <= 64 << 10
    assert during <= p99_limit(base, full), f"p99 went from {base:.1f} to {during:.1f} ms"
    report(
        14,
        f"{count} slow connections closed after {took:.1f} s, {grown // count} B each, p99 {base:.1f} → {during:.1f} ms; "
        f"others: {load.figures}",
    )


def _drip(sockets: list[socket.socket], interval: float, stop: threading.Event) -> None:
    data = wire.api_versions() + b"\0" * 4096
    data = b"\x00\x00\x10\x00" + data
    at = 0
    while not stop.is_set() and at < len(data):
        for sock in sockets:
            try:
                sock.send(data[at : at + 1])
            except OSError:
                continue
        at += 1
        stop.wait(interval)


@pytest.mark.serial
@pytest.mark.timeout(300)
def test_thousands_of_idle_connections_cost_next_to_nothing(
    start_broker: Start, sockets: list[socket.socket], report: Report, full: bool
) -> None:
    """Row 15: all accepted, at most 30 KiB each, at most 5 % of a core, others hardly disturbed, then many of them active."""
    count, active = (9_500, 2_000) if full else (1_500, 300)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    broker = start_broker()
    process = psutil.Process(broker.pid)
    with ProbeLoad(broker.port, "probe") as load:
        base = load.window(5 if full else 2)
        before = process.memory_info().rss
        for _ in range(count):
            sockets.append(wire.connect(broker.port, timeout=30))
            assert wire.ask(sockets[-1], wire.api_versions())
        each = (process.memory_info().rss - before) / count
        during = load.window(5 if full else 2)
        assert not load.errors
    quiet = process.cpu_times()
    threading.Event().wait(3)
    later = process.cpu_times()
    share = (later.user + later.system - quiet.user - quiet.system) / 3
    answered = sum(bool(wire.ask(sock, wire.api_versions())) for sock in sockets[:active])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert answered == active
    assert each <= 30 << 10
    assert share <= 0.05
    assert during <= p99_limit(base, full), f"p99 went from {base:.1f} to {during:.1f} ms"
    report(
        15,
        f"{count} idle connections: {each / 1024:.1f} KiB each, {share:.1%} of a core, p99 {base:.1f} → {during:.1f} ms; "
        f"others: {load.figures}",
    )


@pytest.mark.serial
@pytest.mark.timeout(400)
def test_clients_that_never_read_hold_a_file_reference_each_and_are_closed(
    start_broker: Start, sockets: list[socket.socket], report: Report, full: bool
) -> None:
    """Row 30, RP-42: one response per connection at most, closed at the write deadline, others unaffected."""
    count, write_ms = (1_000, 60_000) if full else (60, 2_000)
    broker = start_broker({"barnabas.response.write.ms": write_ms})
    with ProbeLoad(broker.port, "probe") as load:
        with wire.connect(broker.port) as sock:
            wire.ask(sock, wire.create_topic("big"))
            for _ in range(4):
                answer = wire.ask(sock, wire.produce("big", wire.batch([b"v" * 900_000])))
                assert wire.produce_result(answer, "big")[0] == 0
        base = load.window(5 if full else 2)
        before = psutil.Process(broker.pid).memory_info().rss
        sockets.extend(_deaf(broker.port) for _ in range(count))
        start = time.monotonic()
        during = load.window(5 if full else 1)
        grown = psutil.Process(broker.pid).memory_info().rss - before
        wait_until(
            lambda: broker.total("kafka_server_socketservermetrics_connection_count") < 10,
            write_ms / 1000 + 15,
            "the deaf connections being closed",
        )
        took = time.monotonic() - start
        assert not load.errors
    assert grown <= count * (64 << 10) + (16 << 20)
    assert during <= p99_limit(base, full), f"p99 went from {base:.1f} to {during:.1f} ms"
    report(
        30,
        f"{count} deaf clients closed after {took:.1f} s, memory +{grown >> 20} MiB, p99 {base:.1f} → {during:.1f} ms; "
        f"others: {load.figures}",
    )


def _deaf(port: int) -> socket.socket:
    """A client that asks for 3 MiB with a small receive buffer and reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(10)
    sock.connect(("127.0.0.1", port))
    sock.sendall(wire.fetch("big", 0, 3 << 20))
    return sock
