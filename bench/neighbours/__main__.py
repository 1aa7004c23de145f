"""`make bench-neighbours`: a bystander's waits and the broker's memory while one client does its worst, on our broker and on Apache Kafka.
Prints a row per attack; ends with status 1 when a must is missed, 2 when nothing could be measured.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import click
from confluent_kafka import KafkaException
from rich.console import Console

from barnabas.native import forms
from bench import other_work
from bench.broker import FAILURES, raise_descriptor_limit
from bench.brokers import KAFKA, OURS, Kind
from bench.neighbours.children import ChildFailed
from bench.neighbours.measure import Outcome, Stage
from bench.neighbours.report import as_json, goal_missed, judge, remarks_of, table_of
from bench.neighbours.rows import Row, selected
from bench.peers.jars import PeerUnavailable, ensure_jars
from bench.rows import Side
from bench.table import caveats, conclude

__all__ = ["Harness", "main"]

WIDTH = 200
CAUGHT = (*FAILURES, ChildFailed, KafkaException, OSError, RuntimeError)


@dataclass(slots=True)
class Harness:
    """Runs the rounds: one side after the other, never both at a time. One thread; owns the console and the outcomes."""

    console: Console
    rows: tuple[Row, ...]
    kinds: dict[Side, Kind]
    rounds: int
    scale: float
    directory: Path
    outcomes: dict[tuple[str, Side], list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)
    disturbed: list[str] = field(default_factory=list)

    def run(self) -> None:
        for turn in range(self.rounds):
            for side in self.kinds if turn % 2 == 0 else reversed(self.kinds):
                self.run_side(side, f"round {turn + 1}/{self.rounds}  {self.kinds[side].name:<8}")

    def run_side(self, side: Side, label: str) -> None:
        rows = [row for row in self.rows if side is Side.OURS or not row.not_on_kafka]
        with (
            self.console.status(label) as status,
            Stage(self.kinds[side], self.directory, lambda text: status.update(f"{label}  {text}")) as stage,
        ):
            for row in rows:
                self.run_row(stage, row, side, f"{label}  {row.name}")

    def run_row(self, stage: Stage, row: Row, side: Side, label: str) -> None:
        before, running = other_work.read(), other_work.descendants_seconds()
        try:
            outcome = stage.measure(row, self.scale)
        except CAUGHT as error:
            stage.clear()
            self.failures[label] = str(error)
            self.console.print(f"[red]{label} failed:[/] {error}", highlight=False)
            return
        self.outcomes[row.name, side].append(outcome)
        times = "  ".join(f"{name} {outcome.attacked[f'{name}_ms']:8.2f}" for name in ("p50", "p99", "max"))
        memory = outcome.memory
        self.console.print(
            f"[dim]{label:<50}[/] {times} ms   {memory.before / 1e6:5.0f} to {memory.peak / 1e6:5.0f} MB {outcome.fate}"
        )
        self.note_other_work(label, other_work.share_since(before, other_work.descendants_seconds() - running))

    def note_other_work(self, label: str, share: float) -> None:
        if share > other_work.CALM_SHARE:
            self.disturbed.append(f"{label}: {share:.0%}")


def kinds_of(ours_only: bool, kafka_only: bool) -> dict[Side, Kind]:
    kinds = {Side.OURS: OURS, Side.KAFKA: KAFKA}
    return {
        side: kind
        for side, kind in kinds.items()
        if not ((ours_only and side is Side.KAFKA) or (kafka_only and side is Side.OURS))
    }


@click.command(help=__doc__.split("\n", 1)[0] if __doc__ else "")
@click.option(
    "--only",
    multiple=True,
    metavar="ROW",
    help="a row (H2-zstd) or several that begin alike (H2); may be given more than once",
)
@click.option("--rounds", default=1, show_default=True, help="rounds of both sides")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="write all figures to this file"
)
@click.option("--ours-only", is_flag=True, help="without Apache Kafka")
@click.option("--kafka-only", is_flag=True, help="without our broker")
@click.option("--scale", default=1.0, show_default=True, help="share of the full time of each row, for a quick look")
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="where the data directories are made",
)
def main(only: tuple[str, ...], rounds: int, json_file: Path | None, scale: float, **options: object) -> None:
    """Parse the options, run, report."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    kinds = kinds_of(bool(options["ours_only"]), bool(options["kafka_only"]))
    try:
        rows = selected(only)
        raise_descriptor_limit()
        if Side.KAFKA in kinds:
            ensure_jars()
    except (KeyError, PeerUnavailable) as reason:
        console.print(f"[red]{reason.args[0]}[/]")
        sys.exit(2)
    parent = options["work_dir"]
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=str(parent) if parent else None) as directory:
        harness = Harness(console, rows, kinds, rounds, scale, Path(directory))
        try:
            harness.run()
        except KeyboardInterrupt:
            harness.failures["all"] = "stopped by the user"
    sys.exit(report(harness, json_file))


def report(harness: Harness, json_file: Path | None) -> int:
    judged = judge(harness.rows, harness.outcomes)
    console = harness.console
    console.print(table_of(judged))
    for line in remarks_of(judged):
        console.print(f"  {line}", markup=False)
    if json_file is not None:
        notes = {
            "compiled": forms(),
            "rounds": harness.rounds,
            "scale": harness.scale,
            "failures": harness.failures,
            "disturbed": harness.disturbed,
        }
        json_file.write_text(as_json(judged, harness.outcomes, notes) + "\n")
    for caveat in caveats(harness.rounds, harness.scale, len(harness.disturbed), all(forms().values())):
        console.print(f"[yellow]{caveat}[/]")
    if missed := goal_missed(judged):
        console.print(f"[yellow]goals missed:[/] {', '.join(missed)}")
    verdicts = [verdict for each in judged for verdict in each.verdicts()]
    if Side.OURS not in harness.kinds:
        return 1 if harness.failures else 0
    return conclude(console, verdicts, harness.failures)


if __name__ == "__main__":
    main()
