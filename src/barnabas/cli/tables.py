"""Rows for people and for programs: a table, or JSON.

Role: formatting only; every row is a dict with the same keys. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

WIDTH_OF_A_PIPE = 1000  # nothing is cut or wrapped for a program that reads it

Row = Mapping[str, Any]


def print_rows(rows: Sequence[Row], form: str, nothing: str = "") -> None:
    """All rows at once; no rows: an empty list, or the sentence `nothing` on standard error."""
    if form == "json":
        click.echo(json.dumps([dict(row) for row in rows], indent=2))
    elif rows:
        _print_table(rows)
    elif nothing:
        click.echo(nothing, err=True)


def _print_table(rows: Sequence[Row]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from barnabas.cli.consoles import open_console

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="right" if _is_number(value) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell_text(value)) for value in row.values()))
    open_console(WIDTH_OF_A_PIPE).print(table)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items())
    return str(value)
