"""Brokers as child processes, ours and Apache Kafka alike: start on a free loopback port with a data directory of its own, wait for
the first ApiVersions answer, watch the memory, stop by pid. Used by the benchmark, the demo and the tests of whole clients.

Each `BrokerProcess` is owned by one thread and is a context manager: whatever happens, its process is gone at the end of the block.
"""

from __future__ import annotations

import base64
import os
import random
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil

from bench.peers.tools import java_command

HOST = "127.0.0.1"
API_VERSIONS_V0 = struct.pack(">ihhih5s", 15, 18, 0, 1, 5, b"bench")
# What Kafka's own start script passes to the JVM.
KAFKA_JVM = (
    "-Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
    "-XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true"
)


class BrokerFailed(Exception):
    """A broker ended, or never answered; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one broker runs: a directory that is its own and ports that were free a moment ago."""

    directory: Path
    port: int
    side_port: int
    """Kafka's controller listener; the metrics page of ours."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How to start one kind of broker: `command(place, settings)` prepares the directory and gives the command line."""

    name: str
    command: Callable[[Place, Mapping[str, str]], list[str]]
    durable: Mapping[str, str]
    """The settings with which an acknowledged record is on the disk."""
    start_seconds: float = 60


def free_port(taken: frozenset[int] = frozenset()) -> int:
    """A port below the range from which the system takes the ports of outgoing connections, so that none can snatch it."""
    for _ in range(200):
        port = random.randint(20_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in taken:
            return port
    raise BrokerFailed("no free port between 20000 and 32000")


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def barnabas_command(place: Place, settings: Mapping[str, str]) -> list[str]:
    return our_command(shlex.quote(sys.executable) + " -m barnabas broker")(place, settings)


def our_command(start: str) -> Callable[[Place, Mapping[str, str]], list[str]]:
    """The command line of our broker, started by `start`, with settings in a server.properties file."""

    def command(place: Place, settings: Mapping[str, str]) -> list[str]:
        line = shlex.split(start)
        if settings:
            line.append(str(write_properties(place.directory / "server.properties", settings)))
        line += ["--port", str(place.port), "--data-dir", str(place.directory / "data")]
        return [*line, "--metrics-port", str(place.side_port)]

    return command


def kafka_command_with(options: tuple[str, ...]) -> Callable[[Place, Mapping[str, str]], list[str]]:
    """The command line of Apache Kafka in a JVM with these options."""

    def command(place: Place, settings: Mapping[str, str]) -> list[str]:
        return java_command("kafka.Kafka", str(_formatted(place, settings)), options=options)

    return command


def _formatted(place: Place, settings: Mapping[str, str]) -> Path:
    """Formats the directory (not part of the start-up time) of a broker with its controller in it; its properties."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{place.side_port}",
        "listeners": f"PLAINTEXT://{HOST}:{place.port},CONTROLLER://{HOST}:{place.side_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(place.directory / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    file = write_properties(place.directory / "server.properties", {**properties, **settings})
    if (place.directory / "data" / "meta.properties").exists():
        return file  # it comes back after a kill
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    storage = java_command("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(file))
    subprocess.run(storage, check=True, capture_output=True, timeout=150)
    return file


OURS = Kind("Barnabas", barnabas_command, {"log.flush.acks.all": "true"})
KAFKA = Kind("Kafka", kafka_command_with(tuple(shlex.split(KAFKA_JVM))), {"log.flush.interval.messages": "1"})


def dies_with_its_parent() -> list[str]:
    """A prefix by which Linux ends the broker should the harness be killed before it could; it replaces itself by the broker."""
    return ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


def answers_api_versions(port: int, timeout: float = 1.0) -> bool:
    """True when the broker at `port` answers an ApiVersions request without an error."""
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            connection.sendall(API_VERSIONS_V0)
            with connection.makefile("rb") as stream:
                answer = stream.read(4)
                answer += stream.read(int.from_bytes(answer, "big"))
    except OSError:
        return False
    return len(answer) >= 10 and struct.unpack_from(">ih", answer, 4) == (1, 0)


def _environment() -> dict[str, str]:
    """Tests run the modules of the request path as plain Python in their own process; a broker in a process of its own is compiled,
    as users have it, unless BARNABAS_LIVE_NATIVE=0."""
    return {**os.environ, "BARNABAS_NATIVE": os.environ.get("BARNABAS_LIVE_NATIVE", "1")}


@dataclass(slots=True)
class BrokerProcess:
    """One running broker. Not thread-safe."""

    kind: Kind
    settings: Mapping[str, str] = field(default_factory=dict)
    parent_directory: Path | None = None
    started_in: float = 0.0
    place: Place = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)

    def __enter__(self) -> BrokerProcess:
        directory = Path(tempfile.mkdtemp(prefix=f"barnabas-{self.kind.name.lower()}-", dir=self.parent_directory))
        port = free_port()
        self.place = Place(directory, port, free_port(frozenset([port])))
        try:
            self.start()
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.place.directory, ignore_errors=True)

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.place.port}"

    @property
    def metrics_url(self) -> str:
        return f"http://{HOST}:{self.place.side_port}/metrics"

    @property
    def log_file(self) -> Path:
        return self.place.directory / "broker.log"

    def start(self) -> None:
        """Spawn and wait for the first ApiVersions answer; `started_in` is the time between the two."""
        began = self.spawn()
        try:
            self._await_answer(began + self.kind.start_seconds)
        except BaseException:
            self.stop()
            raise
        self.started_in = time.monotonic() - began

    def spawn(self) -> float:
        """Start the process and do not wait for it; when that was, by the monotonic clock."""
        command = [*dies_with_its_parent(), *self.kind.command(self.place, self.settings)]
        with self.log_file.open("ab") as log:
            began = time.monotonic()
            # A session of its own: Ctrl-C reaches only the harness, which then stops its brokers in order.
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=_environment()
            )
        return began

    def _await_answer(self, deadline: float) -> None:
        while not answers_api_versions(self.place.port):
            if self.process.poll() is not None:
                raise BrokerFailed(f"{self.kind.name} ended with {self.process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"{self.kind.name} did not answer in {self.kind.start_seconds:.0f} s:\n{self.log_tail()}"
                )
            time.sleep(0.002)

    def stop(self, timeout: float = 30) -> int:
        """Ask it to end, insist after `timeout`; its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(10)

    def kill(self) -> None:
        """As `kill -9` does: nothing is flushed or closed. `start` brings it back with the same directory and ports."""
        self.process.kill()
        self.process.wait(10)

    def resident_bytes(self) -> int:
        """Resident memory of the process and of whatever it started."""
        root = psutil.Process(self.process.pid)
        return sum(process.memory_info().rss for process in [root, *root.children(recursive=True)])

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
