"""`make bench-broker`: our broker beside Apache Kafka, in one run on one machine. Prints a row per piece of work with both figures,
their ratio (median over interleaved rounds) and the bound; ends with status 1 when a bound is missed, 2 when nothing could be measured.

Absolute figures of shared machines mean little, so both sides run in turn, never at the same time, and the order is reversed in
every other round. `--ours kafka` puts Kafka on both sides, which shows how far the ratios of this machine stray from 1.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
from rich.console import Console

from bench import other_work
from bench.brokers import KAFKA, OURS, BrokerFailed, Kind, our_command
from bench.generators import GeneratorFailed, build
from bench.peers.jars import PeerUnavailable, ensure_jars
from bench.peers.tools import ToolFailed
from bench.rows import Row, Side, Verdict, judge, select_groups, selected_rows
from bench.table import FULL_ROUNDS, caveats, conclude, number, table_of
from bench.workloads import WORKLOADS, Session, WorkFailed

FAILURES = (BrokerFailed, GeneratorFailed, ToolFailed, WorkFailed)
DESCRIPTORS = 16_384
Key = tuple[str, Side, int]
"""Row, side, round."""


@dataclass(slots=True)
class Figures:
    """Every figure that was measured, by row, side and round. The memory row is the largest of a round; all others come once."""

    by_key: dict[Key, float] = field(default_factory=dict)

    def add(self, key: Key, value: float) -> None:
        self.by_key[key] = max(value, self.by_key.get(key, value)) if key[0] == "memory-load" else value

    def of(self, name: str, side: Side, rounds: int) -> list[float]:
        return [self.by_key[name, side, turn] for turn in range(rounds) if (name, side, turn) in self.by_key]


@dataclass(slots=True)
class Harness:
    """Runs the rounds. One thread; owns the console and the figures."""

    console: Console
    kinds: dict[Side, Kind]
    rows: tuple[Row, ...]
    rounds: int
    scale: float
    directory: Path
    calm_seconds: float
    figures: Figures = field(default_factory=Figures)
    failures: dict[str, str] = field(default_factory=dict)
    disturbed: list[str] = field(default_factory=list)

    def run(self, groups: tuple[str, ...]) -> None:
        for turn in range(self.rounds):
            sides = list(self.kinds) if turn % 2 == 0 else list(reversed(self.kinds))
            for group in groups:
                for side in sides:
                    self.run_group(group, side, turn)

    def run_group(self, group: str, side: Side, turn: int) -> None:
        kind = self.kinds[side]
        label = f"round {turn + 1}/{self.rounds}  {kind.name:<8}"
        with self.console.status(f"{label}  {group}") as status:
            if self.calm_seconds:
                status.update(f"{label}  {group}: waiting for a calm machine")
                other_work.wait_for_calm(self.calm_seconds)
            before = other_work.read()
            session = Session(
                kind,
                self.directory,
                frozenset(row.name for row in self.rows),
                self.scale,
                record=lambda name, value: self.record(label, (name, side, turn), value),
                step=lambda text: status.update(f"{label}  {text}"),
            )
            try:
                WORKLOADS[group](session)
            except FAILURES as error:
                self.failures[f"{group}, {kind.name}, round {turn + 1}"] = str(error)
                self.console.print(f"[red]{label}  {group} failed:[/] {error}")
            self.note_other_work(f"{label}  {group}", other_work.share_since(before))

    def record(self, label: str, key: Key, value: float) -> None:
        self.figures.add(key, value)
        unit = next((row.unit for row in self.rows if row.name == key[0]), None)
        if unit is not None:
            self.console.print(f"[dim]{label}[/]  {key[0]:<14} {number(value, unit):>10} {unit}")

    def note_other_work(self, label: str, share: float) -> None:
        if share > other_work.CALM_SHARE:
            self.disturbed.append(f"{label}: {share:.0%}")
            self.console.print(f"[yellow]{label}: other processes took {share:.0%} of this machine meanwhile[/]")

    def verdicts(self) -> list[Verdict]:
        found = []
        for row in self.rows:
            ours = self.figures.of(row.name, Side.OURS, self.rounds)
            kafka = self.figures.of(row.name, Side.KAFKA, self.rounds)
            if ours:
                complete = len(ours) == len(kafka)  # a round in which one side failed has no ratio
                found.append(judge(row, ours, kafka if complete else []))
        return found


def as_json(harness: Harness, verdicts: list[Verdict]) -> str:
    raw: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for row in harness.rows:
        for side in harness.kinds:
            raw[row.name][side.value] = harness.figures.of(row.name, side, harness.rounds)
    summary = [
        {
            "name": v.row.name,
            "ours": v.ours,
            "kafka": v.peer,
            "ratio": v.ratio,
            "bound": v.row.bound.value,
            "limit": v.row.limit,
            "met": v.met,
        }
        for v in verdicts
    ]
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    document = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine,
        "rounds": harness.rounds,
    }
    return json.dumps(
        {**document, "rows": summary, "figures": raw, "failures": harness.failures, "disturbed": harness.disturbed},
        indent=2,
    )


def raise_descriptor_limit() -> None:
    """Ten thousand connections need as many descriptors in the broker, which inherits this process's limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard), hard)
        )


