"""The first word with a cluster: a broker that is away is told within seconds, and names of topics for the shell.

Role: opens admin clients for the commands. Somebody waits at a terminal, so where nobody listens is said at once, and the first answer may
take some seconds only, unless a time-out was chosen; what is asked for afterwards has the clients' patience. Thread: the main thread.
Lock: none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from barnabas.cli.client_options import client_settings
from barnabas.errors import BarnabasError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

__all__ = ["admin_settings", "complete_topics", "open_admin", "reach"]

CONTACT_SECONDS = 5.0
COMPLETION_SECONDS = 1.0
TIMEOUT = "default.api.timeout.ms"
ADMIN_DEFAULTS: dict[str, object] = {TIMEOUT: "15000"}


def open_admin(client: Mapping[str, object]) -> Admin:
    """An admin client whose cluster has answered; the error names the addresses that were tried."""
    from barnabas.client.admin import Admin

    admin = Admin(ADMIN_DEFAULTS | dict(client))
    try:
        if TIMEOUT in client:
            admin.describe_cluster()  # who chose a time may wait for a broker that is about to start
        else:
            _reach(admin)
    except BaseException:
        admin.close()
        raise
    return admin


def _reach(admin: Admin) -> None:
    try:
        admin.reach(CONTACT_SECONDS)
    except KafkaError as error:
        if error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
            raise
        cure = "is a broker running there? -b HOST:PORT names another address, `barnabas broker` starts a broker"
        raise BarnabasError(f"{error.message}; {cure}") from error


def admin_settings(client: Mapping[str, object]) -> dict[str, object]:
    """What an admin client understands of the settings of a producer or consumer."""
    from barnabas.client.config import COMMON_ROWS

    known = {row.name for row in COMMON_ROWS} | {TIMEOUT}
    return {name: value for name, value in client.items() if name in known}


def reach(client: Mapping[str, object]) -> None:
    """Before a producer waits for as long as a service would: is there a broker? Who chose `max.block.ms` waits that long."""
    settings = admin_settings(client)
    if "max.block.ms" in client:
        settings[TIMEOUT] = max(int(str(client["max.block.ms"])), 1)
    open_admin(settings).close()


def complete_topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Topics of the cluster that the command line names; none when it does not answer at once."""
    given = context.params
    log = logging.getLogger("barnabas")
    level = log.level
    log.setLevel(logging.CRITICAL)  # the shell would show it in the middle of the line
    try:
        client = client_settings(given.get("settings_file"), given.get("settings") or (), given.get("bootstrap_server"))
        return [name for name in _topics(client) if name.startswith(incomplete)]
    except (BarnabasError, OSError, click.UsageError):
        return []
    finally:
        log.setLevel(level)


def _topics(client: Mapping[str, object]) -> list[str]:
    from barnabas.client.admin import Admin

    with Admin(admin_settings(client)) as admin:
        return admin.list_topics(timeout=COMPLETION_SECONDS)
