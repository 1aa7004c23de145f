"""`barnabas settings broker|topic`: the settings, from the same rows that the broker reads.

Role: prints the reference as text or JSON. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import json
import textwrap
from typing import Any

import click

from barnabas.broker import settings, topic_settings
from barnabas.config import ConfigKey, to_text

TABLES = {"broker": settings.BROKER, "topic": topic_settings.TOPIC}


def as_json(row: ConfigKey) -> dict[str, Any]:
    return {
        "name": row.name,
        "type": row.type.name.lower(),
        "default": to_text(row.default),
        "allowed": row.allowed.words if row.allowed else None,
        "dynamic": row.dynamic,
        "doc": row.doc,
    }


def as_text(row: ConfigKey) -> str:
    default = to_text(row.default)
    about = [row.type.name.lower(), f"default {default}" if default else "no default"]
    if row.allowed:
        about.append(row.allowed.words)
    if row.dynamic:
        about.append("changes at run time")
    doc = textwrap.fill(row.doc, 100, initial_indent="    ", subsequent_indent="    ")
    return f"{row.name}\n    {', '.join(about)}\n{doc}"


@click.command("settings")
@click.argument("table", type=click.Choice(sorted(TABLES)))
@click.argument("keys", nargs=-1)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
def command(table: str, keys: tuple[str, ...], form: str) -> None:
    """Print the settings that a broker or a topic can have; with KEYS, only those whose name contains one of them.

    What a running broker or a topic has is printed and changed by `barnabas configs`.
    """
    rows = [row for row in TABLES[table] if not keys or any(key in row.name for key in keys)]
    if form == "json":
        click.echo(json.dumps([as_json(row) for row in rows], indent=2))
    else:
        click.echo("\n\n".join(as_text(row) for row in rows))
