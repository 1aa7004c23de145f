"""`barnabas cat`: kcat's flags for what `produce`, `consume` and `offsets` do.

Role: flags only; the work is theirs. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from barnabas.cli.client_options import client_command
from barnabas.cli.consume import print_records
from barnabas.cli.contact import complete_topics, open_admin
from barnabas.cli.offsets import at_time
from barnabas.cli.positions import FROM_BEGINNING, milliseconds, parse_start
from barnabas.cli.produce import CODECS, header_list
from barnabas.cli.reading import Plan
from barnabas.cli.record_formats import Formatter, kcat_format, kcat_json, unescaped
from barnabas.cli.record_lines import LineParser
from barnabas.cli.tables import print_rows
from barnabas.cli.topics import NO_TOPICS, partition_rows
from barnabas.cli.writing import Destination, largest_line, write_files
from barnabas.errors import ErrorCode, KafkaError

PRODUCE, CONSUME, METADATA, QUERY = "-P", "-C", "-L", "-Q"


def refuse_group(_context: click.Context, _option: click.Parameter, group: str | None) -> None:
    """Before anything else: with -G kcat takes topics where files stand otherwise."""
    if group is not None:
        raise click.UsageError("-G: there are no consumer groups yet; -C reads all partitions of a topic")


@click.command("cat")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "-P",
    "mode",
    flag_value=PRODUCE,
    help="Produce: lines of standard input (-l: of FILES), or each of FILES as one record.",
)
@click.option("-C", "mode", flag_value=CONSUME, help="Consume: records to standard output.")
@click.option("-L", "mode", flag_value=METADATA, help="List brokers, topics and partitions.")
@click.option("-Q", "mode", flag_value=QUERY, help="Query offsets: -t TOPIC:PARTITION:TIME, may be repeated.")
@click.option("-t", "topics", multiple=True, shell_complete=complete_topics, help="The topic.")
@click.option("-p", "partition", type=click.IntRange(-1), help="The partition; -1: any, or all.")
@click.option(
    "-o",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="beginning, end, N, -N, s@TIME; e@TIME stops there.  [default: beginning]",
)
@click.option("-e", "at_end", is_flag=True, help="Stop at the end of the partitions.")
@click.option("-c", "count", type=click.IntRange(0), help="Stop after so many records.")
@click.option("-D", "delimiter", metavar="TEXT", help="What stands between records.  [default: \\n]")
@click.option("-K", "key_delimiter", metavar="TEXT", help="What stands between key and value.")
@click.option(
    "-f",
    "template",
    metavar="FORMAT",
    help="%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time, %K %S sizes.",
)
@click.option("-J", "as_json", is_flag=True, help="Print JSON.")
@click.option("-H", "headers", multiple=True, metavar="KEY=VALUE", help="A header of every record.")
@click.option("-z", "codec", type=CODECS, help="How batches are compressed.")
@click.option("-Z", "null_if_empty", is_flag=True, help="Empty keys and values are null; null is printed as NULL.")
@click.option("-l", "file_lines", is_flag=True, help="Send the lines of FILES, instead of each file as one record.")
@click.option("-G", "group", hidden=True, is_eager=True, expose_value=False, callback=refuse_group)
@click.option("-q", "-u", "quiet", is_flag=True, expose_value=False, help="As it is anyway: quiet, and not held back.")
@client_command("client")
def command(client: dict[str, object], mode: str | None, **options: Any) -> None:
    """Produce, consume, list and query with kcat's flags.

    \b
    echo 'key:value' | barnabas cat -P -t orders -K :
    barnabas cat -C -t orders -o -10 -e -f '%p:%o %k %s\\n'
    barnabas cat -L -J

    Without -P, -C, -L or -Q it consumes when standard input is a terminal, and produces otherwise, as kcat does.
    """
    chosen = mode or (CONSUME if sys.stdin.isatty() else PRODUCE)
    if chosen in (PRODUCE, CONSUME) and len(options["topics"]) != 1:
        raise click.UsageError(f"{chosen} needs one -t TOPIC")
    if options["partition"] == -1:
        options["partition"] = None
    MODES[chosen](client, options)


def produce(client: dict[str, object], options: dict[str, Any]) -> None:
    if options["codec"]:
        client["compression.type"] = options["codec"]
    whole_files = bool(options["files"]) and not options["file_lines"]
    key_delimiter = options["key_delimiter"]
    where = Destination(
        options["topics"][0],
        LineParser(
            key_separator=None if key_delimiter is None else unescaped(key_delimiter),
            null_marker=b"" if options["null_if_empty"] else None,
            lenient=True,
        ),
        options["partition"],
        header_list(options["headers"]),
        line_end=None if whole_files else unescaped(options["delimiter"] or "\n"),
        largest_line=largest_line(client),
    )
    write_files(client, options["files"], where)


def consume(client: dict[str, object], options: dict[str, Any]) -> None:
    stops = [milliseconds(text[2:]) for text in options["offsets"] if text.startswith("e@")]
    starts = [parse_start(text) for text in options["offsets"] if not text.startswith("e@")]
    if len(stops) > 1 or len(starts) > 1:
        raise click.UsageError("-o: one place to begin, and one e@TIME to stop")
    plan = Plan(
        options["topics"],
        options["partition"],
        starts[0] if starts else FROM_BEGINNING,
        stop_at_end=options["at_end"],
        stop_at_time=stops[0] if stops else None,
        most_records=options["count"],
    )
    print_records(client, plan, formatter(options))


def formatter(options: dict[str, Any]) -> Formatter:
    if options["as_json"]:
        return kcat_json
    null = b"NULL" if options["null_if_empty"] else b""
    if options["template"] is not None:
        return kcat_format(options["template"], null)
    end = (options["delimiter"] or "\n").replace("%", "%%")
    key = "" if options["key_delimiter"] is None else "%k" + options["key_delimiter"].replace("%", "%%")
    return kcat_format(f"{key}%s{end}", null)


def metadata(client: dict[str, object], options: dict[str, Any]) -> None:
    with open_admin(client) as admin:
        cluster = admin.describe_cluster()
        names = list(options["topics"]) or admin.list_topics(internal=True)
        topics = admin.describe_topics(names) if names else {}
    controller = cluster.controller.id if cluster.controller else None
    brokers = [
        {"broker": node.id, "address": node.address, "controller": node.id == controller} for node in cluster.nodes
    ]
    partitions = [row for name in names for row in partition_rows(topics[name])]
    if options["as_json"]:
        print_rows([{"cluster": cluster.cluster_id, "brokers": brokers, "partitions": partitions}], "json")
        return
    print_rows(brokers, "table")
    click.echo()
    print_rows(partitions, "table", NO_TOPICS)


def query(client: dict[str, object], options: dict[str, Any]) -> None:
    wanted = [question(text) for text in options["topics"]]
    if not wanted:
        raise click.UsageError("-Q needs -t TOPIC:PARTITION:TIME")
    with open_admin(client) as admin:
        known = admin.describe_topics({topic for topic, _, _ in wanted})
        for topic, number, _ in wanted:
            if number not in {info.partition for info in known[topic].partitions}:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {number}")
        rows = [row for topic, number, time in wanted for row in at_time(admin, [(topic, number)], time)]
    print_rows(rows, "json" if options["as_json"] else "table")


def question(text: str) -> tuple[str, int, int]:
    """`topic:partition:time`; -1 is the end, -2 the beginning."""
    parts = text.rsplit(":", 2)
    try:
        topic, partition, time = parts[0], int(parts[1]), int(parts[2])
    except (IndexError, ValueError):
        raise click.UsageError(f"{text!r} must be TOPIC:PARTITION:TIME") from None
    return topic, partition, time


MODES = {PRODUCE: produce, CONSUME: consume, METADATA: metadata, QUERY: query}
