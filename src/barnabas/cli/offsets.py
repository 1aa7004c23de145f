"""`barnabas offsets`: where partitions begin and end, or the first offset at a time; with the flags of kafka-get-offsets.

Role: flags to ListOffsets calls of the admin client, results to rows. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.client_options import client_command, format_option
from barnabas.cli.contact import complete_topics, open_admin
from barnabas.cli.positions import milliseconds
from barnabas.cli.tables import print_rows
from barnabas.cli.topics import NO_TOPICS, existing
from barnabas.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.cluster import Partition

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
_TIMES = {
    "latest": LATEST,
    "-1": LATEST,
    "earliest": EARLIEST,
    "-2": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "-3": MAX_TIMESTAMP,
}


@click.command("offsets")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="A name or a regular expression; may be repeated.  [default: all]",
)
@click.option("--partitions", metavar="N,N…", help="Only these partitions.  [default: all]")
@click.option(
    "--time",
    "moment",
    metavar="TIME",
    help="earliest, latest, max-timestamp or milliseconds since 1970: the first offset at that time.",
)
@click.option("--exclude-internal-topics", "exclude_internal", is_flag=True, help="Without the broker's own topics.")
@format_option()
@client_command("admin")
def command(client: dict[str, object], moment: str | None, **options: Any) -> None:
    """Print the first offset, the offset behind the last, and their distance, of each partition; with --time, the offset there.

    \b
    barnabas offsets --topic orders
    barnabas offsets --topic orders --time 1700000000000 --format json
    """
    when = None if moment is None else _TIMES.get(moment) or milliseconds(moment)
    numbers = partition_numbers(options["partitions"])
    with open_admin(client) as admin:
        partitions = chosen_partitions(admin, options, numbers)
        rows = ends(admin, partitions) if when is None else at_time(admin, partitions, when)
    print_rows(rows, options["form"], NO_TOPICS)


def partition_numbers(text: str | None) -> set[int] | None:
    if text is None:
        return None
    try:
        return {int(part) for part in text.split(",")}
    except ValueError:
        raise click.UsageError(f"--partitions {text!r} must be numbers with commas") from None


def chosen_partitions(admin: Admin, options: dict[str, Any], numbers: set[int] | None) -> list[Partition]:
    names = (
        existing(admin, options["topics"], options)
        if options["topics"]
        else admin.list_topics(not options["exclude_internal"])
    )
    topics = admin.describe_topics(names) if names else {}
    found = [(name, info.partition) for name in names for info in topics[name].partitions]
    if numbers is None:
        return found
    missing = numbers - {number for _, number in found}
    if missing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {min(missing)}")
    return [(name, number) for name, number in found if number in numbers]


def ends(admin: Admin, partitions: list[Partition]) -> list[dict[str, Any]]:
    first = admin.list_offsets(dict.fromkeys(partitions, EARLIEST)) if partitions else {}
    behind = admin.list_offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
    return [
        {
            "topic": topic,
            "partition": number,
            "earliest": first[topic, number].offset,
            "latest": behind[topic, number].offset,
            "offsets": behind[topic, number].offset - first[topic, number].offset,
        }
        for topic, number in partitions
    ]


def at_time(admin: Admin, partitions: list[Partition], when: int) -> list[dict[str, Any]]:
    """An offset of None: no record is that young."""
    found = admin.list_offsets(dict.fromkeys(partitions, when)) if partitions else {}
    return [
        {
            "topic": topic,
            "partition": number,
            "offset": None if found[topic, number].offset < 0 else found[topic, number].offset,
            "timestamp": None if found[topic, number].timestamp < 0 else found[topic, number].timestamp,
        }
        for topic, number in partitions
    ]
