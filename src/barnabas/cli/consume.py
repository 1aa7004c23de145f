"""`barnabas consume`: the records of topics on standard output, with the flags of kafka-console-consumer.

Role: flags to a `Plan` and a formatter; the work is in reading.py. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from barnabas.cli.client_options import client_command, format_option, key_value
from barnabas.cli.contact import complete_topics
from barnabas.cli.positions import BEGINNING, END, Start, parse_start
from barnabas.cli.reading import Plan, find_partitions, read
from barnabas.cli.record_formats import PROPERTIES, Formatter, console_format, json_line, kcat_format
from barnabas.cli.record_lines import checked_properties

ISOLATION = click.Choice(["read_uncommitted", "read_committed"])


@click.command("consume")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    required=True,
    shell_complete=complete_topics,
    help="What to read; may be repeated.",
)
@click.option("--from-beginning", is_flag=True, help="Begin at the oldest record.  [default: behind the newest]")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this partition.")
@click.option(
    "-o", "--offset", metavar="OFFSET", help="beginning, end, N, -N (the last N of each partition) or s@MILLISECONDS."
)
@click.option("-n", "-c", "--max-messages", type=click.IntRange(0), help="Stop after so many records.")
@click.option("--timeout-ms", type=click.IntRange(0), help="Stop when no record came for so long.")
@click.option("-e", "--exit-on-end", is_flag=True, help="Stop at the end that the partitions have now.")
@click.option(
    "--property",
    "--formatter-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"How records are printed: {', '.join(PROPERTIES)}.",
)
@click.option(
    "-f",
    "--output-format",
    "template",
    metavar="FORMAT",
    help="How records are printed, in kcat's words: '%t %p %o %k %s\\n'.",
)
@click.option("--isolation-level", type=ISOLATION, help="read_committed: only records of committed transactions.")
@click.option("--group", hidden=True)
@format_option("text")
@client_command("consumer")
def command(client: dict[str, object], topics: tuple[str, ...], **options: Any) -> None:
    """Print the records of topics as they come, until Ctrl-C or until one of the limits.

    \b
    barnabas consume --topic orders --from-beginning --max-messages 10
    barnabas consume -t orders -o -5 -e --property print.key=true --format text
    barnabas consume -t orders --from-beginning -e --format json | jq .value
    """
    if options["group"]:
        raise click.UsageError("--group: there are no consumer groups yet; without it all partitions are read")
    plan = Plan(
        topics,
        options["partition"],
        _start(options),
        stop_at_end=options["exit_on_end"],
        most_records=options["max_messages"],
        idle_seconds=None if options["timeout_ms"] is None else options["timeout_ms"] / 1000,
    )
    if options["isolation_level"]:
        client["isolation.level"] = options["isolation_level"]
    count = print_records(client, plan, _formatter(options))
    click.echo(f"Processed a total of {count} messages", err=True)


def _start(options: dict[str, Any]) -> Start:
    if options["from_beginning"] and options["offset"] is not None:
        raise click.UsageError("--from-beginning and --offset exclude each other")
    if options["offset"] is not None:
        return parse_start(options["offset"])
    return Start(BEGINNING if options["from_beginning"] else END)


def _formatter(options: dict[str, Any]) -> Formatter:
    given = dict(key_value(text) for text in options["properties"])
    chosen = [
        name
        for name, used in (
            ("--format json", options["form"] == "json"),
            ("-f", options["template"] is not None),
            ("--property", bool(given)),
        )
        if used
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
    if options["form"] == "json":
        return json_line
    if options["template"] is not None:
        return kcat_format(options["template"])
    return console_format(checked_properties(given, PROPERTIES))


def print_records(client: dict[str, object], plan: Plan, format_record: Formatter) -> int:
    """Write the records of the plan to standard output, flushed after each poll; how many they were."""
    from barnabas.consumer import Consumer

    out = sys.stdout.buffer
    count = 0
    partitions = find_partitions(client, plan)
    # A place that is gone is no reason to skip what is left.
    with Consumer({"auto.offset.reset": "earliest"} | client) as consumer:
        for records in read(consumer, plan, partitions):
            out.write(b"".join([format_record(record) for record in records]))
            out.flush()
            count += len(records)
    return count
