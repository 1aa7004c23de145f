"""Rows 9 and 11 of faults.md with a live broker: a full disk, a disk with errors, a read-only one; and a start with a directory away."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench.brokers import OURS, BrokerProcess
from tests import wire
from tests.faults.conftest import Report
from tests.faults.faulty_broker import faulty_broker, set_rules
from tests.faults.faulty_disk import BROKEN, FULL, READ_ONLY, Rule
from tests.history import Workload, WorkloadPlan
from tests.waiting import wait_until

STORAGE_ERROR = 56
SECONDS_TO_RESUME = 10.0
SECONDS_TO_END = 10.0
TOPIC = "probe"
SMALL_SEGMENTS = {"segment.bytes": "65536"}
# What a full disk can meet first: a batch, half a batch, the files of a new segment, an index, a snapshot, a checkpoint.
PLACES = (
    FULL,
    Rule(("pwritev",), "*.log", short=40),
    Rule(("create",), error="ENOSPC"),
    Rule(("pwritev", "create"), "*index", error="ENOSPC"),
    Rule(("pwritev", "create"), "*.snapshot", error="ENOSPC"),
    Rule(("pwritev", "create"), "*checkpoint*", error="ENOSPC"),
)


def produce(port: int, partition: int = 0, size: int = 100) -> int:
    """The error code of one Produce."""
    with wire.connect(port) as sock:
        answer = wire.ask(sock, wire.produce(TOPIC, wire.batch([b"x" * size]), acks=-1, partition=partition))
        return wire.produce_result(answer, TOPIC)[0]


def fetched(port: int) -> int:
    """The bytes of one answer to a Fetch of the first partition."""
    with wire.connect(port) as sock:
        return len(wire.ask(sock, wire.fetch(TOPIC, 0)))


def create_probe(port: int, partitions: int = 1) -> None:
    with wire.connect(port) as sock:
        wire.ask(sock, wire.create_topic(TOPIC, partitions))
    for partition in range(partitions):
        assert produce(port, partition) == 0


# Row 9.


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("mode", ["default", "durable acks"])
def test_row_9_a_full_disk_under_load(mode: str, full: bool, report: Report, tmp_path: Path) -> None:
    """Clients write and read all the time; their history says that nothing was lost or written twice."""
    rounds, slowest = 50 if full else 6, 0.0
    plan = WorkloadPlan(
        writers=2, readers=1, sends_per_second=150, topic_config=SMALL_SEGMENTS, writer_config={"batch.size": 16384}
    )
    with faulty_broker(OURS.durable if mode == "durable acks" else {}) as broker:
        create_probe(broker.place.port)
        with Workload(broker.bootstrap, tmp_path / "history.jsonl", plan) as load:
            for number in range(rounds):
                place = PLACES[number % len(PLACES)]
                load.await_acked(100)
                load.fault(f"no room: {place}")
                set_rules(broker, place)
                if place is FULL:
                    assert produce(broker.place.port) == STORAGE_ERROR
                assert fetched(broker.place.port) > 100, "reading goes on"
                pause(0.2)
                set_rules(broker)
                slowest = max(slowest, load.await_resumed(SECONDS_TO_RESUME))
        found = load.check()
        found.demand_clean()
        assert broker.stop() == 0, broker.log_tail(40)
    report(
        9, f"{mode}: {rounds} rounds without room, {found.figures()}; slowest resumption {slowest:.2f} s (at most 10)"
    )


def pause(seconds: float) -> None:
    """Let the load run against the fault for a while; nothing is awaited here."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, seconds + 5)


