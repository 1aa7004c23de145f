"""One walk through the commands against a broker in a process of its own: ours, or Apache Kafka (tests/live_broker.py)."""

from __future__ import annotations

import uuid

from tests.cli.shell import Shell
from tests.live_broker import live_broker
from tests.waiting import wait_until


def test_the_commands_do_the_same_with_every_broker() -> None:
    name = f"walk-{uuid.uuid4().hex[:8]}"
    with live_broker() as running:
        shell = Shell(running.bootstrap)
        topic_and_settings(shell, name)
        records_and_offsets(shell, name)
        shell.ok("topics", "--delete", "--topic", name)
        wait_until(lambda: name not in shell.ok("topics", "--list").split(), what="the end of the topic")
        assert shell("consume", "-t", name).exit_code == 1


def topic_and_settings(shell: Shell, name: str) -> None:
    shell.ok("topics", "--create", "--topic", name, "--partitions", 2, "--config", "retention.ms=60000")
    result = shell("topics", "--create", "--topic", name)
    assert result.exit_code == 1
    assert result.stderr.startswith("barnabas: TOPIC_ALREADY_EXISTS")
    shell.ok("configs", "--alter", "--topic", name, "--add-config", "cleanup.policy=[compact,delete]")
    found = {"retention.ms": "60000", "cleanup.policy": "compact,delete"}
    shell.until(found, "configs", "--topic", name)
    (row,) = shell.rows("topics", "--describe", "--topic", name)
    assert (row["configs"], len(row["id"]), len(row["partitions"])) == (found, 22, 2)
    whose = ("--entity-type", "clients", "--entity-name", name)
    shell.ok("configs", "--alter", *whose, "--add-config", "producer_byte_rate=1000000")
    wait_until(lambda: shell.rows("configs", *whose), what="the quota")
    assert [row["limits"] for row in shell.rows("configs", *whose)] == [{"producer_byte_rate": 1_000_000.0}]


def records_and_offsets(shell: Shell, name: str) -> None:
    text = "".join(f"key-{number}:{number}\n" for number in range(1000))
    shell.ok("produce", "-t", name, "-K", ":", "-z", "lz4", text=text)
    rows = shell.records("-t", name, "--from-beginning")
    assert sorted(int(row["value"]) for row in rows) == list(range(1000))
    assert all(row["key"] == f"key-{row['value']}" for row in rows)
    assert sum(row["offsets"] for row in shell.rows("offsets", "--topic", name)) == 1000
    assert len(shell.ok("cat", "-C", "-t", name, "-o", "-5", "-e").split()) == 10
    assert name in shell.ok("cat", "-L")
    shell.ok("perf", "consume", "-t", name, "--messages", 1000)
