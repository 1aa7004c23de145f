"""`make bench-log`: the log beside the bare work of the operating system, in one run on one machine. Prints a row per piece of work with
both figures, their ratio (median over the rounds) and the bound; ends with status 1 when a bound is missed, 2 when nothing could be
measured.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console

from barnabas.native import forms
from bench import other_work
from bench.broker import FAILURES, raise_descriptor_limit
from bench.generators import GeneratorFailed, build
from bench.log_rows import GROUPS, chosen
from bench.log_workloads import WORKLOADS, LogSession
from bench.rows import Row, Verdict, judge
from bench.table import FULL_ROUNDS, caveats, conclude, number, table_of


@dataclass(slots=True)
class Harness:
    """Runs the rounds. One thread; owns the console and the figures, by row: ours, bare, one each per round."""

    console: Console
    rows: tuple[Row, ...]
    rounds: int
    scale: float
    directory: Path
    figures: dict[str, list[tuple[float, float | None]]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)
    disturbed: list[str] = field(default_factory=list)

    def run(self) -> None:
        for turn in range(self.rounds):
            for group in [group for group in GROUPS if any(row.group == group for row in self.rows)]:
                self.run_group(group, turn)

    def run_group(self, group: str, turn: int) -> None:
        label = f"round {turn + 1}/{self.rounds}"
        with (
            self.console.status(f"{label}  {group}") as status,
            tempfile.TemporaryDirectory(prefix=f"{group}-", dir=self.directory) as directory,
        ):
            os.sync()  # what others have left to write must not slow this down
            before = other_work.read()
            wanted = frozenset(row.name for row in self.rows)
            session = LogSession(
                Path(directory),
                wanted,
                self.scale,
                record=lambda name, ours, bare: self.record(label, name, ours, bare),
                step=lambda text: status.update(f"{label}  {text}"),
            )
            try:
                WORKLOADS[group](session)
            except FAILURES as error:
                self.failures[f"{group}, {label}"] = str(error)
                self.console.print(f"[red]{label}  {group} failed:[/] {error}")
            self.note_other_work(f"{label}  {group}", other_work.share_since(before))

    def record(self, label: str, name: str, ours: float, bare: float | None) -> None:
        self.figures[name].append((ours, bare))
        row = next(row for row in self.rows if row.name == name)
        beside = f"   bare {number(bare, row.unit)}" if bare is not None else ""
        self.console.print(f"[dim]{label}[/]  {name:<15} {number(ours, row.unit):>10} {row.unit}{beside}")

    def note_other_work(self, label: str, share: float) -> None:
        if share > other_work.CALM_SHARE:
            self.disturbed.append(f"{label}: {share:.0%}")
            self.console.print(f"[yellow]{label}: other processes took {share:.0%} of this machine meanwhile[/]")

    def verdicts(self) -> list[Verdict]:
        found = []
        for row in self.rows:
            figures = self.figures.get(row.name, [])
            if figures:
                bare = [second for _, second in figures if second is not None]
                found.append(judge(row, [first for first, _ in figures], bare))
        return found


def as_json(harness: Harness, verdicts: list[Verdict]) -> str:
    summary = [
        {
            "name": verdict.row.name,
            "ours": verdict.ours,
            "bare": verdict.peer,
            "ratio": verdict.ratio,
            "bound": verdict.row.bound.value,
            "limit": verdict.row.limit,
            "met": verdict.met,
        }
        for verdict in verdicts
    ]
    document = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "compiled": forms(),
        "rounds": harness.rounds,
        "scale": harness.scale,
        "rows": summary,
        "figures": harness.figures,
        "failures": harness.failures,
        "disturbed": harness.disturbed,
    }
    return json.dumps(document, indent=2)


def report(harness: Harness, json_file: Path | None) -> int:
    verdicts = harness.verdicts()
    harness.console.print(table_of("The log beside the bare work, medians of all rounds", ("log", "bare"), verdicts))
    if json_file is not None:
        json_file.write_text(as_json(harness, verdicts) + "\n")
    compiled = all(forms().values())
    for caveat in caveats(harness.rounds, harness.scale, len(harness.disturbed), compiled):
        harness.console.print(f"[yellow]{caveat}[/]")
    return conclude(harness.console, verdicts, harness.failures)


@click.command(help=__doc__)
@click.option("--only", multiple=True, metavar="NAME", help="a row or a group of rows; may be given more than once")
@click.option("--rounds", default=FULL_ROUNDS, show_default=True, help="rounds")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="write all figures to this file"
)
@click.option("--scale", default=1.0, show_default=True, help="share of the full work, for a quick look")
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="where the data directories are made: the disk that is measured",
)
def main(only: tuple[str, ...], rounds: int, json_file: Path | None, scale: float, work_dir: Path | None) -> None:
    """Parse the options, run, report."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    signal.signal(
        signal.SIGTERM, lambda code, frame: sys.exit(128 + code)
    )  # so that the blocks below stop their brokers
    try:
        rows = chosen(only)
        raise_descriptor_limit()
        build("fetch")
        build("sendfile")
    except (KeyError, GeneratorFailed) as reason:
        console.print(f"[red]{reason.args[0]}[/]")
        sys.exit(2)
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-log-", dir=work_dir) as directory:
        harness = Harness(console, rows, rounds, scale, Path(directory))
        try:
            harness.run()
        except KeyboardInterrupt:
            console.print("stopped; what was measured so far:")
            harness.failures["all"] = "stopped by the user"
    sys.exit(report(harness, json_file))


if __name__ == "__main__":
    main()
