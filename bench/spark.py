"""`make bench-spark`: our Spark connector beside Spark's own, in one run, on one broker with the same data. Prints a row per piece of work
with both figures, their ratio (median over the rounds) and the bound; ends with status 1 when a bound is missed, 2 when the peer is not
to be had.

Role: rows, rounds and report. The work itself is in `spark_works.py`, each side in a process and a JVM of its own (`spark_sides.py`), all
of them warm before anything counts. Main thread.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from bench import other_work
from bench.brokers import KAFKA, OURS, BrokerProcess
from bench.peers.jars import PeerUnavailable
from bench.peers.spark_kafka import SPARK_VERSION, ensure_spark_peer
from bench.spark_sides import Side, WorkFailed, our_side, peer_side
from bench.spark_topics import delete_topic, fill, fresh_topic, held

Figures = dict[str, dict[str, list[float]]]
"""Row, side, one figure per round."""
STREAM_RECORDS = 6_000
STREAM_PER_TRIGGER = 30
CEILING = "dropped"
"""Not a side: the same rows in ours' session, into a sink that drops them. No sink in Python can be faster."""


@dataclass(frozen=True, slots=True)
class Work:
    """`limit` is the least ratio of ours to the peer's rate, or, where `less` is better, the largest ratio of ours to the peer's time."""

    name: str
    text: str
    kind: str
    records: int
    size: int
    partitions: int
    limit: float
    less: bool = False

    @property
    def unit(self) -> str:
        return "ms" if self.less else "records/s"


WORKS = (
    Work("read-100", "batch read, 100 B × 4 M, 6 partitions", "read", 4_000_000, 100, 6, 3.0),
    Work("read-1000", "batch read, 1000 B × 1 M, 1 partition", "read", 1_000_000, 1000, 1, 2.0),
    Work("write-100", "batch write, 100 B × 2 M, 6 partitions", "write", 2_000_000, 100, 6, 3.0),
    Work("stream", "micro-batch, trigger to trigger, few records", "stream", STREAM_RECORDS, 100, 6, 1.5, less=True),
)


@dataclass(slots=True)
class Bench:
    """One run on one broker."""

    console: Console
    bootstrap: str
    sides: list[Side]
    rounds: int
    scale: float
    figures: Figures = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def run(self, work: Work) -> None:
        """First every side once, which does not count; then in turn, the order reversed in every other round."""
        records = max(int(work.records * self.scale), 1000) if work.kind != "stream" else work.records
        with self.console.status(f"{work.name}: data and first runs"):
            measure = getattr(self, f"_{work.kind}")(work, records)
            for side in self.sides:
                measure(side)
            self._ceiling(work, records)
            self.figures[work.name].clear()
        for turn in range(self.rounds):
            self._ceiling(work, records)
            for side in self.sides if turn % 2 == 0 else reversed(self.sides):
                with self.console.status(f"{work.name}: round {turn + 1} of {self.rounds}, {side.name}"):
                    figure = measure(side)
                self.figures[work.name][side.name].append(figure)
                self.console.print(
                    f"[dim]{turn + 1}/{self.rounds}  {side.name:<12}[/]  {work.name:<10} {shown(figure):>12} {work.unit}"
                )

    def _ceiling(self, work: Work, records: int) -> None:
        if work.kind == "write":
            self.figures[work.name][CEILING].append(records / self.sides[1].ask("drop", rows=records)["seconds"])

    def _read(self, work: Work, records: int) -> Callable[[Side], float]:
        topic = fresh_topic(self.bootstrap, work.partitions)
        wanted = fill(self.bootstrap, topic, records, work.size)
        for side in self.sides:
            seen = side.ask("count", bootstrap=self.bootstrap, topic=topic)["seen"]
            if seen != wanted:
                raise WorkFailed(f"{side.name} sees (rows, bytes, sum of offsets) {seen} where {wanted} was written")
        return lambda side: records / side.ask("read", bootstrap=self.bootstrap, topic=topic)["seconds"]

    def _write(self, work: Work, records: int) -> Callable[[Side], float]:
        for side in self.sides:
            side.ask("prepare_write", rows=records, size=work.size)

        def measure(side: Side) -> float:
            topic = fresh_topic(self.bootstrap, work.partitions)
            seconds = side.ask("write", bootstrap=self.bootstrap, topic=topic, rows=records)["seconds"]
            if (found := held(self.bootstrap, topic)) != records:
                raise WorkFailed(f"{side.name}: {found} of {records} records are in the topic")
            delete_topic(self.bootstrap, topic)  # else every write wants memory that the machine has not used yet
            return float(records / seconds)

        return measure

    def _stream(self, work: Work, records: int) -> Callable[[Side], float]:
        topic = fresh_topic(self.bootstrap, work.partitions)
        fill(self.bootstrap, topic, records, work.size)
        batches = max(int(50 * self.scale), 10)
        request = {"bootstrap": self.bootstrap, "topic": topic, "per_trigger": STREAM_PER_TRIGGER, "batches": batches}
        return lambda side: 1000 * side.ask("stream", **request)["seconds"]


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def ratios(figures: Figures, work: Work, ours: str, peer: str) -> list[float]:
    """Ours to the peer, round by round; none when a side failed."""
    mine, theirs = figures[work.name][ours], figures[work.name][peer]
    return [one / other for one, other in zip(mine, theirs, strict=True)] if len(mine) == len(theirs) else []


