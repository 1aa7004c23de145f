"""`barnabas log`: exit codes, both forms of output, and a broker that runs meanwhile."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from barnabas.broker.log.checkpoints import LOG_START_FILE
from barnabas.cli import log as command
from barnabas.cli import main
from tests.broker.log.inspection.logs import fingerprint, flip, make_log, segments, spots
from tests.live_broker import AGAINST_KAFKA, fresh_topic, live_broker


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["log", *map(str, arguments)])


def damage_one_batch(log: Path) -> Path:
    segment = segments(log)[0]
    flip(segment, (spots(segment)[3].position + 80) * 8)
    return segment


def test_a_clean_log_is_exit_code_0(log: Path) -> None:
    result = run("verify", log)
    assert result.exit_code == 0, result.output
    assert "No damage. Looked at 1 partition" in result.output


def test_damage_is_exit_code_1_and_named(log: Path) -> None:
    segment = damage_one_batch(log)
    spot = spots(segment)[3]
    result = run("verify", log)
    assert result.exit_code == 1
    for text in (
        "t-0",
        segment.name,
        f"offset {spot.base_offset}",
        f"position {spot.position}",
        "checksum",
        "repair --dry-run",
    ):
        assert text in result.output


@pytest.mark.parametrize(
    "arguments", [("verify",), ("verify", "/nowhere/at/all"), ("verify", "/"), ("repair", "/"), ("dump", "/")]
)
def test_what_cannot_be_done_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_the_json_of_verify_can_be_read_by_programs(log: Path) -> None:
    segment = damage_one_batch(log)
    found: dict[str, Any] = json.loads(run("verify", "--format", "json", log).output)
    assert (found["clean"], found["broker_running"]) == (False, False)
    (partition,) = found["partitions"]
    (finding,) = partition["findings"]
    assert (finding["severity"], finding["code"], finding["file"]) == ("damage", "checksum", segment.name)
    assert finding["position"] == spots(segment)[3].position


def test_dump_prints_lines_of_json(log: Path) -> None:
    result = run("dump", "--records", "--format", "json", "--limit", "5", log)
    found = [json.loads(line) for line in result.output.splitlines()]
    assert [row["kind"] for row in found] == ["batch", "record", "record", "record", "batch"]


def test_dump_prints_columns_and_shortens_long_values(log: Path) -> None:
    text = run("dump", "--deep", "--show", "all", log).output
    for word in (
        "producer, sequence",
        "'value 0'",
        "0xff00",
        "t-0/partition.metadata",
        "recovery-point-offset-checkpoint",
        "zstd",
    ):
        assert word in text
    assert run("dump", "-n", "0", log).output == ""


def test_repair_says_what_it_did_and_verify_agrees(log: Path) -> None:
    damage_one_batch(log)
    before = fingerprint(log)
    assert run("repair", "--dry-run", "--drop-damaged", log).exit_code == 1
    assert run("repair", log).exit_code == 1
    assert fingerprint(log) == before
    result = run("repair", "--drop-damaged", "--format", "json", log)
    assert result.exit_code == 0
    done = json.loads(result.output)
    assert [action["what"] for action in done["actions"]][:2] == ["took out", "rebuilt"]
    assert done["clean"]
    assert run("verify", log).exit_code == 0
    assert "Nothing to repair" in run("repair", log).output


def test_repair_names_the_damage_that_it_leaves_and_what_nothing_can_be_done_about(log: Path) -> None:
    damaged = damage_one_batch(log)
    gone, behind = segments(log)[1:3]
    for file in gone.parent.glob(f"{gone.stem}.*"):
        file.unlink()
    (log / LOG_START_FILE).write_text("0\n1\nt 0 100000\n")
    planned = run("repair", "--dry-run", log).output
    assert f"{LOG_START_FILE} says" in planned.partition("Nothing can be done about this damage")[2]
    assert planned.count(behind.name) == planned.count(damaged.name) == 1
    result = run("repair", log)
    assert result.exit_code == 1
    assert "Damage is left. 0 things done." in result.output
    assert result.output.count(behind.name) == result.output.count(damaged.name) == 1
    result = run("repair", "--drop-damaged", log)
    assert result.exit_code == 1, "the log ends before its start"
    assert f"offsets {gone.stem.lstrip('0')} to {int(behind.stem) - 1} are missing" in result.output
    result = run("repair", "--dry-run", log)
    assert result.exit_code == 1
    assert "0 things to do." in result.output
    assert LOG_START_FILE in result.output
    assert behind.name not in result.output


@pytest.mark.skipif(AGAINST_KAFKA, reason="looks into our own data directory")
def test_beside_a_broker_that_writes_verify_finds_no_damage_and_repair_refuses() -> None:
    """The tail grows all the time and the segments roll under the reader's eyes."""
    with live_broker({"log.segment.bytes": "1048576", "log.index.interval.bytes": "512"}) as broker:
        topic = fresh_topic(broker)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "batch.size": 4096})
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                producer.produce(topic, os.urandom(500))
                producer.poll(0) if len(producer) < 20 else producer.flush(10)

        writer = threading.Thread(target=write)
        writer.start()
        data = broker.place.directory / "data"
        try:
            for _ in range(3):
                seen = subprocess.run(
                    barnabas("verify", "--format", "json", data),
                    check=False,
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                assert seen.returncode == 0, seen.stdout + seen.stderr
                assert json.loads(seen.stdout)["broker_running"] is True
            refused = subprocess.run(barnabas("repair", data), check=False, capture_output=True, text=True, timeout=60)
            assert refused.returncode == 2
            assert "stop it first" in refused.stderr
        finally:
            stop.set()
            writer.join()
            producer.flush(30)


def barnabas(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "barnabas", "log", *map(str, arguments)]


def test_at_a_terminal_long_work_shows_a_bar_that_is_gone_afterwards(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"from barnabas.cli import main, log\nlog.LONG_WORK_BYTES = 0\nmain(['log', 'verify', {str(log)!r}])\n"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    assert process.wait(30) == 0
    assert b"verifying" in text
    assert b"No damage" in text
    assert text.rindex(b"verifying") < text.index(b"No damage")
    assert command.LONG_WORK_BYTES > 0
