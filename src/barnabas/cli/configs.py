"""`barnabas configs`: the settings of topics and brokers and the quotas of clients, with the flags of kafka-configs.

Role: flags to calls of the admin client, results to rows. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.client_options import client_command, format_option, key_value
from barnabas.cli.contact import complete_topics, open_admin
from barnabas.cli.tables import print_rows

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin_results import ConfigResource

TOPICS, BROKERS, CLIENTS, USERS = "topics", "brokers", "clients", "users"
_QUOTA_ENTITIES = {CLIENTS: "client-id", USERS: "user"}


@click.command("configs")
@click.option(
    "--describe", "action", flag_value="describe", default=True, help="Print settings; done when nothing else is asked."
)
@click.option("--alter", "action", flag_value="alter", help="Change settings.")
@click.option(
    "--entity-type",
    "kind",
    type=click.Choice([TOPICS, BROKERS, CLIENTS, USERS]),
    help="What has the settings; clients and users have quotas.",
)
@click.option("--entity-name", "name", help="The topic, the id of the broker, the client id or the user.")
@click.option("--entity-default", is_flag=True, help="The default of all brokers, clients or users.")
@click.option(
    "-t", "--topic", shell_complete=complete_topics, help="Short for --entity-type topics --entity-name TOPIC."
)
@click.option("--broker", help="Short for --entity-type brokers --entity-name ID.")
@click.option(
    "--add-config",
    "added",
    multiple=True,
    metavar="KEY=VALUE,…",
    help="Settings to set; a value with commas stands in [brackets].",
)
@click.option(
    "--delete-config", "deleted", multiple=True, metavar="KEY,…", help="Settings to take back to their default."
)
@click.option("--all", "everything", is_flag=True, help="Also settings that have their default.")
@format_option()
@client_command("admin")
def command(client: dict[str, object], action: str, form: str, **options: Any) -> None:
    """Print and change the settings of a topic or broker while it runs, and quotas.

    \b
    barnabas configs --topic orders --all
    barnabas configs --alter --topic orders --add-config retention.ms=60000,cleanup.policy=[compact,delete]
    """
    kind, name = entity(options)
    changes = wanted_changes(options) if action == "alter" else {}
    if action == "alter" and not changes:
        raise click.UsageError("--alter needs --add-config or --delete-config")
    with open_admin(client) as admin:
        if action == "alter":
            alter(admin, kind, name, changes)
            click.echo(f"Changed {', '.join(changes)} of {kind[:-1]} {name or '(default)'}.", err=form == "json")
        elif kind in _QUOTA_ENTITIES:
            nothing = (
                f"There are no quotas of {kind}." if name is None else f"There are no quotas of {kind[:-1]} {name}."
            )
            print_rows(quota_rows(admin, kind, name, options["entity_default"]), form, nothing)
        else:
            whose = resource(kind, name)
            nothing = f"Nothing was set for {whose}; --all prints what has its default, too."
            print_rows(setting_rows(admin, whose, options["everything"]), form, nothing)


def entity(options: dict[str, Any]) -> tuple[str, str | None]:
    """Whose settings; a name of None is the default."""
    short = [(kind, options[key]) for kind, key in ((TOPICS, "topic"), (BROKERS, "broker")) if options[key] is not None]
    if options["kind"]:
        short.append((options["kind"], options["name"]))
    if len(short) != 1:
        raise click.UsageError("say whose settings: --topic NAME, --broker ID, or --entity-type with --entity-name")
    kind, name = short[0]
    if name is None and not options["entity_default"] and kind not in _QUOTA_ENTITIES:
        raise click.UsageError(
            f"--entity-type {kind} needs --entity-name" + (" or --entity-default" if kind == BROKERS else "")
        )
    if name is None and kind == TOPICS:
        raise click.UsageError("topics have no default of their own: it is a setting of the broker")
    if kind == BROKERS and name is not None and not name.isdigit():
        raise click.UsageError(f"a broker is named by its id, not {name!r}")
    return kind, name


def wanted_changes(options: dict[str, Any]) -> dict[str, str | None]:
    """By name; None takes a setting back."""
    changes: dict[str, str | None] = {}
    for text in options["added"]:
        changes.update(key_value(part) for part in split_settings(text))
    for text in options["deleted"]:
        changes.update(dict.fromkeys((part.strip() for part in text.split(",")), None))
    return changes


def split_settings(text: str) -> list[str]:
    """`a=1,b=[x,y]` at the commas outside of brackets, without the brackets."""
    parts, depth = [""], 0
    for letter in text:
        if letter in "[]":
            depth += 1 if letter == "[" else -1
        elif letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise click.UsageError(f"the brackets of {text!r} do not match")
    return parts


def resource(kind: str, name: str | None) -> ConfigResource:
    from barnabas.client.admin_results import ConfigResource

    if kind == TOPICS:
        return ConfigResource.topic(str(name))
    return ConfigResource.broker(None if name is None else int(name))


def setting_rows(admin: Admin, whose: ConfigResource, everything: bool) -> list[dict[str, Any]]:
    """Without `everything` only what was set on this resource, as kafka-configs prints it."""
    from barnabas.client.admin_results import ConfigSource, ResourceType

    of_a_broker = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    own = (ConfigSource.TOPIC,) if whose.type is ResourceType.TOPIC else of_a_broker
    (found,) = admin.describe_configs([whose]).values()
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": entry.source.name,
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
        }
        for entry in sorted(found.values(), key=lambda entry: entry.name)
        if everything or entry.source in own
    ]


def quota_rows(admin: Admin, kind: str, name: str | None, default: bool) -> list[dict[str, Any]]:
    wanted = _QUOTA_ENTITIES[kind]
    asked = {wanted: name} if name is not None or default else None
    return [
        {"entity": _entity_text(quota.entity), **{"limits": dict(quota.limits)}}
        for quota in admin.describe_quotas(asked)
        if wanted in quota.entity
    ]


def _entity_text(parts: Any) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in parts.items())


def alter(admin: Admin, kind: str, name: str | None, changes: dict[str, str | None]) -> None:
    if kind not in _QUOTA_ENTITIES:
        admin.alter_configs(resource(kind, name), changes)
        return
    limits = {key: None if value is None else _number(key, value) for key, value in changes.items()}
    admin.alter_quotas({_QUOTA_ENTITIES[kind]: name}, limits)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{key} = {text!r} must be a number") from None
