"""The command line: one entry point, one file per command.

Role: `barnabas COMMAND …`. A command's file is imported only when it runs, because `barnabas broker` must be ready in a
fraction of a second (click itself costs 22 ms and 4 MB of that; measured, and worth it for help and error messages).
Thread: the main thread. Lock: none.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from barnabas import __version__

COMMANDS = {
    "broker": "Start a broker.",
    "cat": "kcat's flags: produce, consume, metadata, offsets.",
    "config": "Print the settings that a broker or a topic has.",
    "configs": "Print and change the settings of topics and brokers, and quotas.",
    "consume": "Print the records of topics.",
    "doctor": "Find out what is wrong with Spark and its workers.",
    "log": "Verify, dump or repair the files of a log, without a broker.",
    "offsets": "Print where partitions begin and end, or what they had at a time.",
    "perf": "Measure how fast records are sent and read.",
    "produce": "Send the lines of files to a topic.",
    "topics": "List, describe, create, alter and delete topics.",
}
INTERRUPTED = 130


class LazyCommands(click.Group):
    """A group that knows its commands by name and imports `barnabas.cli.<name>` when one is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"barnabas.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C ends every command without a word, with the exit code that shells use for it."""
        try:
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
