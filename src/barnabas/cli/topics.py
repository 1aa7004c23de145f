"""`barnabas topics`: list, describe, create, alter and delete topics, with the flags of kafka-topics.

Role: flags to calls of the admin client, results to rows. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.client_options import client_command, format_option, key_value
from barnabas.cli.contact import complete_topics, open_admin
from barnabas.cli.tables import print_rows
from barnabas.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin_results import TopicDescription

NO_TOPICS = "There are no topics."
CREATED = "Created"
LIST, DESCRIBE, CREATE, ALTER, DELETE = "list", "describe", "create", "alter", "delete"


@click.command("topics")
@click.option(
    "--list", "action", flag_value=LIST, default=True, help="Names of all topics; done when nothing else is asked."
)
@click.option("--describe", "action", flag_value=DESCRIBE, help="Partitions, leaders, replicas and changed settings.")
@click.option("--create", "action", flag_value=CREATE, help="Create a topic.")
@click.option("--alter", "action", flag_value=ALTER, help="Let a topic have more partitions.")
@click.option("--delete", "action", flag_value=DELETE, help="Delete topics with all their records.")
@click.option(
    "-t",
    "--topic",
    "names",
    multiple=True,
    shell_complete=complete_topics,
    help="A name, or a regular expression for names that exist; may be repeated.",
)
@click.option("--partitions", type=click.IntRange(1), help="How many partitions.  [default: as the broker is set]")
@click.option(
    "--replication-factor", type=click.IntRange(1), help="How many replicas.  [default: as the broker is set]"
)
@click.option(
    "--config",
    "topic_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the new topic; may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is no error.")
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no error.")
@click.option("--exclude-internal", is_flag=True, help="Without the broker's own topics.")
@format_option()
@client_command("admin")
def command(client: dict[str, object], action: str, names: tuple[str, ...], **options: Any) -> None:
    """List, describe, create, alter and delete topics.

    \b
    barnabas topics --create --topic orders --partitions 3 --config retention.ms=60000
    barnabas topics --describe --topic orders --format json
    """
    if action in (CREATE, ALTER, DELETE) and not names:
        raise click.UsageError(f"--{action} needs --topic")
    if action == ALTER and options["partitions"] is None:
        raise click.UsageError("--alter needs --partitions; for settings there is `barnabas configs --alter`")
    with open_admin(client) as admin:
        ACTIONS[action](admin, names, options)


def list_topics(admin: Admin, names: tuple[str, ...], options: dict[str, Any]) -> None:
    """Names only, a line each, as kafka-topics prints them: scripts read it."""
    found = existing(admin, names, options) if names else admin.list_topics(internal=not options["exclude_internal"])
    if options["form"] == "json" or not found:
        print_rows([{"topic": name} for name in found], options["form"], NO_TOPICS)
    else:
        click.echo("\n".join(found))


def describe(admin: Admin, names: tuple[str, ...], options: dict[str, Any]) -> None:
    found = existing(admin, names, options) if names else admin.list_topics(internal=not options["exclude_internal"])
    if not found:
        print_rows([], options["form"], NO_TOPICS)
        return
    topics = admin.describe_topics(found)
    changed = changed_settings(admin, found)
    if options["form"] == "json":
        print_rows([topic_json(topics[name], changed[name]) for name in found], "json")
        return
    for name in found:
        click.echo(headline(topics[name], changed[name]))
    click.echo()
    print_rows([row for name in found for row in partition_rows(topics[name])], "table")


def changed_settings(admin: Admin, names: list[str]) -> dict[str, dict[str, str | None]]:
    """What was set on the topics themselves."""
    from barnabas.client.admin_results import ConfigResource, ConfigSource

    found = admin.describe_configs([ConfigResource.topic(name) for name in names])
    return {
        resource.name: {entry.name: entry.value for entry in entries.values() if entry.source is ConfigSource.TOPIC}
        for resource, entries in found.items()
    }


def headline(topic: TopicDescription, settings: dict[str, str | None]) -> str:
    replicas = max((len(info.replicas) for info in topic.partitions), default=0)
    words = (
        f"{topic.name}  id {id_text(topic) or '-'}  partitions {len(topic.partitions)}  replication factor {replicas}"
    )
    return words + "".join(f"  {key}={value}" for key, value in sorted(settings.items()))


def id_text(topic: TopicDescription) -> str | None:
    """As Kafka writes ids everywhere, also in its files."""
    return base64.urlsafe_b64encode(topic.id.bytes).decode().rstrip("=") if topic.id else None


def partition_rows(topic: TopicDescription) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic.name,
            "partition": info.partition,
            "leader": info.leader_id,
            "replicas": list(info.replicas),
            "isr": list(info.isr),
        }
        for info in topic.partitions
    ]


def topic_json(topic: TopicDescription, settings: dict[str, str | None]) -> dict[str, Any]:
    rows = partition_rows(topic)
    for row in rows:
        del row["topic"]
    return {
        "topic": topic.name,
        "id": id_text(topic),
        "internal": topic.internal,
        "configs": settings,
        "partitions": rows,
    }


def create(admin: Admin, names: tuple[str, ...], options: dict[str, Any]) -> None:
    from barnabas.client.admin_results import NewTopic

    settings = dict(key_value(text) for text in options["topic_settings"])
    partitions, replicas = options["partitions"] or -1, options["replication_factor"] or -1
    wanted = [NewTopic(name, partitions, replicas, settings) for name in names]
    say(CREATED, allowing(lambda: admin.create_topics(wanted), names, options["if_not_exists"]), options)


def alter(admin: Admin, names: tuple[str, ...], options: dict[str, Any]) -> None:
    found = existing(admin, names, options)
    if found:
        admin.create_partitions(dict.fromkeys(found, options["partitions"]))
    say("Altered", found, options)


def delete(admin: Admin, names: tuple[str, ...], options: dict[str, Any]) -> None:
    found = existing(admin, names, options)
    if found:
        admin.delete_topics(found)
    say("Deleted", found, options)


def allowing(call: Any, names: tuple[str, ...], exists: bool) -> list[str]:
    """The topics that were made; one that is there already is passed over when that is allowed."""
    from barnabas.client.admin_results import AdminError

    try:
        call()
    except AdminError as error:
        others = [item for item in error.failures.values() if item.code is not ErrorCode.TOPIC_ALREADY_EXISTS]
        if others or not exists:
            raise
        return [name for name in names if name not in error.failures]
    return list(names)


def say(what: str, names: list[str], options: dict[str, Any]) -> None:
    if options["form"] == "json":
        print_rows([{"topic": name} for name in names], "json")
    elif names:
        click.echo("\n".join(f"{what} topic {name}." for name in names))
    else:
        click.echo(f"{what} no topic: {'all are there already' if what == CREATED else 'there is none'}.", err=True)


def existing(admin: Admin, names: tuple[str, ...], options: dict[str, Any]) -> list[str]:
    """The topics that these names or expressions mean; a name that is there means itself only."""
    known = admin.list_topics(internal=not options.get("exclude_internal"))
    found: dict[str, None] = {}
    for name in names:
        matching = [name] if name in known else [topic for topic in known if expression(name).fullmatch(topic)]
        if not matching and not options.get("if_exists"):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        found.update(dict.fromkeys(matching))
    return list(found)


def expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.UsageError(f"{text!r} is neither a topic nor a regular expression: {error}") from error


ACTIONS = {LIST: list_topics, DESCRIBE: describe, CREATE: create, ALTER: alter, DELETE: delete}
