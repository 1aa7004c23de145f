"""`make bench-clients`: our producer beside confluent-kafka and kafka-python, in one run, against one broker and with the same
data. Prints a row per piece of work with both figures, their ratio (median over the rounds) and the bound; ends with status 1 when
a bound is missed.

Role: rows, rounds and report; the work itself is in `client_works.py`, each piece in a process of its own. Main thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from bench import neighbours
from bench.brokers import KAFKA, OURS, BrokerProcess
from bench.workloads import create_topic, record_count

WORK_SECONDS = 300


@dataclass(frozen=True, slots=True)
class ClientRow:
    """`limit` is the least ratio of ours to the peer (of the peer to ours when `less` is better), or, without a peer, the most that ours
    may be."""

    name: str
    work: str
    ours: str
    peer: str
    count: int
    limit: float
    unit: str = "records/s"
    pure: bool = False
    less: bool = False


ROWS = (
    ClientRow(
        "callbacks",
        "send() with a callback each, to confluent-kafka",
        "ours-callbacks",
        "confluent-callbacks",
        1_000_000,
        1.0,
    ),
    ClientRow("plain", "send() without looking at results, to confluent-kafka", "ours", "confluent", 1_000_000, 1.0),
    ClientRow("arrow", "send_arrow, to confluent-kafka without callbacks", "ours-arrow", "confluent", 2_000_000, 3.0),
    ClientRow(
        "pure-callbacks",
        "callbacks, plain Python, to kafka-python",
        "ours-callbacks",
        "kafka-python-callbacks",
        100_000,
        1.0,
        pure=True,
    ),
    ClientRow(
        "pure-plain", "no results, plain Python, to kafka-python", "ours", "kafka-python", 100_000, 1.0, pure=True
    ),
    ClientRow(
        "pure-arrow", "send_arrow, plain Python, to kafka-python", "ours-arrow", "kafka-python", 100_000, 1.0, pure=True
    ),
    ClientRow(
        "latency",
        "p99 at 10 000 records/s, linger 0 (peer / ours)",
        "ours-latency",
        "confluent-latency",
        50_000,
        1.0,
        "ms",
        less=True,
    ),
    ClientRow(
        "memory", "memory beyond buffer.memory under back-pressure", "ours-memory", "", 500_000, 50.0, "MB", less=True
    ),
)


def measure(broker: BrokerProcess, work: str, count: int, pure: bool) -> float:
    """One figure; it counts only when every record is there."""
    topic = create_topic(broker.bootstrap, f"bench-{uuid.uuid4().hex[:10]}", 1)
    command = [sys.executable, "-m", "bench.client_works", work, broker.bootstrap, topic, str(count)]
    env = {**os.environ, "BARNABAS_NATIVE": "0" if pure else "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=WORK_SECONDS, check=False)
    if done.returncode:
        raise click.ClickException(f"{work}: {done.stderr.strip()[-2000:]}")
    found = record_count(broker.bootstrap, topic, 1)
    wanted = count + (1 if work.endswith("latency") else 0)
    if found != wanted:
        raise click.ClickException(f"{work}: {found} of {wanted} records are in the topic")
    return float(done.stdout)


def met(row: ClientRow, figure: float, ratio: float | None) -> bool:
    return figure <= row.limit if ratio is None else ratio >= row.limit


def judged(row: ClientRow, pairs: list[tuple[float, float | None]]) -> tuple[float, float | None, float | None]:
    """The medians of both sides, and the median of the rounds' ratios."""
    peers = [peer for _, peer in pairs if peer is not None]
    ratios = [(peer / mine if row.less else mine / peer) for mine, peer in pairs if peer is not None]
    return median(mine for mine, _ in pairs), median(peers) if peers else None, median(ratios) if ratios else None


def report(console: Console, figures: dict[ClientRow, list[tuple[float, float | None]]]) -> bool:
    """Print the table; whether every bound is met."""
    table = Table("work", "unit", "ours", "peer", "ratio", "bound", "")
    verdicts = []
    for row, pairs in figures.items():
        mine, peer, ratio = judged(row, pairs)
        verdicts.append(met(row, mine, ratio))
        bound = f"≤ {row.limit:g} {row.unit}" if ratio is None else f"≥ {row.limit:g}"
        shown = [
            "-" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
            for value in (mine, peer, ratio)
        ]
        table.add_row(row.work, row.unit, *shown, bound, "met" if verdicts[-1] else "[red]missed[/red]")
    console.print(table)
    return all(verdicts)


@click.command()
@click.option("--rounds", default=3, show_default=True, help="How often each pair is measured.")
@click.option("--only", multiple=True, type=click.Choice([row.name for row in ROWS]), help="Only these rows.")
@click.option("--broker", "kind", type=click.Choice(["ours", "kafka"]), default="ours", show_default=True)
@click.option("--scale", default=1.0, show_default=True, help="A share of the records of each row.")
def main(rounds: int, only: tuple[str, ...], kind: str, scale: float) -> None:
    """Our producer beside its peers."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    rows = [row for row in ROWS if not only or row.name in only]
    figures: dict[ClientRow, list[tuple[float, float | None]]] = {row: [] for row in rows}
    before = neighbours.read()
    for turn in range(rounds):
        for row in rows:
            count = max(int(row.count * scale), 1000)
            with (
                BrokerProcess(KAFKA if kind == "kafka" else OURS, {}) as broker,
                console.status(f"{turn + 1}/{rounds} {row.name}"),
            ):
                measure(broker, row.ours, count // 20, row.pure)  # the broker warms up, the same for both
                sides = (row.ours, row.peer) if turn % 2 == 0 else (row.peer, row.ours)
                values = {side: measure(broker, side, count, row.pure) for side in sides if side}
            figures[row].append((values[row.ours], values.get(row.peer)))
    share = neighbours.share_since(before)
    console.print(f"broker: {kind}; other processes took {share:.0%} of the machine")
    sys.exit(0 if report(console, figures) else 1)


if __name__ == "__main__":
    main()
