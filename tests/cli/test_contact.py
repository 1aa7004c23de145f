"""Commands against a broker that is away, and the names of topics for the shell."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from click.shell_completion import BashComplete

from barnabas.cli import contact, main
from tests.both_brokers import Broker
from tests.cli.shell import Shell


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody will listen while the test runs: the port is taken, but not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


COMMANDS = (
    ("produce", "-t", "orders"),
    ("consume", "-t", "orders", "--from-beginning"),
    ("topics", "--list"),
    ("configs", "--topic", "orders"),
    ("offsets", "-t", "orders"),
    ("perf", "produce", "-t", "orders", "--num-records", "1", "--record-size", "1"),
    ("perf", "consume", "-t", "orders", "--messages", "1"),
    ("cat", "-L"),
    ("cat", "-P", "-t", "orders"),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_broker_that_does_not_answer_is_named_in_time(
    arguments: tuple[str, ...], silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact, "CONTACT_SECONDS", 0.5)
    start = time.monotonic()
    result = Shell(silent)(*arguments, text="a line\n")
    assert time.monotonic() - start < 5
    assert result.exit_code == 1
    assert f"waited 500 ms for a broker to answer; tried {silent} (" in result.stderr


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_where_nobody_listens_is_said_at_once(arguments: tuple[str, ...], nobody: str) -> None:
    result = Shell(nobody)(*arguments, text="a line\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"barnabas: nobody listens at {nobody}: connection refused; is a broker running there? "
        "-b HOST:PORT names another address, `barnabas broker` starts a broker\n"
    )


@pytest.mark.parametrize("server", ["localhost", "no-such-host.invalid:9092"])
def test_an_address_that_cannot_be_is_exit_code_2(server: str) -> None:
    result = Shell(server)("topics")
    assert result.exit_code == 2
    assert f"bootstrap.servers = '{server}': " in result.stderr


def test_a_time_that_was_chosen_holds(nobody: str) -> None:
    shell = Shell(nobody)
    assert " 100 ms" in shell("topics", "-X", "default.api.timeout.ms=100").stderr
    assert " 150 ms" in shell("produce", "-t", "orders", "-X", "max.block.ms=150", text="line").stderr


def test_a_shell_waits_some_seconds_only() -> None:
    assert 1 <= contact.CONTACT_SECONDS <= 5


def completed(arguments: list[str], incomplete: str) -> list[str]:
    found = BashComplete(main, {}, "barnabas", "_BARNABAS_COMPLETE").get_completions(arguments, incomplete)
    return [item.value for item in found]


@pytest.mark.parametrize(
    "arguments",
    [
        "topics -t",
        "produce --topic",
        "consume -t",
        "configs -t",
        "offsets -t",
        "cat -t",
        "perf produce -t",
        "perf consume -t",
    ],
)
def test_topics_are_completed(arguments: str, broker: Broker, topic: str) -> None:
    *command, flag = arguments.split()
    words = [*command, "-b", broker.bootstrap_servers, flag]
    assert topic in completed(words, topic[:-1])
    assert completed(words, "no-such-topic") == []


def test_completion_without_a_broker_is_empty_and_quick(nobody: str) -> None:
    start = time.monotonic()
    assert completed(["topics", "-b", nobody, "-t"], "") == []
    assert time.monotonic() - start < 5


def test_a_shell_asks_for_it_like_this(broker: Broker, topic: str) -> None:
    line = f"barnabas consume -b {broker.bootstrap_servers} -t {topic[:-1]}"
    asked = {"_BARNABAS_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    found = subprocess.run(
        [sys.executable, "-c", "from barnabas.cli import main; main(prog_name='barnabas')"],
        env={**os.environ, **asked},
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert f"plain,{topic}" in found.stdout.decode().splitlines()
    assert not found.stderr
