"""The table that every benchmark prints, and the exit status that follows from it.

Role: verdicts (rows.py) to text; shared by `bench.broker`, `bench.log` and `bench.clients`. Thread: the harness's. Lock: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from bench.rows import Bound, Verdict

__all__ = ["FULL_ROUNDS", "caveats", "conclude", "number", "table_of"]

FULL_ROUNDS = 3
"""Rounds of a comparison that counts."""
_DECIMALS = ("s", "ms", "×")


def number(value: float | None, unit: str) -> str:
    """A figure as the table shows it."""
    if value is None:
        return "-"
    if unit in _DECIMALS:
        return f"{value:.2f}"
    return f"{value:,.0f}".replace(",", " ")


def table_of(title: str, sides: tuple[str, str], verdicts: Iterable[Verdict]) -> Table:
    """A row per piece of work; `sides` are the names of ours and of what stands beside it."""
    table = Table(title=title, title_justify="left")
    table.add_column("work")
    for name in ("unit", *sides, "ratio", "bound", ""):
        table.add_column(name, justify="right")
    for verdict in verdicts:
        row = verdict.row
        table.add_row(
            f"{row.work} [dim]({row.name})[/]",
            row.unit,
            number(verdict.ours, row.unit),
            number(verdict.peer, row.unit),
            "-" if verdict.ratio is None else f"{verdict.ratio:.2f}",
            _bound(verdict),
            "" if row.bound is Bound.NONE else "[green]met[/]" if verdict.met else "[red]MISSED[/]",
        )
    return table


def _bound(verdict: Verdict) -> str:
    row = verdict.row
    if row.bound is Bound.NONE:
        return "-"
    return f"{row.bound.value} {row.limit:g}" + (f" {row.unit}" if row.bound is Bound.OURS_AT_MOST else "")


def caveats(rounds: int, scale: float, disturbed: int, compiled: bool = True) -> list[str]:
    """Why a run is less than the full comparison, if it is; `disturbed`: groups of rows that ran beside other work."""
    found = []
    if rounds < FULL_ROUNDS or scale < 1:
        found.append(f"a quick look: {rounds} rounds at {scale:g} of the work; the full comparison has {FULL_ROUNDS}")
    if not compiled:
        found.append("request path or record kernel run as plain Python, not compiled; `make native`")
    if disturbed:
        found.append(f"{disturbed} groups were measured beside other work on this machine; their figures say little")
    return found


def conclude(console: Console, verdicts: list[Verdict], failures: Mapping[str, str]) -> int:
    """Say what failed and which bounds were missed; the exit status: 0, 1, or 2 when nothing could be measured."""
    for what, why in failures.items():
        console.print(f"[red]failed: {what}:[/] {(why.splitlines() or [''])[0]}")
    if not verdicts:
        return 2
    missed = [verdict.row.name for verdict in verdicts if not verdict.met]
    if missed:
        console.print(f"[red]bounds missed:[/] {', '.join(missed)}")
    return 1 if missed or failures else 0
