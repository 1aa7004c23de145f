"""The command line: one entry point, one file per command.

Role: `barnabas COMMAND …`. A command's file is imported only when it runs, because `barnabas broker` must be ready in a
fraction of a second (click itself costs 22 ms and 4 MB of that; measured, and worth it for help and error messages).
Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click

from barnabas import __version__

COMMANDS = {
    "broker": "Start a broker.",
    "cat": "kcat's flags: produce, consume, metadata, offsets.",
    "configs": "Print and change the settings of topics and brokers, and quotas.",
    "consume": "Print the records of topics.",
    "doctor": "Find out what is wrong with Spark and its workers.",
    "log": "Verify, dump or repair the files of a log, without a broker.",
    "offsets": "Print where partitions begin and end, or what they had at a time.",
    "perf": "Measure how fast records are sent and read.",
    "produce": "Send the lines of files to a topic.",
    "settings": "Print the settings that a broker or a topic can have.",
    "topics": "List, describe, create, alter and delete topics.",
}
FORMER_NAMES = {"config": "settings"}
INTERRUPTED = 130
NOBODY_READS = 141


@contextlib.contextmanager
def nobody_reads() -> Iterator[None]:
    """One rule for all commands: when the reader of the output has left (`… | head`), they end without a word."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python would try to flush the rest at its end, and complain.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(NOBODY_READS)


class LazyCommands(click.Group):
    """A group that knows its commands by name and imports `barnabas.cli.<name>` when one is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = FORMER_NAMES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"barnabas.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Here --help and --version print."""
        with nobody_reads():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C ends every command without a word, with the exit code that shells use for it."""
        try:
            with nobody_reads():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="barnabas", message="%(prog)s %(version)s")
def main() -> None:
    """Barnabas: a Kafka-compatible broker in one Python package."""
