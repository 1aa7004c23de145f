"""Rows 17 and 18 of faults.md: frames of impossible size, random bytes, random bodies behind a valid header."""

from __future__ import annotations

import random
import socket
import struct
import time

import psutil
import pytest

from tests import wire
from tests.faults.conftest import FaultyWorld, Report, Start
from tests.waiting import wait_until

APIS = (0, 1, 2, 3, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 44, 46, 48, 49, 60, 74, 75)


def connection_count(broker: FaultyWorld) -> float:
    return broker.total("kafka_server_socketservermetrics_connection_count")


def rss(broker: FaultyWorld) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def bad_sizes(count: int, rng: random.Random) -> list[bytes]:
    """Size fields that must close the connection, and truncated ones."""
    fixed = [struct.pack(">i", size) for size in (-1, -(2**31), 104_857_601, 2**31 - 1)] + [
        wire.frame(b""),
        b"\x00\x00\x00",
    ]
    return [rng.choice(fixed) for _ in range(count)]


@pytest.mark.timeout(1500)
def test_a_frame_of_impossible_size_closes_only_its_connection(start_broker: Start, report: Report, full: bool) -> None:
    """Row 17, RP-22: closed within 1 s without a response, nothing allocated, others unaffected, counts correct."""
    broker = start_broker()
    rng = random.Random(17)
    tries = 100_000 if full else 1_500
    slowest = 0.0
    with wire.connect(broker.port) as other:
        assert wire.ask(other, wire.api_versions())
        before = rss(broker)
        for number, data in enumerate(bad_sizes(tries, rng)):
            with wire.connect(broker.port, timeout=5) as sock:
                start = time.perf_counter()
                sock.sendall(data)
                if len(data) == 3:
                    sock.shutdown(socket.SHUT_WR)
                assert wire.is_closed(sock), f"try {number}: {data!r} was not closed"
                slowest = max(slowest, time.perf_counter() - start)
        grown = rss(broker) - before
        assert wire.ask(other, wire.api_versions())
        wait_until(lambda: connection_count(broker) == 1, 10, "only the other connection being counted")
    assert slowest <= 1.0
    assert grown < 8 << 20, f"memory grew by {grown >> 20} MiB"
    report(17, f"{tries} bad sizes, slowest close {slowest * 1000:.1f} ms, memory +{grown >> 10} KiB, counts exact")


def random_frame(rng: random.Random) -> bytes:
    """Random bytes, or a valid header with a random body."""
    noise = rng.randbytes(rng.randrange(0, 200))
    if rng.random() < 0.3:
        return wire.frame(noise)
    return wire.request(rng.choice(APIS), rng.randrange(0, 19), noise, client="fuzz")


@pytest.mark.timeout(5000)
def test_random_frames_are_answered_or_closed_and_nothing_dies(start_broker: Start, report: Report, full: bool) -> None:
    """Row 18, RP-29: every frame is answered or its connection closed within 1 s; no thread dies; memory stays."""
    broker = start_broker()
    rng = random.Random(18)
    frames = 1_000_000 if full else 4_000
    answered, slowest, warm = 0, 0.0, 0
    sock = wire.connect(broker.port)
    threads = psutil.Process(broker.pid).num_threads()
    for number in range(frames):
        start = time.perf_counter()
        if wire.ask(sock, random_frame(rng)):
            answered += 1
        else:
            sock.close()
            sock = wire.connect(broker.port)
        slowest = max(slowest, time.perf_counter() - start)
        if number == frames // 2:
            warm = rss(broker)
    sock.close()
    with wire.connect(broker.port) as good:
        assert wire.ask(good, wire.api_versions())
    drift = (rss(broker) - warm) / warm
    assert broker.running
    assert psutil.Process(broker.pid).num_threads() >= threads
    assert slowest <= 1.0
    assert drift <= 0.05, f"memory drifted by {drift:.1%}"
    assert "unexpected error in one turn" not in broker.log()
    report(
        18, f"{frames} random frames, {answered} answered, slowest {slowest * 1000:.1f} ms, memory drift {drift:+.1%}"
    )


def test_truncated_frames_followed_by_a_close_leave_nothing_behind(start_broker: Start) -> None:
    """Row 17, RP-11: every prefix of a good request, then FIN."""
    broker = start_broker()
    whole = wire.api_versions()
    for length in range(len(whole)):
        with wire.connect(broker.port) as sock:
            sock.sendall(whole[:length])
            sock.shutdown(socket.SHUT_WR)
            assert wire.is_closed(sock)
    wait_until(lambda: connection_count(broker) == 0, 10, "no connection being counted")


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (0, 99), (0, 2), (1, 3), (3, -1), (4, 0), (52, 0)])
def test_an_unknown_api_or_version_is_a_disconnect(start_broker: Start, key: int, version: int) -> None:
    """RP-29, protocol.md section 1."""
    broker = start_broker()
    with wire.connect(broker.port) as sock:
        assert wire.ask(sock, wire.request(key, version)) == b""
    with wire.connect(broker.port) as sock:
        answer = wire.ask(sock, wire.request(18, 77))
        assert struct.unpack(">ih", answer[:6]) == (1, 35)