def met(work: Work, found: list[float]) -> bool:
    if not found:
        return False
    return median(found) <= work.limit if work.less else median(found) >= work.limit


def middle(values: list[float], form: Callable[[float], str]) -> str:
    return form(median(values)) if values else "-"


def report(console: Console, bench: Bench, works: list[Work]) -> bool:
    """Print the table; whether every bound is met. The bound is on the side that runs on the peer's PySpark."""
    peer, ours, *others = [side.name for side in bench.sides]
    table = Table("work", "unit", peer, ours, *others, "ratio", *[f"ratio, {name}" for name in others], "bound", "")
    verdicts = []
    for work in works:
        rates = [middle(bench.figures[work.name][name], shown) for name in (peer, ours, *others)]
        found = [ratios(bench.figures, work, name, peer) for name in (ours, *others)]
        verdicts.append(met(work, found[0]))
        quotients = [middle(values, lambda value: f"{value:.2f}") for values in found]
        bound = f"{'≤' if work.less else '≥'} {work.limit:g}"
        verdict = "[green]met[/]" if verdicts[-1] else "[red]MISSED[/]"
        table.add_row(work.text, work.unit, *rates, *quotients, bound, verdict)
    console.print(table)
    for work in works:
        if most := ratios(bench.figures, work, CEILING, peer):
            console.print(
                f"{work.name}: a sink in Python that drops its rows reaches {median(most):.2f} times the peer's rate"
            )
    return all(verdicts)


@click.command()
@click.option("--rounds", default=3, show_default=True, help="How often each side is measured.")
@click.option("--only", multiple=True, type=click.Choice([work.name for work in WORKS]), help="Only these rows.")
@click.option("--broker", "kind", type=click.Choice(["ours", "kafka"]), default="ours", show_default=True)
@click.option("--scale", default=1.0, show_default=True, help="A share of the records of each row.")
@click.option("--same-spark-only", is_flag=True, help=f"Leave out our side on a PySpark newer than {SPARK_VERSION}.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures here.")
def main(
    rounds: int, only: tuple[str, ...], kind: str, scale: float, same_spark_only: bool, json_file: Path | None
) -> None:
    """Our Spark connector beside Spark's own."""
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    try:
        peer = ensure_spark_peer(lambda step: console.print(f"fetching {step}"))
    except PeerUnavailable as missing:
        console.print(f"[red]Spark's Kafka connector is not here:[/] {missing}")
        sys.exit(2)
    works = [work for work in WORKS if not only or work.name in only]
    before = other_work.read()
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(KAFKA if kind == "kafka" else OURS, {}))
        sides = [peer_side(peer), our_side(peer)] + ([] if same_spark_only else [our_side(None)])
        for side in sides:
            with console.status(f"starting {side.name}"):
                stack.enter_context(side)
        bench = Bench(console, broker.bootstrap, sides, rounds, scale)
        for work in works:
            try:
                bench.run(work)
            except WorkFailed as failure:
                console.print(f"[red]{work.name} failed:[/] {failure}")
        # While they run: nobody waits for the JVM of a session that has ended.
        share = other_work.share_since(before, other_work.descendants_seconds())
    console.print(f"broker: {kind}; other processes took {share:.0%} of the machine")
    if json_file is not None:
        json_file.write_text(json.dumps(bench.figures, indent=2) + "\n")
    sys.exit(0 if report(console, bench, works) else 1)


if __name__ == "__main__":
    main()
