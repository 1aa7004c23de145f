"""Row 31, the stress: producers whose memory is always used up, on a line that fails in every way, for as long as is asked for.

`make soak` runs it for an hour (SOAK_SECONDS=… for another time), `make faults` for two minutes, `make test` for a few seconds.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from barnabas.client.errors import ClientTimeout
from barnabas.producer import BufferExhausted, Producer, ProducerClosed, RecordFuture
from barnabas.producer.transaction_manager import TransactionManager
from tests.both_brokers import Broker, own_broker
from tests.faults.conftest import Report
from tests.faults.proxy import FaultyProxy
from tests.waiting import wait_until

THREADS = 6
MEMORY = 64 * 1024
ROUND_SECONDS = {True: 6.0, False: 2.0}
STUCK_SECONDS = 40.0
SETTINGS = {
    "buffer.memory": MEMORY,
    "batch.size": 2048,
    "max.block.ms": 60,
    "linger.ms": 1,
    "request.timeout.ms": 400,
    "delivery.timeout.ms": 1500,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
    "send.buffer.bytes": 4096,
}


@pytest.fixture(scope="module")
def line() -> Iterator[tuple[FaultyProxy, Broker]]:
    with FaultyProxy() as proxy, own_broker(config={"advertised.listeners": proxy.advertised}) as broker:
        proxy.target = broker.port
        yield proxy, broker


def value_of(thread: int, number: int, size: int) -> bytes:
    return b"%d/%d/" % (thread, number) + b"%d" % (number % 10) * size


def knows(producer: Producer, topic: str) -> bool:
    """Time-outs of memory are what is wanted here, so that max.block.ms is short; metadata may take longer."""
    try:
        return len(producer.partitions_for(topic)) == 2
    except ClientTimeout:
        return False


class Sending:
    """A thread that sends until it is told to end, or its producer is closed under it."""

    def __init__(self, producer: Producer, topic: str, thread: int, over: threading.Event) -> None:
        self._producer = producer
        self._topic = topic
        self._thread = thread
        self._over = over
        self._dice = random.Random()
        self.futures: list[tuple[bytes, RecordFuture]] = []
        self.exhausted = 0
        self.turns = 0
        self.error: BaseException | None = None
        self.runs = threading.Thread(target=self._run, name=f"sending-{thread}")

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._send(self.turns)
                self.turns += 1
        except ProducerClosed:
            pass
        except BaseException as error:
            self.error = error

    def _send(self, number: int) -> None:
        value = value_of(self._thread, number, self._dice.choice((5, 100, 700, 5000)))
        try:
            self.futures.append((value, self._producer.send(self._topic, value, partition=number % 2)))
        except BufferExhausted:
            self.exhausted += 1
        except ClientTimeout:
            pass  # the client has lost sight of all brokers and starts again
        if self._dice.random() < 0.002:
            self._producer.flush(0.05)


def trouble(proxy: FaultyProxy) -> list[Callable[[], object]]:
    """What may happen to the line next; the last is that nothing is wrong for a while."""

    def slow() -> None:
        proxy.bytes_per_second = 300_000

    def breaking() -> None:
        proxy.break_chance = 0.05

    return [proxy.hold_requests.set, proxy.hold_responses.set, slow, breaking, proxy.reset_all, proxy.heal]


class Stress:
    """One producer after the other, and what was counted."""

    def __init__(self, proxy: FaultyProxy, broker: Broker) -> None:
        self._proxy = proxy
        self._broker = broker
        self.counts: Counter[str] = Counter()

    def run(self, seconds: float, forced: bool) -> None:
        """A round: send in trouble, then end in order, or while all wait for memory."""
        self._proxy.heal()
        topic = self._broker.unique_topic_name("stress")
        self._broker.create_topic(topic, 2)
        over = threading.Event()
        with Producer({"bootstrap.servers": self._proxy.address, **SETTINGS}) as producer:
            wait_until(lambda: knows(producer, topic), 20, "metadata")
            sending = [Sending(producer, topic, number, over) for number in range(THREADS)]
            for one in sending:
                one.runs.start()
            self._trouble(sending, time.monotonic() + seconds)
            self._end(producer, sending, over, forced)
            assert producer.metrics()["buffer-available-bytes"] == MEMORY
        keeper = producer._sender._keeper
        assert isinstance(keeper, TransactionManager)
        self._check(topic, sending, began_anew=keeper.epoch > 0)
        self._broker.delete_topic(topic)

    def _trouble(self, sending: list[Sending], until: float) -> None:
        moved = time.monotonic()
        turns = 0
        while time.monotonic() < until:
            self._proxy.heal()
            random.choice(trouble(self._proxy))()
            threading.Event().wait(random.uniform(0.05, 0.6))
            if (now := sum(one.turns for one in sending)) != turns:
                turns, moved = now, time.monotonic()
            assert time.monotonic() - moved < STUCK_SECONDS, "no thread sends any more"
        self._proxy.heal()

    def _end(self, producer: Producer, sending: list[Sending], over: threading.Event, forced: bool) -> None:
        if forced:
            producer.close(0)  # wakes all who wait for memory, and fails what is left
        over.set()
        for one in sending:
            one.runs.join(STUCK_SECONDS)
            assert not one.runs.is_alive(), "a thread did not come back"
            assert one.error is None, repr(one.error)
        producer.close()

    def _check(self, topic: str, sending: list[Sending], began_anew: bool) -> None:
        """`began_anew`: a batch expired that may have been written, so that the numbers began anew in another epoch (docs/faults.md)."""
        written: Counter[bytes] = Counter()
        for record in self._broker.records(topic):
            assert record.value is not None
            written[record.value] += 1
        sent = {value for one in sending for value, _ in one.futures}
        doubled = [value for value, count in written.items() if count > 1]
        assert began_anew or not doubled, "a record was written twice"
        self.counts["doubled"] += len(doubled)
        assert set(written) <= sent, "something was written that nobody sent"
        for value, future in (pair for one in sending for pair in one.futures):
            assert future.done()
            if future.exception(0) is None:
                assert value in written, "an acknowledged record is lost"
                self.counts["acknowledged"] += 1
            else:
                self.counts["failed"] += 1
        self.counts["time-outs"] += sum(one.exhausted for one in sending)
        self.counts["producers"] += 1


@pytest.mark.timeout(5000)
def test_no_deadlock_and_no_leak(line: tuple[FaultyProxy, Broker], full: bool, report: Report) -> None:
    """Row 31: nothing hangs, nothing leaks, and every record comes to its end, whatever happens to the line. PP-6, PP-30."""
    seconds = float(os.environ.get("SOAK_SECONDS", "120" if full else "4"))
    stress = Stress(*line)
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        stress.run(ROUND_SECONDS[full], forced=stress.counts["producers"] % 2 == 1)
    counts = stress.counts
    assert counts["acknowledged"]
    assert counts["time-outs"]
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("sending-")], what="no thread left")
    report(
        31,
        f"{time.monotonic() - start:.0f} s of stress: {counts['producers']} producers, {counts['acknowledged']} records "
        f"acknowledged and found ({counts['doubled']} twice, in two epochs), {counts['failed']} failed, "
        f"{counts['time-outs']} time-outs of memory; nothing hangs or leaks",
    )
