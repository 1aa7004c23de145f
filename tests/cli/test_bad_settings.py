"""A broker process with settings that once kept it from starting or from stopping (issue 18, C1 and C2)."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

from barnabas.client.admin import Admin
from barnabas.client.admin_results import ConfigResource, ResourceType
from barnabas.errors import BarnabasError
from tests import wire
from tests.cli.broker_process import FREE_PORTS, StartBroker, refusal
from tests.waiting import wait_until

BROKER_1 = ConfigResource(ResourceType.BROKER, "1")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("listener.name.plaintext.max.connections=abc", "must be a whole number"),
        ("listener.name.plaintext.max.connections=-5", "must be at least 0"),
        ("max.connections.per.ip.overrides=127.0.0.9:²", "must be a list of host:count"),
        ("max.connections.per.ip=0", "nobody could connect"),
        ("num.io.threads=1000000", "must be from 1 to 512"),
        ("broker.rack=" + "x" * 40_000, "at most 32767 characters"),
    ],
    ids=["text", "negative", "no ascii digit", "nobody", "threads", "long"],
)
def test_a_setting_that_does_not_fit_is_one_line(start: StartBroker, setting: str, words: str) -> None:
    text = refusal(start(*FREE_PORTS, "-o", setting))
    assert words in text
    assert setting.partition("=")[0] in text
    assert len(text) < 1000


def test_more_threads_than_descriptors_is_one_line(start: StartBroker) -> None:
    process = start(*FREE_PORTS, "-o", "num.network.threads=512", descriptors=200)
    assert "Too many open files" in refusal(process)


def test_stored_settings_that_do_not_fit_any_more_do_not_keep_a_broker_from_starting(
    start: StartBroker, tmp_path: Path
) -> None:
    """Only editing SQLite helped; and here somebody has."""
    first = start(*FREE_PORTS, "--data-dir", "d")
    with wire.connect(int(first.banner()["port"])) as sock:
        wire.ask(sock, wire.create_topic("t"))
    first.popen.send_signal(signal.SIGTERM)
    assert first.finish()[0] == 0
    bad = {
        "listener.name.plaintext.max.connections": "abc",
        "num.io.threads": 1_000_000,
        "num.network.threads": b"\xff\xfe",
        "log.cleaner.backoff.ms": str(2**64),
        "of.another.release": "1",
    }
    with contextlib.closing(sqlite3.connect(tmp_path / "d" / "barnabas-metadata.sqlite")) as database, database:
        database.executemany("INSERT INTO broker_config VALUES ('1', ?, ?)", bad.items())
        database.execute("INSERT INTO broker_config VALUES ('1', 'message.max.bytes', '5000')")
        database.execute("INSERT INTO topic_config SELECT topic_id, 'segment.bytes', 'many' FROM topic")
        database.execute("INSERT INTO client_quota VALUES ('[[\"user\", \"u\"]]', 'producer_byte_rate', 'fast')")
        database.execute("INSERT INTO client_quota VALUES ('no JSON', 'producer_byte_rate', 1.0)")
        database.execute("INSERT INTO client_quota VALUES ('[[\"user\", \"v\"]]', 'producer_byte_rate', -1.0)")
    second = start(*FREE_PORTS, "--data-dir", "d")
    with Admin({"bootstrap.servers": second.banner()["address"]}) as admin:
        found = admin.describe_configs([BROKER_1])[BROKER_1]
        assert found["message.max.bytes"].value == "5000"
        assert found["num.io.threads"].source.name == "DEFAULT"
        assert "listener.name.plaintext.max.connections" not in found
    second.popen.send_signal(signal.SIGTERM)
    code, _, err = second.finish()
    assert code == 0
    lines = err.splitlines()
    for name in (*bad, "segment.bytes", "fast", "no JSON", "producer_byte_rate=-1.0"):
        assert sum(name in line for line in lines) == 1, (name, err)
    assert len(lines) == len(bad) + 4


def test_sigterm_is_obeyed_while_threads_are_started_and_ended(start: StartBroker) -> None:
    """The handler that did so held a lock that the stop needed."""
    process = start(*FREE_PORTS, "-o", "num.io.threads=256", "-o", "num.network.threads=8")
    address = process.banner()["address"]
    changes = 0

    def change_again_and_again() -> None:
        nonlocal changes
        more = {"num.io.threads": "512", "num.network.threads": "16"}
        with contextlib.suppress(BarnabasError), Admin({"bootstrap.servers": address}) as admin:
            while True:
                admin.alter_configs(BROKER_1, more if changes % 2 == 0 else dict.fromkeys(more), timeout=5)
                changes += 1

    changing = threading.Thread(target=change_again_and_again, daemon=True)
    changing.start()
    wait_until(lambda: changes > 3 or not changing.is_alive(), what="some changes")
    process.popen.send_signal(signal.SIGTERM)
    assert process.finish(60)[0] == 0
    assert changes > 3
    changing.join(60)
