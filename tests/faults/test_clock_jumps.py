"""Row 24: the time of day jumps by an hour and by a day, forward and back, while clients write and read.

The broker runs in this process with a clock whose wall time can be set; monotonic time goes on as ever, as it does on a machine whose
clock is set. Two topics: one whose timestamps the broker makes, which loses to retention what is old enough by those timestamps and
nothing else; one with the clients' timestamps, whose retention is longer than every jump.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.clock import SystemClock
from barnabas.testing import EmbeddedBroker
from tests import wire
from tests.faults.conftest import Report
from tests.history import Workload, WorkloadPlan

HOUR, DAY = 3600, 86_400
JUMPS = (HOUR, -HOUR, DAY, -DAY, -DAY, DAY, -HOUR, HOUR)
RETENTION_MS = 12 * HOUR * 1000
SEGMENT_MS = 10 * 60 * 1000
BROKERS_TIME = {
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": str(RETENTION_MS),
    "segment.ms": str(SEGMENT_MS),
}
CLIENTS_TIME = {
    # The default refuses records from more than an hour ahead of the broker's clock, which a clock set back makes of all.
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": str(3 * DAY * 1000),
    "segment.ms": str(SEGMENT_MS),
}
BYTES_PER_SECOND = 2_000_000
"""The quota, about ten times the load."""


class JumpingClock:
    """The system's clocks, the time of day shifted by what the test has asked for. A single int: reads need no lock."""

    monotonic_ns = staticmethod(SystemClock.monotonic_ns)

    def __init__(self) -> None:
        self._shift_ms = 0

    def wall_ms(self) -> int:
        return SystemClock.wall_ms() + self._shift_ms

    def jump(self, seconds: int) -> None:
        self._shift_ms += seconds * 1000


class Retention:
    """Applies retention and checks that only what is old enough goes. Only the test's thread deletes anything."""

    def __init__(self, broker: EmbeddedBroker, load: Workload, clock: JumpingClock) -> None:
        self._broker = broker
        self._load = load
        self._clock = clock
        self._timestamps: dict[tuple[int, int], int] = {}
        """Of what is in the log, by partition and offset."""
        self.deleted = 0

    def apply(self) -> None:
        for record in self._broker.records(self._load.topic):
            self._timestamps[record.partition, record.offset] = record.timestamp
        self._broker.server.services.logs.housekeeper.apply_retention()
        for partition in range(self._load.plan.partitions):
            log = self._broker.server.services.logs.get(self._load.topic, partition)
            assert log is not None
            self._check(partition, log.log_start_offset)

    def _check(self, partition: int, start: int) -> None:
        gone = [key for key in self._timestamps if key[0] == partition and key[1] < start]
        known = 1 + max((offset for number, offset in self._timestamps if number == partition), default=-1)
        assert start <= known, "what was written a moment ago is gone"
        for key in gone:
            age = self._clock.wall_ms() - self._timestamps.pop(key)
            assert age > RETENTION_MS, f"offset {key[1]} of partition {partition} went at an age of {age} ms"
        self.deleted += len(gone)
        self._load.history.trimmed(f"{self._load.topic}-{partition}", start)


class Complaints:
    """What a client would notice of a broker that takes the time of day for the time that passes."""

    def __init__(self) -> None:
        self.throttled: list[object] = []
        self.errors: list[object] = []

    def callbacks(self) -> dict[str, object]:
        return {"throttle_cb": self.throttled.append, "error_cb": self.errors.append}


@contextlib.contextmanager
def quiet_connection(port: int) -> Iterator[None]:
    """A connection that says nothing while the block runs; it must still be there at its end."""
    with wire.connect(port) as sock:
        assert wire.ask(sock, wire.api_versions())
        yield
        assert wire.ask(sock, wire.api_versions()), "an idle connection was closed long before its time"


@pytest.mark.timeout(600)
def test_row_24_clock_jumps(full: bool, report: Report, tmp_path: Path) -> None:
    clock, complaints = JumpingClock(), Complaints()
    jumps = JUMPS * (20 if full else 1)

    def workload(name: str, topic_config: dict[str, str]) -> Workload:
        plan = WorkloadPlan(
            writers=2,
            readers=1,
            sends_per_second=100,
            topic_config=topic_config,
            writer_config=complaints.callbacks(),
            reader_config=complaints.callbacks(),
        )
        return Workload(broker.bootstrap_servers, tmp_path / f"{name}.jsonl", plan)

    with EmbeddedBroker(clock=clock) as broker:
        broker.server.services.quotas.update({"client-id": None}, "producer_byte_rate", BYTES_PER_SECOND)
        broker.server.services.quotas.update({"client-id": None}, "consumer_byte_rate", BYTES_PER_SECOND)
        with (
            quiet_connection(broker.port),
            workload("brokers-time", BROKERS_TIME) as stamped,
            workload("clients-time", CLIENTS_TIME) as created,
        ):
            retention = Retention(broker, stamped, clock)
            times = jump_and_watch(clock, jumps, (stamped, created), retention)
            assert not complaints.throttled
            assert not complaints.errors
        times.append((times[-1][0], clock.wall_ms()))
        check_timestamps(broker, stamped, times)
        found = [stamped.check(), created.check()]
    for each in found:
        each.demand_clean()
    assert retention.deleted, "retention had nothing to do: the test shows nothing"
    report(
        24,
        f"{len(jumps)} jumps by an hour or a day: {found[0].figures()}; {retention.deleted} records past retention deleted, 0 younger; "
        f"the clients' timestamps: {found[1].figures()}; 0 throttled, 0 connections closed",
    )


def jump_and_watch(
    clock: JumpingClock, jumps: tuple[int, ...], loads: tuple[Workload, ...], retention: Retention
) -> list[tuple[int, int]]:
    """Between jumps let clients work and retention delete; from when to when the broker's time of day ran, once per jump."""
    times = []
    for seconds in (0, *jumps):
        for load in loads:
            load.fault(f"the clock jumps by {seconds} s")
        began = clock.wall_ms()
        if times:
            times[-1] = times[-1][0], began
        clock.jump(seconds)
        began += seconds * 1000
        for load in loads:
            load.await_resumed()
            load.await_acked(50)
        retention.apply()
        times.append((began, clock.wall_ms()))
    return times


def check_timestamps(broker: EmbeddedBroker, load: Workload, times: list[tuple[int, int]]) -> None:
    """Every record has a time that the broker's clock has shown, up to the second that passes between a jump and our look at it."""
    for record in broker.records(load.topic):
        assert any(began - 1000 <= record.timestamp <= ended + 1000 for began, ended in times), record.timestamp
