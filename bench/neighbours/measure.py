"""One row on one broker: started afresh, its bystander measured in quiet and then beside the attack, its memory before, at most and after.

Thread: the harness's. Lock: none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import worst_requests
from bench.brokers import BrokerFailed, BrokerProcess, Kind
from bench.neighbours import payloads
from bench.neighbours.children import Child
from bench.neighbours.probe import PATIENCE_SECONDS
from bench.neighbours.rows import Row
from bench.workloads import create_topic

__all__ = ["MARK_BUSY", "Outcome", "Stage"]

WARM_UP_SECONDS, QUIET_SECONDS = 1.0, 2.5
WARM_UP_TURNS, CALM_MS = 10, 100.0
SETTLE_SECONDS, BUSY_SECONDS = 1.0, 0.5
MARK_BYTES, MARK_BUSY = 100_000_000, 0.2
"""A broker that holds so much more after a row, or is so busy with nobody there, is not used for another row."""
GRACE_SECONDS = 15.0
"""For the attacker to notice that its time is over."""
PARTITIONS_AT_ONCE = 1000
MOST_MEMORY = 4 << 30
"""A broker that takes more is killed: the machine has other users."""


@dataclass(slots=True)
class Memory:
    """Resident bytes; `peak` is the kernel's own high-water mark since the attack began."""

    before: int = 0
    peak: int = 0
    after: int = 0


@dataclass(slots=True)
class Outcome:
    """What one row came to. `quiet` and `attacked` are the bystander's figures (`probe.run`), `tally` the attacker's."""

    quiet: dict[str, float] = field(default_factory=dict)
    attacked: dict[str, float] = field(default_factory=dict)
    tally: dict[str, Any] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    busy_after: float = 0.0
    """Cores that the broker still uses when everybody has gone."""
    descriptors_kept: int = 0
    fate: str = ""
    """What became of the broker, if it did not live through the row."""

    def has_marks(self) -> bool:
        """Whether the attack goes on working in the broker."""
        return self.busy_after > MARK_BUSY or self.memory.after > self.memory.before + MARK_BYTES

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Stage:
    """The broker of a side. Each row has one started afresh, but for the rows of APIs, whose many partitions take a while to create:
    they share one as long as no attack leaves its marks on it. A context manager; not thread-safe."""

    def __init__(self, kind: Kind, directory: Path, step: Callable[[str], None]) -> None:
        self._kind = kind
        self._directory = directory
        self._step = step
        self._shared = False
        self._broker = ExitStack()
        self._running: BrokerProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """End the broker; what it held is thrown away, so nobody waits for it to stop in order."""
        if self._running is not None:
            self._running.kill()
            self._running = None
        self._broker.close()

    def measure(self, row: Row, scale: float) -> Outcome:
        """`scale` shortens everything that lasts; topics and bytes stay."""
        broker = self._broker_for(row)
        place = broker.place
        port = place.side_port if row.probe == "health" else place.port
        with (
            Child("bench.neighbours.attacker", row.name, place.port, place.side_port) as attacker,
            Child("bench.neighbours.probe", row.probe, port) as probe,
        ):
            attacker.wait_until_ready()
            probe.wait_until_ready()
            outcome = Outcome(quiet=self._quiet(probe, scale))
            self._step("attack")
            _attack(row, broker, (attacker, probe), scale, outcome)
        if outcome.fate or not row.worst or outcome.has_marks():
            self.clear()
        return outcome

    def _broker_for(self, row: Row) -> BrokerProcess:
        if self._running is None or not (self._shared and row.worst):
            self.clear()
            self._step("starting")
            self._running = self._broker.enter_context(BrokerProcess(self._kind, row.settings, self._directory))
            self._shared = row.worst
            self._step("topics")
            _create_topics(row, self._running)
        return self._running

    def _quiet(self, probe: Child, scale: float) -> dict[str, float]:
        """The bystander alone, once it is served at all: work of the row before, or a cold JVM, is waited for."""
        self._step("quiet")
        for _ in range(WARM_UP_TURNS):
            probe.start(WARM_UP_SECONDS * scale)
            if probe.result(PATIENCE_SECONDS + GRACE_SECONDS)["max_ms"] < CALM_MS:
                break
        probe.start(QUIET_SECONDS * scale)
        return probe.result(PATIENCE_SECONDS + GRACE_SECONDS)


# -- what the row needs ------------------------------------------------------------------------------------------------------------------


def _create_topics(row: Row, broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, payloads.BYSTANDERS, 1)
    if row.worst:
        worst_requests.prepare(broker.place.port)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for topics in row.topics:
        names = topics.names()
        at_once = max(1, PARTITIONS_AT_ONCE // topics.partitions)
        for first in range(0, len(names), at_once):
            wanted = [NewTopic(name, topics.partitions, 1) for name in names[first : first + at_once]]
            for created in admin.create_topics(wanted, request_timeout=60).values():
                created.result(90)


# -- the attack --------------------------------------------------------------------------------------------------------------------------


def _attack(row: Row, broker: BrokerProcess, children: tuple[Child, Child], scale: float, outcome: Outcome) -> None:
    attacker, probe = children
    process = psutil.Process(broker.process.pid)
    seconds = row.seconds * scale
    descriptors = process.num_fds()
    outcome.memory.before = process.memory_info().rss
    _forget_peak(process.pid)
    probe.start(seconds + GRACE_SECONDS)
    attacker.start(seconds)
    outcome.fate = _watch(broker, attacker, time.monotonic() + seconds + GRACE_SECONDS)
    probe.end()
    outcome.attacked = probe.result(PATIENCE_SECONDS + GRACE_SECONDS)
    if outcome.fate:
        outcome.memory.peak = max(outcome.memory.peak, MOST_MEMORY if "killed" in outcome.fate else 0)
        return
    outcome.tally = attacker.result(1)
    time.sleep(SETTLE_SECONDS)
    outcome.memory.peak = peak_bytes(process.pid)
    outcome.memory.after = process.memory_info().rss
    outcome.busy_after = _cores_used(process, BUSY_SECONDS)
    outcome.descriptors_kept = max(0, process.num_fds() - descriptors)


def _watch(broker: BrokerProcess, attacker: Child, deadline: float) -> str:
    """Wait for the attacker's tally; what became of the broker, if it died or had to be killed."""
    while not attacker.has_result(0.05):
        if broker.process.poll() is not None:
            return f"died with {broker.process.returncode}"
        if broker.resident_bytes() > MOST_MEMORY:
            broker.kill()
            return f"killed at {MOST_MEMORY >> 30} GiB"
        if time.monotonic() > deadline:
            raise BrokerFailed("the attacker did not end")
    return "" if broker.process.poll() is None else f"died with {broker.process.returncode}"


def _cores_used(process: psutil.Process, seconds: float) -> float:
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / seconds


def _forget_peak(pid: int) -> None:
    """Let the kernel count the largest resident memory from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
