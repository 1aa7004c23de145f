"""How the results of `barnabas log` look: tables and lines for people, dicts for JSON.

Role: formatting only. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barnabas.broker.log.inspection.findings import Finding, PartitionReport, Severity
from barnabas.broker.log.inspection.repair import Action, RepairReport
from barnabas.broker.log.inspection.verify import TargetReport
from barnabas.cli.consoles import open_console

MOST_PARTITIONS = 40
MOST_FINDINGS = 20
MOST_CHARACTERS = 100
WIDTH_OF_A_PIPE = 160
_ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


def console(stderr: bool = False) -> Console:
    return open_console(WIDTH_OF_A_PIPE, stderr)


def number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def size_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(timestamp: int) -> str:
    if timestamp < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp)  # beyond the year 9999
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp % 1000:03d}"


# Verify.


def verify_json(report: TargetReport) -> dict[str, Any]:
    owner = report.owner
    return {
        "path": report.path,
        "clean": report.clean,
        "broker_running": owner.held if owner.known else None,
        "findings": [finding.as_dict() for finding in report.directory.findings],
        "partitions": [partition.as_dict() for partition in report.partitions],
    }


def print_verify(report: TargetReport, everything: bool) -> None:
    out = console()
    if report.owner.held:
        out.print(
            f"[yellow]A broker (process {report.owner.pid}) uses this directory: read beside it, up to what it had written.[/]"
        )
    elif not report.owner.known:
        out.print("[yellow]This system does not say whether a broker uses the directory.[/]")
    _print_partitions(out, report.partitions, everything)
    for each in (report.directory, *report.partitions):
        _print_findings(out, each, everything)
    out.print(_verdict(report.partitions, report.directory))
    if not report.clean:
        out.print(f"[dim]barnabas log repair --dry-run {escape(report.path)}[/]   shows what can be mended")


def _print_partitions(out: Console, partitions: list[PartitionReport], everything: bool) -> None:
    shown = partitions
    if len(partitions) > MOST_PARTITIONS and not everything:
        shown = [report for report in partitions if report.findings]
    if shown:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("partition", no_wrap=True)
        for name in ("segments", "size", "batches", "records", "from", "to"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for report in shown:
            numbers = (report.batches, report.records, report.start, report.end)
            table.add_row(
                escape(report.partition),
                number(report.segments),
                size_text(report.bytes),
                *map(number, numbers),
                _state(report),
            )
        out.print(table)
    if len(shown) < len(partitions):
        out.print(f"{len(partitions) - len(shown)} more partitions are clean.\n")


def _state(report: PartitionReport) -> str:
    if report.damage:
        return f"[bold red]{report.damage} damaged[/]"
    return f"[green]clean[/], {report.notes} notes" if report.notes else "[green]clean[/]"


def _print_findings(out: Console, report: PartitionReport, everything: bool) -> None:
    if not report.findings:
        return
    out.print(f"[bold]{escape(report.partition or report.directory)}[/]")
    shown = report.findings if everything else report.findings[:MOST_FINDINGS]
    for finding in shown:
        colour = "red" if finding.severity is Severity.DAMAGE else "yellow"
        out.print(f"  [{colour}]{finding.code.value:<10}[/] {escape(finding.file)}{_where(finding)}")
        out.print(f"             {escape(finding.text)}", style="dim" if finding.severity is Severity.NOTE else None)
    left = report.damage + report.notes - len(shown)
    if left:
        out.print(f"  … and {number(left)} more (barnabas log verify --all)")
    out.print()


def _where(finding: Finding) -> str:
    parts = []
    if finding.offset >= 0:
        parts.append(f"offset {finding.offset}")
    if finding.position >= 0:
        parts.append(f"position {finding.position}")
    if finding.size:
        parts.append(f"{number(finding.size)} bytes")
    return "  [dim]" + ", ".join(parts) + "[/]" if parts else ""


def _verdict(partitions: list[PartitionReport], directory: PartitionReport) -> str:
    size = size_text(sum(report.bytes for report in partitions))
    records = number(sum(report.records for report in partitions))
    what = f"{_count(len(partitions), 'partition')}, {size}, {_count_text(records, 'record')}"
    bad = sum(not report.clean for report in partitions)
    if bad or not directory.clean:
        places = [_count(bad, "partition")] if bad else []
        places += [] if directory.clean else ["the log directory"]
        return f"[bold red]Damage in {' and '.join(places)}.[/] Looked at {what}."
    return f"[bold green]No damage.[/] Looked at {what}."


def _count(count: int, noun: str) -> str:
    return _count_text(number(count), noun)


def _count_text(count: str, noun: str) -> str:
    return f"{count} {noun}" if count == "1" else f"{count} {noun}s"


# Repair.


def repair_json(report: RepairReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "dry_run": report.dry_run,
        "clean": report.clean,
        "actions": [action.as_dict() for action in report.actions],
        "findings": [finding.as_dict() for finding in report.directory.findings],
        "partitions": [partition.as_dict() for partition in report.partitions],
    }


def print_repair(report: RepairReport) -> None:
    out = console()
    if report.dry_run and report.actions:
        out.print("[yellow]Nothing was written; this would be done:[/]")
    # After a repair what is left is named as a verification does; a dry run knows of that only what it would leave.
    actions_shown = [action for action in report.actions if action.done or report.dry_run]
    for partition, actions in _by_partition(actions_shown).items():
        out.print(f"[bold]{escape(partition) or 'log directory'}[/]")
        for action in actions:
            colour = "green" if action.done else "red"
            out.print(f"  [{colour}]{action.what:<12}[/] {escape(action.file)}")
            out.print(f"               [dim]{escape(action.text)}[/]")
        out.print()
    out.print(_repair_verdict(report))
    left = _left_over(report)
    if report.dry_run and any(each.damage for each in left):
        out.print("[bold red]Nothing can be done about this damage:[/]")
    for each in left:
        _print_findings(out, each, everything=False)
    if any(not action.done for action in report.actions):
        out.print(
            "[dim]--drop-damaged[/] takes the damaged bytes out, into .damaged files, and notes missing offsets as lost; "
            "later batches keep their offsets."
        )


def _left_over(report: RepairReport) -> list[PartitionReport]:
    """The damage that is there after a repair; of a dry run, what nothing would be done about."""
    planned = {(action.partition, action.file) for action in report.actions} if report.dry_run else set()
    left = []
    for each in (report.directory, *report.partitions):
        findings = [
            finding
            for finding in each.findings
            if finding.severity is Severity.DAMAGE and (finding.partition, finding.file) not in planned
        ]
        left.append(replace(each, findings=findings, damage=len(findings), notes=0))
    return left


def _by_partition(actions: list[Action]) -> dict[str, list[Action]]:
    grouped: dict[str, list[Action]] = {}
    for action in actions:
        grouped.setdefault(action.partition, []).append(action)
    return grouped


def _repair_verdict(report: RepairReport) -> str:
    done = sum(action.done for action in report.actions)
    if not report.actions and report.clean:
        return "[bold green]Nothing to repair.[/]"
    if report.dry_run:
        return f"{_count(done, 'thing')} to do."
    if report.clean:
        return f"[bold green]Repaired.[/] {_count(done, 'thing')} done; a verification finds no damage now."
    return f"[bold red]Damage is left.[/] {_count(done, 'thing')} done."


# Dump: lines that are printed as they come, because there may be millions.


class Column(NamedTuple):
    title: str
    width: int
    text: Callable[[dict[str, Any]], str]
    left: bool = False


def _field(title: str, width: int, name: str) -> Column:
    return Column(title, width, lambda row: str(row[name]))


def _left(title: str, width: int, name: str) -> Column:
    return Column(title, width, lambda row: str(row[name]), left=True)


def _time(title: str, name: str) -> Column:
    return Column(title, 23, lambda row: time_text(row[name]), left=True)


def _flags(row: dict[str, Any]) -> str:
    names = [name for name in ("transactional", "control") if row[name]]
    if row["timestamp_type"] == "LogAppendTime":
        names.append("append-time")
    return " ".join(names)


def _producer(row: dict[str, Any]) -> str:
    if row["producer_id"] < 0:
        return "-"
    return f"{row['producer_id']}/{row['producer_epoch']} {row['base_sequence']}–{row['last_sequence']}"


COLUMNS: dict[str, tuple[Column, ...]] = {
    "batch": (
        _field("position", 10, "position"),
        _field("size", 8, "size"),
        Column("offsets", 17, lambda row: f"{row['base_offset']}–{row['last_offset']}", left=True),
        _field("records", 7, "records"),
        _left("codec", 6, "codec"),
        _time("largest time (UTC)", "max_timestamp"),
        _field("epoch", 5, "leader_epoch"),
        Column("producer, sequence", 22, _producer, left=True),
        Column("flags", 8, _flags, left=True),
    ),
    "index": (_field("offset", 16, "offset"), _field("position", 12, "position")),
    "timeindex": (_time("time (UTC)", "timestamp"), _field("offset", 16, "offset")),
    "txnindex": (
        _field("producer", 12, "producer_id"),
        _field("first", 14, "first_offset"),
        _field("last", 14, "last_offset"),
        _field("last stable", 14, "last_stable_offset"),
    ),
    "producer": (
        _field("producer", 12, "producer_id"),
        _field("epoch", 6, "producer_epoch"),
        _field("sequence", 10, "last_sequence"),
        _field("offset", 14, "last_offset"),
        _time("time (UTC)", "last_timestamp"),
        _field("transaction", 12, "txn_first_offset"),
    ),
    "epoch": (_field("leader epoch", 12, "leader_epoch"), _field("from offset", 14, "start_offset")),
    "checkpoint": (_left("partition", 40, "partition"), _field("offset", 16, "offset")),
    "metadata": (_left("topic id", 24, "topic_id"),),
}
_KIND_TITLES = {"epoch": "leader-epoch-checkpoint", "metadata": "partition.metadata"}


def print_rows(rows: Iterable[dict[str, Any]], full: bool) -> None:
    """Print rows as they come, with a heading whenever another file or kind begins."""
    heading = ""
    for row in rows:
        kind = row["kind"]
        if kind == "record":
            click.echo(_record_line(row, full))
            continue
        if kind == "damage":
            click.echo(_damage_line(row))
            continue
        title = _title(row)
        if title != heading:
            click.echo(("\n" if heading else "") + click.style(title, bold=True))
            click.echo(click.style("  " + "  ".join(_cell(c, c.title) for c in COLUMNS[kind]).rstrip(), dim=True))
            heading = title
        click.echo(("  " + "  ".join(_cell(column, column.text(row)) for column in COLUMNS[kind])).rstrip())


def _title(row: dict[str, Any]) -> str:
    file = str(row.get("file") or _KIND_TITLES[row["kind"]])
    return file if row["kind"] == "checkpoint" else f"{row['partition']}/{file}"


def _cell(column: Column, text: str) -> str:
    return text.ljust(column.width) if column.left else text.rjust(column.width)


def _record_line(row: dict[str, Any], full: bool) -> str:
    key, value = _shown(row["key"], full), _shown(row["value"], full)
    headers = "  ".join(f"{_plain(name)}={_shown(text, full)}" for name, text in row["headers"])
    moment = click.style(time_text(row["timestamp"]), dim=True)
    line = f"    {row['offset']:>12}  {moment}  {click.style(key, fg='cyan')}  {value}"
    return f"{line}  {click.style(headers, dim=True)}" if headers else line


def _damage_line(row: dict[str, Any]) -> str:
    places = [f"{name} {row[name]}" for name in ("offset", "position", "size") if name in row]
    place = f"{row.get('file', '')} {', '.join(places)}".strip()
    return click.style(f"  DAMAGED  {row['code']}  {place}: {row['text']}", fg="red")


def _shown(value: Any, full: bool) -> str:
    if value is None:
        return "null"
    text = f"0x{value['hex']}" if isinstance(value, dict) else f"'{value.translate(_ESCAPES)}'"
    return text if full or len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"


def _plain(value: Any) -> str:
    return f"0x{value['hex']}" if isinstance(value, dict) else str(value)


# Keys and values.


def text_or_hex(data: bytes | None) -> str | dict[str, str] | None:
    """Text where the bytes are printable text; JSON readers can tell the two apart."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    return text if text.translate(_ESCAPES).isprintable() else {"hex": data.hex()}


BYTES: dict[str, Callable[[bytes | None], Any]] = {
    "auto": text_or_hex,
    "hex": lambda data: None if data is None else data.hex(),
    "base64": lambda data: None if data is None else base64.b64encode(data).decode(),
}
