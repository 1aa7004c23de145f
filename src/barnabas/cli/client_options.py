"""What all commands that talk to a broker share: how they find it, what they say when something fails, and their exit codes.

Role: `@client_command()` adds the options and hands the settings to the command as `client`. Precedence of the address:
--bootstrap-server, -X, the file, KAFKA_BOOTSTRAP_SERVERS, localhost:9092.
Thread: the main thread. Lock: none.

Exit codes: 0 done, 1 something failed (one line says what), 2 the command makes no sense, 130 Ctrl-C, 141 nobody reads the output.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from barnabas.config import load_properties
from barnabas.errors import BarnabasError, ConfigError

FAILED = 1
MAKES_NO_SENSE = 2
DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"

Function = TypeVar("Function", bound=Callable[..., Any])


def format_option(what: str = "table") -> Callable[[Function], Function]:
    """`--format`, with the form for people as the default."""
    return click.option(
        "--format",
        "form",
        type=click.Choice([what, "json"]),
        default=what,
        show_default=True,
        help="How it is printed.",
    )


def key_value(text: str) -> tuple[str, str]:
    """`key=value` as a pair; click's error when it is none."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.UsageError(f"{text!r} must be key=value")
    return key.strip(), value


def client_command(kind: str, *names: str) -> Callable[[Function], Callable[..., Any]]:
    """Add the options by which a client finds its cluster, and turn errors into exit codes.

    `kind` is in the names that Kafka's tools have for -X and -F; `names` are more of them for -X.
    """

    def decorate(function: Function) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(
            bootstrap_server: str | None, settings: tuple[str, ...], settings_file: Path | None, **rest: Any
        ) -> Any:
            with user_errors():
                client = client_settings(settings_file, settings, bootstrap_server)
                return function(client=client, **rest)

        return _with_options(run, kind, names)

    return decorate


def _with_options(run: Callable[..., Any], kind: str, names: tuple[str, ...]) -> Callable[..., Any]:
    server = click.option(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"Brokers to begin with.  [default: {BOOTSTRAP_VARIABLE}, or {DEFAULT_BOOTSTRAP}]",
    )
    setting = click.option(
        "-X",
        "--command-property",
        f"--{kind}-property",
        *names,
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any setting of the client; may be repeated.",
    )
    file = click.option(
        "-F",
        "--command-config",
        f"--{kind}.config",
        "settings_file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file of settings of the client.",
    )
    return server(setting(file(run)))


def client_settings(file: Path | None, settings: tuple[str, ...], server: str | None) -> dict[str, object]:
    """All settings that the user gave, in order of precedence; raises `ConfigError`."""
    given: dict[str, object] = {"bootstrap.servers": os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP}
    if file is not None:
        given.update(_read_file(file))
    given.update(key_value(text) for text in settings)
    if server is not None:
        given["bootstrap.servers"] = server
    return given


def _read_file(file: Path) -> dict[str, str]:
    try:
        return load_properties(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError("--command-config", str(file), f"cannot be read: {reason}") from error


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """One line on standard error and an exit code; what the clients log themselves is heard only when it is a wrong setting."""
    logging.basicConfig(level="ERROR", format="barnabas: %(message)s")
    for name in ("barnabas.config", "barnabas.consumer.config"):
        logging.getLogger(name).setLevel("WARNING")
    try:
        yield
    except ConfigError as error:
        fail(error, MAKES_NO_SENSE)
    except BrokenPipeError:
        raise  # cli/__init__.py: the reader of the output has left
    except (BarnabasError, OSError) as error:
        fail(error, FAILED)


def fail(error: object, code: int) -> None:
    click.echo(f"barnabas: {' '.join(str(error).split())}", err=True)
    sys.exit(code)
