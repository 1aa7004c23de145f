"""Our producer behind a bad network (rows 25 and 26, the producer's part) and with its memory used up (row 31); section 4: KAFKA-19012."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from barnabas.clock import SystemClock
from barnabas.producer import BufferExhausted, Producer, RecordFuture
from barnabas.producer.buffer_pool import BufferPool
from tests.both_brokers import Broker, own_broker
from tests.faults.conftest import Report
from tests.faults.proxy import FaultyProxy
from tests.waiting import wait_until

TOPIC = "orders"
TOPICS = (TOPIC, "a", "b")
QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "request.timeout.ms": 1500,
    "batch.size": 2000,
    "linger.ms": 1,
}


class World:
    """A broker behind a proxy."""

    def __init__(self, proxy: FaultyProxy, broker: Broker) -> None:
        self.proxy = proxy
        self.broker = broker

    def producer(self, **changes: object) -> Producer:
        return Producer({"bootstrap.servers": self.proxy.address, **QUICK, **changes})

    def values(self, topic: str = TOPIC) -> list[bytes]:
        return [record.value or b"" for record in self.broker.records(topic)]


@pytest.fixture(scope="module")
def line() -> Iterator[tuple[FaultyProxy, Broker]]:
    """A broker that is reached through the proxy only; a JVM is slow to start, so that the tests share it."""
    with FaultyProxy() as proxy:
        # No auto-creation: a metadata request that a test leaves under way must not make anew what the fixture deletes.
        config = {"advertised.listeners": proxy.advertised, "auto.create.topics.enable": False}
        with own_broker(config=config) as broker:
            proxy.target = broker.port
            yield proxy, broker


@pytest.fixture
def world(line: tuple[FaultyProxy, Broker]) -> Iterator[World]:
    proxy, broker = line
    for topic in TOPICS:
        broker.create_topic(topic)
    proxy.heal()
    yield World(proxy, broker)
    proxy.heal()
    for topic in TOPICS:
        broker.delete_topic(topic)


def send_all(producer: Producer, count: int, first: int = 0) -> list[RecordFuture]:
    return [producer.send(TOPIC, b"%08d" % number + b"x" * 100) for number in range(first, first + count)]


def all_once_and_in_order(world: World, futures: list[RecordFuture]) -> None:
    assert [future.result(120).offset for future in futures] == list(range(len(futures)))
    assert [int(value[:8]) for value in world.values()] == list(range(len(futures)))


class TestRow25:
    @pytest.mark.timeout(900)
    def test_resets_in_the_middle_of_frames(self, world: World, full: bool, report: Report) -> None:
        """Row 25: with 5 in flight, nothing is lost, doubled or reordered. PP-27, PP-31."""
        count = 100_000 if full else 3000
        start = time.monotonic()
        with world.producer() as ours:
            ours.partitions_for(TOPIC)
            world.proxy.break_chance = 0.02
            futures = send_all(ours, count)
            assert [future.result(300).offset for future in futures] == list(range(count))
            while not world.proxy.broken:  # all had luck: full batches on a slow machine are few
                futures += send_all(ours, 20, len(futures))
                futures[-1].result(300)
        all_once_and_in_order(world, futures)
        seconds = time.monotonic() - start
        all_of_them = f"{len(futures)} of {len(futures)}"
        report(25, f"{all_of_them} written once and in order through {world.proxy.broken} resets in {seconds:.0f} s")

    @pytest.mark.timeout(900)
    def test_a_slow_and_narrow_line(self, world: World, full: bool, report: Report) -> None:
        """Row 25: 100 ms and 3 Mbit/s."""
        world.proxy.delay = 0.1 if full else 0.02
        world.proxy.bytes_per_second = 375_000
        count = 100_000 if full else 2000
        with world.producer(**{"request.timeout.ms": 10_000, "batch.size": 16_384}) as ours:
            all_once_and_in_order(world, send_all(ours, count))
        report(25, f"{count} of {count} through a delayed line of 3 Mbit/s")

    @pytest.mark.parametrize("direction", ["requests", "responses"])
    def test_one_direction_is_cut(self, world: World, direction: str, report: Report) -> None:
        """Row 25: requests that never arrive, and answers that never arrive: the second are written, and must not be written again."""
        held = world.proxy.hold_requests if direction == "requests" else world.proxy.hold_responses
        with world.producer() as ours:
            first = send_all(ours, 500)
            first[0].result(20)
            held.set()
            futures = first + [ours.send(TOPIC, b"%08d" % number) for number in range(500, 1000)]
            wait_until(lambda: ours.metrics()["record-retry-total"] > 0, 20, "a request that timed out")
            held.clear()
            all_once_and_in_order(world, futures)
            retried = ours.metrics()["record-retry-total"]
        report(25, f"{direction} cut: 1000 of 1000 written once, {retried:.0f} records sent again")

    def test_a_frame_that_arrives_again_on_another_connection(self, world: World, report: Report) -> None:
        """Row 25: a network that repeats a Produce frame does not double its records."""
        frames: list[bytes] = []

        def keep(data: bytes, requests: bool) -> bytes:
            """Note the Produce requests that stand whole in what passes."""
            at = 0
            while requests and len(data) - at >= 8:
                end = at + 4 + struct.unpack_from(">i", data, at)[0]
                if end <= len(data) and data[at + 4 : at + 6] == b"\x00\x00":
                    frames.append(data[at:end])
                at = end
            return data

        world.proxy.meddle = keep
        with world.producer(**{"batch.size": 1000}) as ours:
            futures = [ours.send(TOPIC, b"%08d" % number) for number in range(300)]
            assert ours.flush(20) == 0
            assert frames
            for frame in frames[-5:]:
                with socket.create_connection(("127.0.0.1", world.broker.port), 5) as again:
                    again.sendall(frame)
                    assert again.recv(4)
            futures += [ours.send(TOPIC, b"%08d" % number) for number in range(300, 400)]
            all_once_and_in_order(world, futures)
        report(25, f"{len(frames[-5:])} frames sent again on other connections: no record doubled")


@pytest.mark.timeout(900)
def test_every_connection_dies_soon(world: World, full: bool, report: Report) -> None:
    """Row 26, the producer alone (the chain is in test_dying_chain.py): connections that live 0.5 to 1.5 s. PP-21, PP-31."""
    world.proxy.lifetime = (0.5, 1.5) if full else (0.15, 0.4)
    rounds = 20 if full else 2
    written = 0
    for _ in range(rounds):
        enough = world.proxy.connections + (12 if full else 5)
        with world.producer() as ours:
            futures = []
            while world.proxy.connections < enough:
                futures.append(ours.send(TOPIC, b"%08d" % (written + len(futures))))
                ours.flush(0.002)
            assert [future.result(60).offset for future in futures] == list(range(written, written + len(futures)))
        written += len(futures)
    assert [int(value) for value in world.values()] == list(range(written))
    short = f"{world.proxy.connections} short-lived connections (the producer alone)"
    report(26, f"{rounds} of {rounds} rounds, {written} records exactly once over {short}")


class TestExpiryInFlight:
    @pytest.mark.timeout(300)
    def test_no_byte_of_another_batch_ever_leaves(self, world: World, full: bool) -> None:
        """Section 4, KAFKA-19012 / CVE-2026-35554, PP-6: batches expire while their requests are being written, on two topics that
        share the memory; every record that arrives is in its own topic, and no batch arrives damaged."""
        world.proxy.bytes_per_second = 400_000
        settings = {
            "batch.size": 1024,
            "buffer.memory": 256 * 1024,
            "request.timeout.ms": 150,
            "delivery.timeout.ms": 151,
            "linger.ms": 1,
            "send.buffer.bytes": 4096,
            "max.block.ms": 20_000,
        }
        expired = written = 0
        with world.producer(**settings) as ours:
            ours.partitions_for("a")
            ours.partitions_for("b")
            futures = []
            for number in range(20_000 if full else 1500):
                topic = "ab"[number % 2]
                futures.append(ours.send(topic, topic.encode() * 800))
                if number % 300 == 0:
                    world.proxy.hold_requests.set()
                elif number % 300 == 150:
                    world.proxy.hold_requests.clear()
            world.proxy.hold_requests.clear()
            for future in futures:
                if future.exception(30) is None:
                    written += 1
                else:
                    expired += 1
            wait_until(lambda: ours.metrics()["buffer-available-bytes"] == settings["buffer.memory"], 20, "free memory")
        assert expired > 100
        assert written > 0
        for topic in ("a", "b"):
            values = world.values(topic)
            assert values
            assert set(values) == {topic.encode() * 800}


class TestRow31:
    @pytest.mark.timeout(300)
    def test_time_outs_leak_nothing(self, full: bool, report: Report) -> None:
        """Row 31: free memory = total after many time-outs, with several threads."""
        total = 64 * 1024
        memory = BufferPool(total, 1024, SystemClock())
        rounds = 10_000 if full else 400
        held = [memory.allocate(1024, 0) for _ in range(60)]
        failed = threading.Semaphore(0)

        def work(seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(rounds // 4):
                size = dice.choice((1024, 3000, 10_000))
                try:
                    memory.deallocate(memory.allocate(size, 0.5), size)
                except BufferExhausted:
                    failed.release()

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        for buffer in held:
            memory.deallocate(buffer, 1024)
        assert (memory.available, memory.queued) == (total, 0)
        assert memory.exhausted_count > rounds // 20
        report(31, f"{memory.exhausted_count} time-outs in {rounds} allocations: all {total} bytes are free again")
