"""`barnabas broker`: starts a broker and runs it until SIGTERM, Ctrl-C or a fatal error.

Role: puts the settings together (file, then environment, then --override, then options; the later wins), starts the server, says
where it is, waits, and stops it in order. What the user can mend is one line on standard error and exit code 2.
Thread: the main thread. Lock: none; signal handlers only note the wish to stop and interrupt the wait.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from barnabas import __version__
from barnabas.broker.garbage import SETTLE_SECONDS, GarbageKeeper
from barnabas.broker.settings import BROKER, broker_config, log_directories
from barnabas.broker.switch_interval import SHORT_TURNS
from barnabas.config import Config, from_environment, load_properties
from barnabas.descriptors import raise_descriptor_limit
from barnabas.errors import BarnabasError, ConfigError
from barnabas.printable import printable

if TYPE_CHECKING:
    from barnabas.broker.server import BrokerServer

log = logging.getLogger(__name__)

BAD_SETTING = 2
SHUTDOWN_SECONDS = 30.0
DEFAULT_LISTENER = str(BROKER["listeners"].default[0])
METRICS_SETTING = "barnabas.metrics.listener"
DEFAULT_METRICS = str(BROKER[METRICS_SETTING].default)
MAX_LOG_CHARACTERS = 10_000
LOG_FORMAT = "%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s"
# Names that other tools set with the same prefix; they are not settings of a broker.
NOT_SETTINGS = frozenset({"bootstrap.servers", "heap.opts", "opts", "home", "version", "jmx.opts", "log4j.opts"})


class OneLineFormatter(logging.Formatter):
    """A message holds names that peers chose, such as client ids: none of them may end a line or move a terminal's cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = printable(record.message, MAX_LOG_CHARACTERS)
        return super().formatMessage(record)


class StopRequested(BaseException):
    """Raised in the main thread by a signal, out of the wait for the broker's end."""


class Signals:
    """The first SIGTERM or SIGINT asks for an orderly stop, the second ends the process at once."""

    def __init__(self) -> None:
        self.requested = False
        self._interrupt = False

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            os._exit(128 + number)
        self.requested = True
        if self._interrupt:
            raise StopRequested

    def wait(self, server: BrokerServer) -> int:
        """Until the broker ends by itself (its exit code) or a signal comes (0). A signal that came while the broker was still
        starting counts too: starting is never interrupted half-way. This process is the broker's own, so its garbage and the turns
        of its GIL are ours."""
        garbage = GarbageKeeper()
        SHORT_TURNS.enabled = True
        try:
            self._interrupt = True
            if self.requested:
                return 0
            garbage.start()
            while (code := server.wait(SETTLE_SECONDS)) is None:
                garbage.settle(busy=SHORT_TURNS.in_use)
            return code
        except StopRequested:
            return 0
        finally:
            self._interrupt = False
            SHORT_TURNS.enabled = False
            garbage.stop()


def collect_settings(
    file: Path | None, environ: Mapping[str, str], overrides: tuple[str, ...], options: Mapping[str, object]
) -> dict[str, object]:
    """All settings that the user gave, in order of precedence; raises `BarnabasError`."""
    given: dict[str, object] = {}
    if file is not None:
        given.update(_read_file(file))
    given.update({k: v for k, v in from_environment(environ).items() if k not in NOT_SETTINGS})
    if environ.get("CLUSTER_ID"):
        given["cluster.id"] = environ["CLUSTER_ID"]
    given.update(_parse_override(text) for text in overrides)
    return _apply_options(given, options)


