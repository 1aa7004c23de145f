"""`barnabas produce`: lines of files or of standard input to a topic, with the flags of kafka-console-producer.

Role: flags to a `Destination`; the work is in writing.py. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.client_options import client_command, key_value
from barnabas.cli.contact import complete_topics
from barnabas.cli.record_lines import PROPERTIES, Headers, Parser, checked_properties, parse_json, parser_for

CODECS = click.Choice(["none", "gzip", "snappy", "lz4", "zstd"])


@click.command("produce")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-t", "--topic", required=True, shell_complete=complete_topics, help="Where the records go.")
@click.option(
    "--property",
    "--reader-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"How lines are read: {', '.join(PROPERTIES)}.",
)
@click.option("-K", "key_delimiter", metavar="DELIMITER", help="A key stands before this in a line (kcat).")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="KEY=VALUE", help="A header of every record; may be repeated."
)
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition.  [default: by key, or any]")
@click.option("-z", "--compression-codec", "codec", type=CODECS, help="How batches are compressed.")
@click.option("-q", "--quiet", is_flag=True, help="Do not say at the end how many records were sent.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: lines as `consume --format json` prints them.",
)
@client_command("producer")
def command(client: dict[str, object], files: tuple[str, ...], topic: str, form: str, **options: Any) -> None:
    """Send each line of FILES, or of standard input, as a record.

    \b
    barnabas produce --topic orders orders.txt
    echo 'key:value' | barnabas produce -t orders --property parse.key=true --property key.separator=:

    Memory is bounded by buffer.memory, however large the files are. Exit code 0: every record was acknowledged.
    """
    from barnabas.cli.writing import Destination, largest_line, write_files

    if options["codec"]:
        client["compression.type"] = options["codec"]
    where = Destination(
        topic,
        _parser(form, options),
        options["partition"],
        header_list(options["headers"]),
        largest_line=largest_line(client),
    )
    count = write_files(client, files, where)
    if not options["quiet"]:
        click.echo(f"{count} {'record' if count == 1 else 'records'} sent to {topic}", err=True)


def _parser(form: str, options: dict[str, Any]) -> Parser:
    given = dict(key_value(text) for text in options["properties"])
    if form == "json":
        if given or options["key_delimiter"] is not None:
            raise click.UsageError("--format json needs neither --property nor -K: a line has everything")
        return parse_json
    if options["key_delimiter"] is not None:
        given = {"parse.key": "true", "key.separator": options["key_delimiter"], "ignore.error": "true", **given}
    return parser_for(checked_properties(given, PROPERTIES))


def header_list(texts: tuple[str, ...]) -> Headers | None:
    """`-H name=value`, several times."""
    return [(name, value.encode()) for name, value in map(key_value, texts)] or None