@contextmanager
def small_file_system(path: Path, options: str) -> Iterator[Path]:
    """A tmpfs of its own, which needs root; the test is left out otherwise."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "barnabas-test", str(path)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a file system of limited size can be mounted by root only")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.timeout(1000)
def test_row_9_a_file_system_that_is_really_full(full: bool, report: Report, tmp_path: Path) -> None:
    """A tmpfs of 16 MiB, filled to its last byte again and again."""
    rounds, slowest, refused = 100 if full else 5, 0.0, 0
    with small_file_system(tmp_path / "small", "size=16m") as small:
        ballast = small / "ballast"
        settings = {"log.dirs": str(small / "data"), "log.segment.bytes": "65536"}
        with faulty_broker(settings) as broker:
            port = broker.place.port
            create_probe(port)
            for _ in range(rounds):
                fill(ballast)
                # A page of the segment may still have room, so the first answers can be good ones.
                wait_until(lambda: produce(port, size=3000) == STORAGE_ERROR, 10, "the disk being full")
                refused += 1
                assert fetched(port) > 100, "reading goes on"
                began = time.monotonic()
                ballast.unlink()
                wait_until(lambda: produce(port, size=3000) == 0, SECONDS_TO_RESUME, "writing again")
                slowest = max(slowest, time.monotonic() - began)
            assert broker.stop() == 0, broker.log_tail(40)
    report(9, f"a tmpfs of 16 MiB filled {rounds} times: {refused} refusals with 56, resumption within {slowest:.2f} s")


def fill(ballast: Path) -> None:
    """Take every page that is left."""
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


# Row 11.


def partitions_of(broker: BrokerProcess, directory: str) -> set[int]:
    paths = (broker.place.directory / directory).glob(f"{TOPIC}-*")
    return {int(path.name.rpartition("-")[2]) for path in paths if path.is_dir()}


@pytest.mark.parametrize("rule", [BROKEN, READ_ONLY, Rule(("sync",), error="EIO")], ids=["EIO", "read-only", "fsync"])
def test_row_11_a_broken_disk(rule: Rule, report: Report) -> None:
    """One of two directories breaks: its partitions answer 56, the others go on. Then the other: the broker ends."""
    with faulty_broker(OURS.durable) as broker:
        port, home = broker.place.port, broker.place.directory
        create_probe(port, 4)
        on_a, on_b = partitions_of(broker, "a"), partitions_of(broker, "b")
        assert len(on_a) == len(on_b) == 2
        broken_b = Rule(rule.calls, f"{home}/b/*", rule.error)
        set_rules(broker, broken_b)
        assert {produce(port, partition) for partition in on_b} == {STORAGE_ERROR}
        assert {produce(port, partition) for partition in on_a} == {0}
        set_rules(broker)
        assert {produce(port, partition) for partition in on_b} == {STORAGE_ERROR}, "a broken disk is not tried again"
        assert broker.process.poll() is None
        with urllib.request.urlopen(broker.metrics_url, timeout=10) as page:
            assert b"\nkafka_log_logmanager_offlinelogdirectorycount 1" in page.read()
        began = time.monotonic()
        set_rules(broker, Rule(rule.calls, f"{home}/a/*", rule.error))
        produce_to_the_end(port, min(on_a))
        code = broker.process.wait(SECONDS_TO_END)
        took = time.monotonic() - began
        fatal = [line for line in broker.log_tail(100).splitlines() if "every log directory failed" in line]
        assert code != 0
        assert len(fatal) == 1, broker.log_tail(40)
    report(
        11, f"{rule.error} on {'/'.join(rule.calls)[:20]}…: 56 there, 0 elsewhere; the last one ends it in {took:.1f} s"
    )


def produce_to_the_end(port: int, partition: int) -> None:
    """The broker may answer 56, or be gone before it answers."""
    try:
        assert produce(port, partition) == STORAGE_ERROR
    except (OSError, ArithmeticError, IndexError):
        return


@pytest.mark.parametrize("how", ["no directory", "read-only mount"])
def test_row_11_a_directory_that_is_away_at_the_start(how: str, report: Report, tmp_path: Path) -> None:
    """The broker starts with the other one; partitions that are away answer 56 and are whole when it is back."""
    with faulty_broker() as broker:
        port, home = broker.place.port, broker.place.directory
        create_probe(port, 4)
        on_a, on_b = partitions_of(broker, "a"), partitions_of(broker, "b")
        assert broker.stop() == 0
        os.rename(home / "b", home / "kept")
        with away(home / "b", how):
            broker.start()
            assert {produce(port, partition) for partition in on_b} == {STORAGE_ERROR}
            assert {produce(port, partition) for partition in on_a} == {0}
            assert partitions_of(broker, "a") == on_a, "nothing is made anew"
            assert broker.stop() == 0
        os.rename(home / "kept", home / "b")
        broker.start()
        assert {produce(port, partition) for partition in range(4)} == {0}
        assert broker.stop() == 0
    report(11, f"{how} at the start: 56 for its partitions, the rest serves, all is there when it is back")


@contextmanager
def away(path: Path, how: str) -> Iterator[None]:
    if how == "no directory":
        path.write_text("a file")
        yield
        path.unlink()
    else:
        with small_file_system(path, "size=1m,ro"):
            yield
        path.rmdir()


def test_row_11_no_usable_directory_at_the_start(report: Report) -> None:
    with faulty_broker() as broker:
        assert broker.stop() == 0
        broker.log_file.unlink()
        set_rules(broker, READ_ONLY)
        broker.spawn()
        assert broker.process.wait(SECONDS_TO_END) != 0
        lines = broker.log_tail(10).splitlines()
        assert len(lines) == 1, lines
        assert "log.dirs" in lines[0]
        assert "Read-only file system" in lines[0]
    report(11, "no usable directory at the start: exit code != 0 and one line")