def _read_file(file: Path) -> dict[str, str]:
    try:
        return load_properties(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BarnabasError(f"the file of settings {file} cannot be read: {reason}") from error


def _parse_override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError("--override", text, "must be key=value")
    return key.strip(), value.strip()


def _apply_options(given: dict[str, object], options: Mapping[str, object]) -> dict[str, object]:
    """Options stand for settings: --port is the port of the first listener, --data-dir is log.dirs."""
    if options.get("data_dir") is not None:
        given.pop("log.dir", None)
        given["log.dirs"] = str(options["data_dir"])
    if options.get("port") is not None:
        first, comma, others = str(given.get("listeners", DEFAULT_LISTENER)).partition(",")
        name, mark, address = first.partition("://")
        given["listeners"] = name + mark + _with_port(address, options["port"]) + comma + others
    if options.get("metrics_port") is not None:
        given[METRICS_SETTING] = _with_port(str(given.get(METRICS_SETTING) or DEFAULT_METRICS), options["metrics_port"])
    return given


def _with_port(address: str, port: object) -> str:
    """Another port in host:port. What is nothing of that kind stays as the user wrote it, for the error that names it."""
    host, colon, old = address.rpartition(":")
    return f"{host}:{port}" if colon and "]" not in old else address


def avoid_taken_default(given: dict[str, object]) -> None:
    """Let a second broker on the machine have a free metrics port when nobody asked for a certain one; the banner says which."""
    if METRICS_SETTING in given:
        return
    host, _, port = DEFAULT_METRICS.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                given[METRICS_SETTING] = f"{host}:0"


def seconds_since_process_start() -> float:
    """How long this process lives, imports included; 0.0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    return 0.0


def banner(server: BrokerServer, data: str) -> str:
    metrics = f"http://{server.metrics_address}/metrics" if server.metrics_address else "off"
    return (
        f"Barnabas {__version__} ready on {server.bootstrap_servers} in {seconds_since_process_start():.2f} s, "
        f"data in {data}, metrics at {metrics}"
    )


def fail(error: BarnabasError) -> NoReturn:
    """What the user can mend: one line and exit code 2."""
    text = " ".join(str(error).split())
    print(f"barnabas: {text}", file=sys.stderr)
    sys.exit(BAD_SETTING)


@contextlib.contextmanager
def data_directory(given: dict[str, object], memory: bool) -> Iterator[str]:
    """Where the data goes, as the banner says it; with --memory a directory that is gone afterwards."""
    if not memory:
        yield ""
        return
    from barnabas.broker.memory_directory import MemoryDirectory

    with MemoryDirectory() as directory:
        given.pop("log.dir", None)
        given["log.dirs"] = str(directory.path)
        yield f"memory ({directory.path})"


def run(given: dict[str, object], memory: bool) -> int:
    """Start, wait, stop; returns the exit code."""
    signals = Signals()
    signals.install()
    avoid_taken_default(given)
    with data_directory(given, memory) as where:
        config = broker_config(given)
        log.info("descriptors that this process may have: %d, at its start %d", *reversed(raise_descriptor_limit()))
        server = start_server(config)
        print(banner(server, where or ", ".join(os.path.abspath(d) for d in log_directories(config))), flush=True)
        code = signals.wait(server)
        orderly = server.shutdown(SHUTDOWN_SECONDS)
        if code == 0 and orderly:
            print("Barnabas stopped in order", flush=True)
        return code or (0 if orderly else 1)


def start_server(config: Config) -> BrokerServer:
    from barnabas.broker.server import BrokerServer

    server = BrokerServer(config)
    server.start()
    return server


def check_usage(files: tuple[str, ...], memory: bool, data_dir: object) -> None:
    """What arguments cannot be, taken by themselves or together."""
    if len(files) > 1:
        raise click.UsageError(f"only one file of settings can be given, not {len(files)}: {' '.join(files)}")
    if files and not files[0].strip():
        raise click.UsageError("the name of the file of settings is empty")
    if data_dir is not None and not str(data_dir).strip():
        raise click.UsageError("--data-dir is empty: it must name a directory")
    if memory and data_dir is not None:
        raise click.UsageError("--memory and --data-dir exclude each other")


LOG_LEVELS = click.Choice(["TRACE", "DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)


@click.command("broker")
@click.argument("properties", nargs=-1, metavar="[start] [SERVER.PROPERTIES]")
@click.option(
    "-p", "--port", type=click.IntRange(0, 65535), help="Port of the first listener; 0 takes a free one. [9092]"
)
@click.option("--data-dir", type=click.Path(file_okay=False), help="Where the log lives. [./barnabas-data]")
@click.option("--memory", is_flag=True, help="Keep the data in memory; it is gone when the broker stops.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Port of /metrics and /health. [9404]")
@click.option("-o", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Any setting; may be repeated.")
@click.option("--log-level", type=LOG_LEVELS, default="WARNING", envvar="BARNABAS_LOG_LEVEL", show_default=True)
def command(
    properties: tuple[str, ...], memory: bool, overrides: tuple[str, ...], log_level: str, **options: object
) -> None:
    """Start a broker. Without arguments it listens on 127.0.0.1:9092 and keeps its data in ./barnabas-data.

    Settings come from SERVER.PROPERTIES (Kafka's own file is accepted), then the environment (KAFKA_NUM_IO_THREADS is
    num.io.threads), then --override, then the other options; the later wins. `barnabas settings broker` lists them all.
    """
    files = properties[1:] if properties[:1] == ("start",) else properties
    check_usage(files, memory, options.get("data_dir"))
    output = logging.StreamHandler()
    output.setFormatter(OneLineFormatter(LOG_FORMAT))
    logging.basicConfig(level=log_level.upper(), handlers=[output])
    try:
        given = collect_settings(Path(files[0]) if files else None, os.environ, overrides, options)
        code = run(given, memory)
    except BarnabasError as error:
        fail(error)
    sys.exit(code)
