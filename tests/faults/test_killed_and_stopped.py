"""Rows 1 and 27: the broker is killed, or stands still, while clients write and read; the history says what they saw.

The load is that of tests/history: idempotent producers with acks=all, consumers with assigned partitions. Groups and transactions
join it when the broker has them.
"""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import pytest

from bench.brokers import OURS, BrokerProcess
from tests.faults.conftest import Report
from tests.history import Workload, WorkloadPlan
from tests.live_broker import live_broker

MODES = {"default": {}, "durable acks": OURS.durable}
# Small segments, so that kills hit a roll now and then.
KILLED_LOAD = WorkloadPlan(sends_per_second=150, topic_config={"segment.bytes": "1048576"})
IMPATIENT = {"request.timeout.ms": 500, "socket.timeout.ms": 1000, "socket.connection.setup.timeout.ms": 1000}
"""Clients that give up a request while the broker stands still, and send it again on a new connection: the broker finds both. Their many
connections fill the system's queue before accept (socket.listen.backlog.size), and what comes then is not even refused; without the limit
on connecting they would wait for TCP's next attempt, up to sixteen seconds after the broker goes on."""


def kill_and_start(broker: BrokerProcess, dice: random.Random) -> int:
    """Kill it at a random time of its life: while it serves, and in one case of four once more while it starts; how many kills."""
    pause = threading.Event()
    pause.wait(dice.uniform(0, 0.2))
    broker.kill()
    kills = 1
    if dice.random() < 0.25:
        broker.spawn()
        pause.wait(dice.uniform(0, 1.2 * broker.started_in))
        broker.kill()
        kills += 1
    broker.start()
    return kills


@pytest.mark.timeout(5000)
@pytest.mark.parametrize("mode", MODES)
def test_row_1_kill_9_under_load(mode: str, full: bool, report: Report, tmp_path: Path) -> None:
    wanted, kills, slowest = 250 if full else 10, 0, 0.0
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    with live_broker(MODES[mode]) as broker:
        with Workload(broker.bootstrap, tmp_path / "history.jsonl", KILLED_LOAD) as load:
            load.await_acked(50)
            while kills < wanted:
                load.fault("kill -9")
                kills += kill_and_start(broker, dice)
                slowest = max(slowest, load.await_resumed(5.0))
                load.await_acked(dice.randint(1, 200))
        found = load.check()
    assert found.ok, f"seed {seed}:\n{found.text()}"
    assert not found.unknown, "a send was given up, although the broker was never gone for long"
    report(1, f"{mode}: {kills} kills, {found.figures()}; slowest resumption {slowest:.2f} s (at most 5)")


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("client", ["patient", "impatient"])
def test_row_27_stopped_and_continued(client: str, full: bool, report: Report, tmp_path: Path) -> None:
    pauses = [5.0, 15.0, 30.0, 60.0] if full else [1.2, 1.8]
    more = IMPATIENT if client == "impatient" else {}
    plan = WorkloadPlan(writer_config=more, finish_seconds=120)
    with live_broker() as broker:
        with Workload(broker.bootstrap, tmp_path / "history.jsonl", plan) as load:
            for seconds in pauses:
                load.await_acked(300)
                stand_still(broker, load, seconds)
                load.await_resumed(10.0)
        found = load.check()
    found.demand_clean()
    assert not found.unknown, "a send was given up"
    times = ", ".join(f"{seconds:g}" for seconds in pauses)
    report(27, f"{client} clients: stopped for {times} s, {found.figures()}")


def stand_still(broker: BrokerProcess, load: Workload, seconds: float) -> None:
    load.fault(f"SIGSTOP for {seconds} s")
    broker.process.send_signal(signal.SIGSTOP)
    try:
        threading.Event().wait(seconds)
    finally:
        broker.process.send_signal(signal.SIGCONT)
