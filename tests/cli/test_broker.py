"""`barnabas broker` as a user runs it: a process, its banner, its signals and what it says when it cannot start."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import statistics
import struct
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.memory_directory import PREFIX, memory_root
from barnabas.cli import broker as command
from tests import wire
from tests.cli.broker_process import FREE_PORTS, Process, StartBroker, refusal
from tests.waiting import wait_until

KAFKAS_OWN_FILE = """
# What the file that comes with Apache Kafka has, in KRaft mode
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:0
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def api_versions_error(port: int) -> int:
    with wire.connect(port) as sock:
        answer = wire.ask(sock, wire.api_versions(correlation=7))
    correlation, error = struct.unpack_from(">ih", answer)
    assert correlation == 7
    return int(error)


def test_the_banner_says_where_everything_is(start: StartBroker, tmp_path: Path) -> None:
    """Without a data directory it is ./barnabas-data below where it was started."""
    banner = start(*FREE_PORTS).banner()
    assert api_versions_error(int(banner["port"])) == 0
    assert banner["data"] == str(tmp_path / "barnabas-data")
    assert (tmp_path / "barnabas-data").is_dir()
    with urllib.request.urlopen(banner["metrics"], timeout=10) as page:
        text = page.read().decode()
    assert "kafka_server_kafkaserver_brokerstate 3" in text
    with urllib.request.urlopen(banner["metrics"].replace("/metrics", "/health"), timeout=10) as page:
        assert page.status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order(start: StartBroker, number: signal.Signals) -> None:
    """RP-3: exit code 0, nothing on standard error."""
    process = start(*FREE_PORTS)
    process.banner()
    process.popen.send_signal(number)
    assert process.finish() == (0, "Barnabas stopped in order\n", "")


def test_a_clean_stop_leaves_the_marker_and_a_second_start_keeps_the_data(start: StartBroker, tmp_path: Path) -> None:
    """RP-3: what was acknowledged is there after an orderly stop."""
    first = start(*FREE_PORTS, "--data-dir", "d")
    with wire.connect(int(first.banner()["port"])) as sock:
        wire.ask(sock, wire.create_topic("t"))
        assert wire.produce_result(wire.ask(sock, wire.produce("t", wire.batch([b"a", b"b"]))), "t") == (0, 0)
    first.popen.send_signal(signal.SIGTERM)
    assert first.finish()[0] == 0
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()
    second = start(*FREE_PORTS, "--data-dir", "d")
    with wire.connect(int(second.banner()["port"])) as sock:
        assert wire.produce_result(wire.ask(sock, wire.produce("t", wire.batch([b"c"]))), "t") == (0, 2)


def test_data_in_memory_is_gone_afterwards(start: StartBroker) -> None:
    process = start(*FREE_PORTS, "--memory")
    data = Path(process.banner()["data"].removeprefix("memory (").removesuffix(")"))
    assert data.is_dir()
    assert data.parent == memory_root()
    assert data.name.startswith(PREFIX)
    process.popen.send_signal(signal.SIGTERM)
    assert process.finish()[0] == 0
    assert not data.exists()


def test_the_environment_sets_what_the_file_does_not(start: StartBroker) -> None:
    process = start(*FREE_PORTS, KAFKA_NUM_IO_THREADS="none")
    code, _, err = process.finish()
    assert code == 2
    assert "num.io.threads" in err


def test_the_file_that_comes_with_kafka_is_accepted(start: StartBroker, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(KAFKAS_OWN_FILE)
    process = start("server.properties", "--metrics-port", "0", "--data-dir", "d")
    assert api_versions_error(int(process.banner()["port"])) == 0


def test_metrics_can_be_switched_off(start: StartBroker) -> None:
    assert start("--port", "0", "-o", "barnabas.metrics.listener=").banner()["metrics"] == "off"


# ---- what it says when it cannot start: exit code 2 and one line each --------------------------------------------


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("num.io.threads=0", ("num.io.threads", "0", "from 1 to 512")),
        ("log.segment.bytes=many", ("log.segment.bytes", "many", "whole number")),
        ("auto.create.topics.enable=yes", ("auto.create.topics.enable", "yes", "true or false")),
        ("listeners=nonsense", ("listeners", "nonsense", "NAME://host:port")),
        ("barnabas.metrics.listener=nonsense", ("barnabas.metrics.listener", "nonsense", "host:port")),
        ("nothing", ("--override", "nothing", "key=value")),
    ],
)
def test_a_bad_setting_is_named_with_its_value_and_what_is_allowed(
    start: StartBroker, setting: str, words: tuple[str, ...]
) -> None:
    text = refusal(start("--memory", "-o", setting))
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("listeners=foo", "listeners = 'foo': must be a list of NAME://host:port"),
        ("listeners=", "listeners = '': must be a list of NAME://host:port"),
        ("barnabas.metrics.listener=foo", "barnabas.metrics.listener = 'foo': must be host:port"),
        ("log.dirs=,", "log.dirs = ',': must not be empty"),
        ("log.dir=", "log.dir = '': must not be empty"),
    ],
)
def test_beside_other_options_a_bad_setting_is_shown_as_it_was_written(
    start: StartBroker, setting: str, words: str
) -> None:
    assert words in refusal(start(*FREE_PORTS, "-o", setting))