def kinds_of(ours: str, without_kafka: bool) -> dict[Side, Kind]:
    """`ours` is "" for this work tree, "kafka" for Kafka on both sides, or the command that starts another build of ours."""
    mine = replace(OURS, command=our_command(ours)) if ours else OURS
    if ours == "kafka":
        mine = replace(KAFKA, name="Kafka A")
    return {Side.OURS: mine} if without_kafka else {Side.OURS: mine, Side.KAFKA: KAFKA}


@click.command(help=__doc__.split("\n\n", 1)[0] if __doc__ else "")
@click.option("--only", multiple=True, metavar="NAME", help="a row or a group of rows; may be given more than once")
@click.option("--rounds", default=FULL_ROUNDS, show_default=True, help="interleaved rounds")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="write all figures to this file"
)
@click.option("--ours", default="", help="'kafka', or a command that takes our broker's options")
@click.option("--without-kafka", is_flag=True, help="measure our side alone (rows with a ratio then miss their bound)")
@click.option(
    "--wait-calm", default=0.0, metavar="SECONDS", help="wait this long before each group for other work to cease"
)
@click.option("--scale", default=1.0, show_default=True, help="share of the full work, for a quick look")
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="where the data directories are made",
)
def main(only: tuple[str, ...], rounds: int, json_file: Path | None, **options: object) -> None:
    """Parse the options, run, report."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    signal.signal(
        signal.SIGTERM, lambda number, frame: sys.exit(128 + number)
    )  # so that the blocks below stop their brokers
    try:
        groups = select_groups(only)
        prepare(bool(options["without_kafka"]))
    except (KeyError, PeerUnavailable, GeneratorFailed) as reason:
        console.print(f"[red]{reason.args[0]}[/]")
        sys.exit(2)
    kinds = kinds_of(str(options["ours"]), bool(options["without_kafka"]))
    parent = options["work_dir"]
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=str(parent) if parent else None) as directory:
        harness = Harness(
            console,
            kinds,
            selected_rows(only),
            rounds,
            float(str(options["scale"])),
            Path(directory),
            float(str(options["wait_calm"])),
        )
        try:
            harness.run(groups)
        except KeyboardInterrupt:
            console.print("stopped; what was measured so far:")
            harness.failures["all"] = "stopped by the user"
    sys.exit(report(harness, json_file))


def prepare(without_kafka: bool) -> None:
    """Everything that needs time or may be missing, before the first figure."""
    raise_descriptor_limit()
    ensure_jars()  # ProducerPerformance is needed even when Kafka's broker is not
    build("rr")
    build("fetch")


def report(harness: Harness, json_file: Path | None) -> int:
    verdicts = harness.verdicts()
    other = harness.kinds[Side.KAFKA].name if Side.KAFKA in harness.kinds else "-"
    sides = (harness.kinds[Side.OURS].name, other)
    harness.console.print(table_of("Side by side, medians of all rounds", sides, verdicts))
    if json_file is not None:
        json_file.write_text(as_json(harness, verdicts) + "\n")
    for caveat in caveats(harness.rounds, harness.scale, len(harness.disturbed)):
        harness.console.print(f"[yellow]{caveat}[/]")
    return conclude(harness.console, verdicts, harness.failures)


if __name__ == "__main__":
    main()
