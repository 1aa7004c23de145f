"""A broker in a process of its own whose disk a test can break: `barnabas broker` as it is, with a `ControlledDisk` under its logs.

As a program: `python -m tests.faults.faulty_broker RULES [options of barnabas broker]`. The broker itself has no such door: this file
builds the server in the place of the command's own function.
For tests: `faulty_broker(...)` starts one with several log directories, `set_rules` breaks and mends its disk.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from barnabas.cli import broker as cli
from bench.brokers import BrokerProcess, Kind, Place, write_properties
from tests.faults.faulty_disk import ControlledDisk, Rule, write_rules
from tests.live_broker import SMALL_SEGMENTS

DIRECTORIES = ("a", "b")
RULES = "rules.json"


def faulty_command(place: Place, settings: Mapping[str, str]) -> list[str]:
    """The command line of a broker with two log directories, `a` (which has the catalog) and `b`, unless the settings say otherwise."""
    dirs = ",".join(str(place.directory / name) for name in DIRECTORIES)
    file = write_properties(place.directory / "server.properties", {"log.dirs": dirs, **settings})
    line = [sys.executable, "-m", "tests.faults.faulty_broker", str(place.directory / RULES), str(file)]
    return [*line, "--port", str(place.port), "--metrics-port", str(place.side_port)]


def faulty_broker(settings: Mapping[str, str] | None = None) -> BrokerProcess:
    """To be used in a `with` statement."""
    return BrokerProcess(Kind("Barnabas", faulty_command, {}), {**SMALL_SEGMENTS, **(settings or {})})


def set_rules(broker: BrokerProcess, *rules: Rule) -> None:
    """The broker's disk obeys these from now on; without any it works."""
    write_rules(broker.place.directory / RULES, *rules)


def main() -> None:
    from barnabas.broker.server import BrokerServer
    from barnabas.config import Config

    rules, *arguments = sys.argv[1:]

    def start_server(config: Config) -> BrokerServer:
        server = BrokerServer(config, files=ControlledDisk(Path(rules)))
        server.start()
        return server

    cli.start_server = start_server
    cli.command(arguments, prog_name=shlex.join(["barnabas", "broker"]))


if __name__ == "__main__":
    main()
