"""`make bench-clients`: our clients beside confluent-kafka and kafka-python, in one run, against one broker and with the same data.
Prints a row per piece of work with both figures, their ratio (median over interleaved rounds) and the bound; ends with status 1 when a
bound is missed, 2 when nothing could be measured.

Role: rounds and report; the rows are in `client_rows.py`, the work itself in `client_works.py`, each piece in a process of its own.
Main thread.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections import defaultdict
from dataclasses import dataclass, field

import click
from rich.console import Console

from bench import other_work
from bench.brokers import KAFKA, OURS, BrokerFailed, BrokerProcess, Kind
from bench.client_rows import GROUPS, ClientRow, Group, chosen, works_of
from bench.rows import Verdict, judge
from bench.table import FULL_ROUNDS, caveats, conclude, number, table_of
from bench.workloads import WorkFailed, create_topic, record_count

WORK_SECONDS = 300
WARM_UP_RECORDS = 500_000
FILLS_TOPICS = "ours-arrow"


@dataclass(slots=True)
class Harness:
    """Runs the rounds. One thread; owns the console and the figures, by group, work and round."""

    console: Console
    kind: Kind
    rows: tuple[ClientRow, ...]
    rounds: int
    scale: float
    figures: dict[tuple[str, str], dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    failures: dict[str, str] = field(default_factory=dict)
    disturbed: int = 0

    def run(self) -> None:
        for turn in range(self.rounds):
            for group in GROUPS:
                works = works_of(group, self.rows)
                if works:
                    self.run_group(group, works if turn % 2 == 0 else works[::-1], turn)

    def run_group(self, group: Group, works: list[str], turn: int) -> None:
        label = f"round {turn + 1}/{self.rounds}  {group.name}"
        before = other_work.read()
        try:
            with BrokerProcess(self.kind, {}) as broker, self.console.status(label) as status:
                run_work(broker, FILLS_TOPICS, int(WARM_UP_RECORDS * min(self.scale, 1.0)), new_topic(broker))
                session = Session(broker, group, max(int(group.count * self.scale), 1000))
                for work in works:
                    status.update(f"{label}  {work}")
                    self.figures[group.name, work][turn] = figure = session.measure(work)
                    self.console.print(
                        f"[dim]{label}[/]  {work:<24} {number(figure, 'ms' if figure < 100 else ''):>12}"
                    )
        except (BrokerFailed, WorkFailed) as error:
            self.failures[label] = str(error)
            self.console.print(f"[red]{label} failed:[/] {error}")
        if other_work.share_since(before) > other_work.CALM_SHARE:
            self.disturbed += 1

    def verdicts(self) -> list[Verdict]:
        """Of each row, the rounds in which both sides have a figure."""
        found = []
        for row in self.rows:
            ours = self.figures[row.row.group, row.ours]
            peer = self.figures[row.row.group, row.peer] if row.peer else {}
            turns = sorted(ours.keys() & peer.keys() if row.peer else ours.keys())
            if turns:
                found.append(judge(row.row, [ours[turn] for turn in turns], [peer[turn] for turn in turns if peer]))
        return found


class Session:
    """The works of one group in one round, on one broker. What is read is written once, before the first that reads it."""

    def __init__(self, broker: BrokerProcess, group: Group, count: int) -> None:
        self._broker = broker
        self._group = group
        self._count = count
        self._filled = ""

    def measure(self, work: str) -> float:
        """One figure; it counts only when every record is there."""
        if self._group.reads:
            return run_work(self._broker, work, self._count, self._full_topic(), self._group.pure)
        topic = new_topic(self._broker)
        figure = run_work(self._broker, work, self._count, topic, self._group.pure)
        expect_records(self._broker, work, topic, self._count + (1 if work.endswith("latency") else 0))
        return figure

    def _full_topic(self) -> str:
        if not self._filled:
            self._filled = new_topic(self._broker)
            run_work(self._broker, FILLS_TOPICS, self._count, self._filled)
            expect_records(self._broker, FILLS_TOPICS, self._filled, self._count)
        return self._filled


def new_topic(broker: BrokerProcess) -> str:
    return create_topic(broker.bootstrap, f"bench-{uuid.uuid4().hex[:10]}", 1)


def run_work(broker: BrokerProcess, work: str, count: int, topic: str, pure: bool = False) -> float:
    command = [sys.executable, "-m", "bench.client_works", work, broker.bootstrap, topic, str(count)]
    env = {**os.environ, "BARNABAS_NATIVE": "0" if pure else "1"}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=WORK_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise WorkFailed(f"{work}: not done within {WORK_SECONDS} s") from error
    if done.returncode:
        raise WorkFailed(f"{work}: {done.stderr.strip()[-2000:]}")
    return float(done.stdout)


def expect_records(broker: BrokerProcess, work: str, topic: str, wanted: int) -> None:
    found = record_count(broker.bootstrap, topic, 1)
    if found != wanted:
        raise WorkFailed(f"{work}: {found} of {wanted} records are in the topic")


def is_compiled() -> bool:
    """Asked at the end: the works run in processes of their own, and importing the package settles which form this one has."""
    from barnabas.native import forms

    return all(forms().values())


@click.command(help=__doc__.split("\n\n", 1)[0] if __doc__ else "")
@click.option("--rounds", default=FULL_ROUNDS, show_default=True, help="interleaved rounds")
@click.option("--only", multiple=True, metavar="NAME", help="a row or a group of rows; may be given more than once")
@click.option("--broker", "kind", type=click.Choice(["ours", "kafka"]), default="ours", show_default=True)
@click.option("--scale", default=1.0, show_default=True, help="share of the full work, for a quick look")
def main(rounds: int, only: tuple[str, ...], kind: str, scale: float) -> None:
    """Parse the options, run, report."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    signal.signal(
        signal.SIGTERM, lambda code, frame: sys.exit(128 + code)
    )  # so that the blocks below stop their brokers
    try:
        harness = Harness(console, KAFKA if kind == "kafka" else OURS, chosen(only), rounds, scale)
    except KeyError as reason:
        console.print(f"[red]{reason.args[0]}[/]")
        sys.exit(2)
    try:
        harness.run()
    except KeyboardInterrupt:
        console.print("stopped; what was measured so far:")
        harness.failures["all"] = "stopped by the user"
    verdicts = harness.verdicts()
    title = f"Clients side by side on {harness.kind.name}'s broker, medians of all rounds"
    console.print(table_of(title, ("ours", "peer"), verdicts))
    for caveat in caveats(harness.rounds, harness.scale, harness.disturbed, is_compiled()):
        console.print(f"[yellow]{caveat}[/]")
    sys.exit(conclude(console, verdicts, harness.failures))


if __name__ == "__main__":
    main()