def test_a_file_of_settings_that_is_missing_is_named(start: StartBroker) -> None:
    said = "barnabas: the file of settings missing.properties cannot be read: No such file or directory\n"
    assert refusal(start("start", "missing.properties")) == said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data-dir", ""), "--data-dir is empty: it must name a directory"),
        (("--data-dir", " "), "--data-dir is empty: it must name a directory"),
        (("start", ""), "the name of the file of settings is empty"),
        (("--memory", "--data-dir", "d"), "--memory and --data-dir exclude each other"),
        (("one", "two"), "only one file of settings can be given, not 2: one two"),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_anything_is_written(
    start: StartBroker, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = start(*FREE_PORTS, *arguments).finish()
    assert (code, out) == (2, "")
    assert f"Error: {words}\n" in err
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken_is_named(start: StartBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refusal(start("--memory", "--port", str(port), "--metrics-port", "0"))
    assert str(port) in text
    assert "in use" in text
    assert "listeners" in text


def test_a_metrics_port_that_is_taken_is_told_apart(start: StartBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refusal(start("--memory", "--port", "0", "--metrics-port", str(port)))
    assert str(port) in text
    assert "in use" in text
    assert "barnabas.metrics.listener" in text


def test_a_host_that_is_not_ours_is_named(start: StartBroker) -> None:
    text = refusal(start("--memory", "-o", "listeners=PLAINTEXT://192.0.2.1:0", "--metrics-port", "0"))
    assert "192.0.2.1" in text


def test_a_directory_that_another_broker_uses_is_named(start: StartBroker, tmp_path: Path) -> None:
    """The second broker refuses to start, and the first one goes on."""
    first = start(*FREE_PORTS, "--data-dir", "d")
    port = int(first.banner()["port"])
    text = refusal(start(*FREE_PORTS, "--data-dir", "d"))
    assert str(tmp_path / "d") in text or " d" in text
    assert "another broker" in text
    assert api_versions_error(port) == 0


def test_a_directory_that_cannot_be_written_is_named(start: StartBroker, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = refusal(start(*FREE_PORTS, "--data-dir", "file/below"))
    assert "file/below" in text
    assert "write" in text


# ---- signals ----------------------------------------------------------------------------------------------------


class StubbornServer:
    """Waits until told otherwise."""

    def __init__(self, during_wait: Callable[[], None] = lambda: None) -> None:
        self.during_wait = during_wait

    def wait(self, timeout: float | None = None) -> int | None:
        self.during_wait()
        return 3


def test_a_signal_during_the_start_stops_the_broker_after_it() -> None:
    signals = command.Signals()
    signals._on_signal(signal.SIGTERM, None)
    assert signals.wait(StubbornServer()) == 0  # type: ignore[arg-type]


def test_a_signal_interrupts_the_wait() -> None:
    signals = command.Signals()
    server = StubbornServer(lambda: signals._on_signal(signal.SIGINT, None))
    assert signals.wait(server) == 0  # type: ignore[arg-type]


def test_the_exit_code_of_a_broker_that_ended_by_itself_is_kept() -> None:
    assert command.Signals().wait(StubbornServer()) == 3  # type: ignore[arg-type]


def test_no_message_has_a_second_line() -> None:
    """Issue 18: client ids are part of messages, and may hold anything. A traceback still has its lines."""
    formatter = command.OneLineFormatter("%(levelname)s %(message)s")
    record = logging.LogRecord("name", logging.INFO, "", 1, "from %s", ("a\nERROR forged\x1b[2J",), None)
    assert formatter.format(record) == "INFO from a\\nERROR forged\\x1b[2J"
    try:
        raise ValueError("wrong")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert formatter.format(record).splitlines()[1].startswith("Traceback")


def test_a_second_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    signals = command.Signals()
    signals._on_signal(signal.SIGINT, None)
    signals._on_signal(signal.SIGINT, None)
    assert ended == [130]


# ---- product figures ---------------------------------------------------------------------------------------------


STARTS = 5


def start_seconds(start: StartBroker) -> tuple[float, Process]:
    began = time.perf_counter()
    process = start(*FREE_PORTS, "--memory")
    port = int(process.banner()["port"])
    assert api_versions_error(port) == 0
    return time.perf_counter() - began, process


@pytest.mark.serial
def test_the_first_answer_comes_within_0_4_seconds_of_the_start(start: StartBroker) -> None:
    """The median of several: one start may be disturbed, the typical one may not be slow."""
    seconds: list[float] = []
    for _ in range(STARTS):
        taken, process = start_seconds(start)
        seconds.append(taken)
        process.popen.kill()
        process.finish()
    assert statistics.median(seconds) <= 0.4, seconds


@pytest.mark.serial
def test_an_idle_broker_takes_at_most_60_megabytes(start: StartBroker) -> None:
    _, process = start_seconds(start)
    status = Path(f"/proc/{process.popen.pid}/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert resident
    assert int(resident[1]) / 1024 <= 60


def test_the_banner_and_the_health_page_come_only_when_clients_are_served(start: StartBroker) -> None:
    banner = start(*FREE_PORTS, "--memory").banner()
    health = banner["metrics"].replace("/metrics", "/health")

    def healthy() -> bool:
        try:
            with urllib.request.urlopen(health, timeout=10) as page:
                return bool(page.status == 200)
        except urllib.error.URLError:
            return False

    wait_until(healthy, 10, "health")
