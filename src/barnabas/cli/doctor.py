"""`barnabas doctor`: what is wrong with what a program needs, and how to mend it.

Role: flags to checks (`barnabas.spark.doctor`), findings to rows; the exit code says whether something is wrong.
Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import dataclasses
import sys

import click

from barnabas.cli.client_options import FAILED, format_option, user_errors
from barnabas.cli.tables import print_rows


@click.group("doctor")
def command() -> None:
    """Find out what is wrong, and how to mend it."""


@command.command("spark")
@click.option("--master", default="local[2]", show_default=True, help="The cluster that is examined.")
@click.option("--remote", metavar="URL", help="A Spark Connect server instead: sc://host:port.")
@click.option(
    "-b", "--bootstrap-server", "bootstrap", metavar="HOST:PORT", help="Also try a broker, from driver and executors."
)
@click.option("--timeout", "seconds", default=180.0, show_default=True, help="Seconds that Spark may take.")
@format_option()
def spark(master: str, remote: str | None, bootstrap: str | None, seconds: float, form: str) -> None:
    """Look at everything that a Spark query with format("barnabas") needs. Exit code 1: something is wrong.

    \b
    barnabas doctor spark
    barnabas doctor spark --bootstrap-server broker:9092 --master spark://head:7077
    """
    from barnabas.spark.doctor import WRONG, Plan, examine

    with user_errors():
        findings = examine(Plan(master, remote, bootstrap, seconds))
        print_rows([dataclasses.asdict(one) for one in findings], form)
        if any(one.status == WRONG for one in findings):
            sys.exit(FAILED)
