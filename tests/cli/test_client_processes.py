"""The commands as a shell runs them: through pipes, and ended by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.both_brokers import Broker, broker_for_test
from tests.waiting import wait_until

SECONDS = 50
INTERRUPTED = 130
NOBODY_READS = 141


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with broker_for_test() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = broker.unique_topic_name("piped")
    broker.create_topic(name)
    return name


@contextmanager
def started(broker: Broker, *arguments: str, stdin: int | IO[bytes] = subprocess.PIPE) -> Iterator[Any]:
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_pipe_from_a_topic_to_another(broker: Broker, topic: str) -> None:
    source = broker.unique_topic_name("source")
    broker.create_topic(source)
    lines = b"".join(b"line %d\n" % number for number in range(20_000))
    with started(broker, "produce", "-t", source) as first:
        assert first.communicate(lines, SECONDS) == (b"", f"20000 records sent to {source}\n".encode())
        assert first.returncode == 0
    with (
        started(broker, "consume", "-t", source, "--from-beginning", "-e") as reader,
        started(broker, "produce", "-t", topic, stdin=reader.stdout) as writer,
    ):
        assert writer.wait(SECONDS) == 0
        assert reader.wait(SECONDS) == 0
    assert [record.value for record in broker.records(topic)] == lines.splitlines()


def test_ctrl_c_ends_a_consumer_without_a_word(broker: Broker, topic: str) -> None:
    with started(broker, "produce", "-t", topic) as writer:
        writer.communicate(b"one\n", SECONDS)
    with started(broker, "consume", "-t", topic, "--from-beginning") as reader:
        assert reader.stdout.readline() == b"one\n"
        reader.send_signal(signal.SIGINT)
        assert reader.communicate(timeout=SECONDS) == (b"", b"")
        assert reader.returncode == INTERRUPTED


def test_ctrl_c_loses_nothing_that_a_producer_has_read(broker: Broker, topic: str) -> None:
    # The first line has no room for another in its batch, which is sent; the second one lingers for a minute: only an orderly end sends it.
    with started(broker, "produce", "-t", topic, "-X", "linger.ms=60000", "-X", "batch.size=16384") as writer:
        writer.stdin.write(b"x" * 20_000 + b"\n" + b"y" * 10_000 + b"\n")
        writer.stdin.flush()
        wait_until(lambda: broker.records(topic), SECONDS, "the first record")
        writer.send_signal(signal.SIGINT)
        assert writer.wait(SECONDS) == INTERRUPTED
        assert writer.stderr.read() == b""
    assert [record.value for record in broker.records(topic)][1:] == [b"y" * 10_000]


def test_a_reader_that_leaves_ends_the_consumer(broker: Broker, topic: str) -> None:
    with started(broker, "produce", "-t", topic) as writer:
        writer.communicate((b"x" * 500_000 + b"\n") * 20, SECONDS)  # far more than a pipe holds
    with started(broker, "consume", "-t", topic, "--from-beginning") as reader:
        reader.stdout.read(10)
        reader.stdout.close()
        assert reader.wait(SECONDS) == NOBODY_READS
        assert reader.stderr.read() == b""


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "--version",
        "topics --help",
        "settings broker",
        "topics",
        "topics --describe",
        "topics --format json",
        "topics --create -t made-unread",
        "configs --topic {topic} --all",
        "offsets -t {topic}",
        "consume -t {topic} --from-beginning -e",
        "cat -L",
        "cat -C -t {topic} -e",
        "perf produce -t {topic} --num-records 1",
        "log verify {folder}",
        "log dump --show all --format json {folder}",
        "log dump --show all {folder}",
    ],
)
def test_every_command_ends_alike_when_nobody_reads_its_output(
    broker: Broker, topic: str, tmp_path: Path, arguments: str
) -> None:
    with started(broker, "produce", "-q", "-t", topic) as writer:
        assert writer.communicate(b"one\n", SECONDS) == (b"", b"")
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(b"")
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    reader, writer_end = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas", *arguments.format(topic=topic, folder=folder).split()],
            stdin=subprocess.DEVNULL,
            stdout=writer_end,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
        )
    finally:
        os.close(writer_end)
    assert (done.returncode, done.stderr) == (NOBODY_READS, b"")


def test_memory_does_not_grow_with_the_file(broker: Broker, topic: str, tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x" * 999 + b"\n")
    large.write_bytes((b"x" * 999 + b"\n") * 60_000)
    least = peak_memory(broker, "produce", "-t", topic, "-X", "buffer.memory=4194304", str(small))
    most = peak_memory(broker, "produce", "-t", topic, "-X", "buffer.memory=4194304", str(large))
    assert most - least < 25_000_000
    assert len(broker.records(topic)) == 60_001


def peak_memory(broker: Broker, *arguments: str) -> int:
    """The most bytes that a command had at once; it must succeed."""
    code = "import resource, sys\nfrom barnabas.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
    code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=True)
    return int(done.stdout) * 1024


def test_the_shell_completes_commands_and_flags() -> None:
    def completed(words: str, position: int) -> list[str]:
        asked = {"_BARNABAS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(position)}
        code = "from barnabas.cli import main\nmain(prog_name='barnabas')"
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, check=False, env={**os.environ, **asked}, capture_output=True, text=True
        ).stdout.split()

    assert completed("barnabas to", 1) == ["plain,topics"]
    assert "plain,--from-beginning" in completed("barnabas consume --f", 2)
