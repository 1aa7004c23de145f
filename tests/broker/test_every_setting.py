"""Every setting with awful values: the broker refuses them in one line, or it starts, answers and stops (issue 18, C1 to C3).

In `make test` what is accepted of one value is tried together; with `BARNABAS_FAULTS=full` each setting by itself.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.apis import alter_client_quotas
from barnabas.broker.catalog import NewTopic
from barnabas.broker.client_quota_entities import CLIENT_KEYS, IP_KEYS
from barnabas.broker.server import BrokerServer
from barnabas.broker.settings import BROKER, broker_config
from barnabas.broker.topic_settings import TOPIC
from barnabas.config import ConfigType
from barnabas.errors import BarnabasError, KafkaError
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tests import wire

FULL = os.environ.get("BARNABAS_FAULTS") == "full"
VALUES = ("-1", "0", "1", str(2**31 - 1), str(2**63 - 1), "text", "nul\0nul", "x" * (1 << 20))
NAMES = ["minus one", "0", "1", "largest int", "largest long", "text", "nul", "a megabyte"]
LISTENER_KEYS = ("listener.name.plaintext.max.connections", "listener.name.plaintext.max.connection.creation.rate")
BASE = {"listeners": "PLAINTEXT://127.0.0.1:0", "barnabas.metrics.listener": ""}
ME = str(BROKER["node.id"].default)
SECONDS = 20.0
"""For one answer, and for a stop; an idle machine needs milliseconds."""

NUMBERS = {row.name for row in BROKER if row.type not in (ConfigType.STRING, ConfigType.LIST)} | {*LISTENER_KEYS}
"""The others name something, such as a host, so that a value may not go together with those of others."""
NOBODY_MAY = {("max.connections", "0"), (LISTENER_KEYS[0], "0")}
"""As in Kafka a file may say so, when only the inter-broker listener is to be served."""

Settings = Mapping[str, str]


@contextmanager
def running(settings: Settings, data: Path) -> Iterator[BrokerServer]:
    """A broker with these settings, which stops in order and in time."""
    given = {**BASE, "log.dirs": str(data), **settings}
    if "log.dir" in settings:
        del given["log.dirs"]
    server = BrokerServer(broker_config(given))
    server.start()
    try:
        yield server
    finally:
        began = time.monotonic()
        orderly = server.shutdown(SECONDS)
        assert orderly, settings
        assert time.monotonic() - began < SECONDS, settings


def answers(server: BrokerServer) -> None:
    """ApiVersions is answered; so is what makes, fills and reads a topic, unless a limit closes the connection."""
    with wire.connect(server.port(), SECONDS) as sock:
        assert wire.ask(sock, wire.api_versions())
    with wire.connect(server.port(), SECONDS) as sock, suppress(ConnectionError):
        for request in (wire.create_topic("t"), wire.produce("t", wire.batch([b"v"])), wire.fetch("t", 0, wait_ms=0)):
            sock.sendall(request)
            if not wire.read_frame(sock):
                break


def try_together(tries: Iterable[tuple[str, str]], data: Path) -> None:
    """Start, answer and stop with all of these settings, or with each by itself."""
    tries = list(tries)
    alone = tries if FULL else [each for each in tries if each in NOBODY_MAY or each[0] not in NUMBERS]
    together = [] if FULL else [each for each in tries if each not in alone]
    for number, settings in enumerate([dict(together), *({key: value} for key, value in alone)]):
        refusal = refusal_of(lambda settings=settings, place=data / str(number): try_one(settings, place))  # type: ignore[misc]
        assert not refusal or len(settings) == 1, f"{refusal} {settings}"


def try_one(settings: Settings, data: Path) -> None:
    with running(settings, data) as server:
        if not any(each in NOBODY_MAY for each in settings.items()):
            answers(server)


def refusal_of(action: Callable[[], object]) -> str:
    """What the action said when it refused, in one line; "" when it did not."""
    try:
        action()
    except BarnabasError as error:
        text = str(error)
    else:
        return ""
    assert text.isprintable()
    assert len(text) < 1000
    return text


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where brokers keep their data; names without a directory are below it too."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("value", VALUES, ids=NAMES)
def test_given_at_the_start(value: str, data: Path) -> None:
    accepted = []
    for key in (*BROKER.rows, *LISTENER_KEYS):
        refusal = refusal_of(lambda given={key: value}: broker_config(given))  # type: ignore[misc]
        assert not refusal or key in refusal
        if not refusal:
            accepted.append((key, value))
    try_together(accepted, data)


def change(server: BrokerServer, settings: Settings) -> bool:
    """Make these all settings that are changed at run time; whether they were taken."""
    return not refusal_of(lambda: server.services.dynamic_config.edit(ME, lambda _: settings))


@pytest.mark.parametrize("value", VALUES, ids=NAMES)
def test_changed_at_run_time_and_after_a_restart(value: str, data: Path) -> None:
    taken: dict[str, str] = {}
    with running({}, data) as server:
        for key in (*(row.name for row in BROKER if row.dynamic), *LISTENER_KEYS):
            if change(server, {key: value}):
                taken[key] = value
                answers(server)
        if not FULL:
            assert change(server, taken)
            answers(server)
    for settings in [taken] if not FULL else [{key: value} for key in taken]:
        with running({}, data) as server:
            assert server.config.dynamic == taken or FULL
            answers(server)
            change(server, settings)
    with running({}, data) as server:
        answers(server)


@pytest.mark.parametrize("value", VALUES, ids=NAMES)
def test_stored_by_something_else(value: str, data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An older program, or somebody with SQLite: what does not fit is left out with a line that names it."""
    keys = [*BROKER.rows, *LISTENER_KEYS, "no.such.key"]
    with running({}, data) as server:
        server.services.catalog.set_broker_configs(ME, dict.fromkeys(keys, value))
    caplog.clear()
    with running({}, data) as server:
        used = server.config.dynamic
        lines = [record.getMessage() for record in caplog.records if "left out" in record.message]
        assert all(key in used or sum(f" {key} =" in f" {line}" for line in lines) == 1 for key in keys)
        answers(server)


@pytest.mark.parametrize("value", VALUES, ids=NAMES)
def test_configs_of_topics(value: str, data: Path) -> None:
    names = itertools.count()
    with running({}, data) as server:
        for row in TOPIC:
            (made,) = server.services.topics.create([NewTopic(f"t{next(names)}", 1, {row.name: value})])
            if isinstance(made, KafkaError):
                assert row.name in made.message
                assert len(made.message) < 1000
            else:
                assert made is not None
                use(server, made.name)
        server.services.topics.create([NewTopic("stored", 1)])
        server.services.catalog.set_topic_configs("stored", dict.fromkeys(TOPIC.rows, value))
    with running({}, data) as server:
        for name in server.services.catalog.snapshot.topics:
            use(server, name)
        server.services.logs.housekeeper.apply_retention()


def use(server: BrokerServer, topic: str) -> None:
    with wire.connect(server.port(), SECONDS) as sock:
        for _ in range(3):
            assert wire.ask(sock, wire.produce(topic, wire.batch([b"v"] * 3)))
        assert wire.ask(sock, wire.fetch(topic, 0, wait_ms=0))


QUOTAS = (-1.0, 0.0, 5e-324, 1.0, 2.0**31 - 1, 2.0**31, 2.0**62, 2.0**63, 1e308, float("inf"), float("nan"))


@pytest.mark.parametrize("value", QUOTAS)
def test_client_quotas(value: float, data: Path) -> None:
    """A tiny share of request time once made every answer an error."""
    with running({}, data) as server:
        for key in (*CLIENT_KEYS, *IP_KEYS):
            set_quota(server, "ip" if key in IP_KEYS else "client-id", key, value)
            with wire.connect(server.port(), SECONDS) as sock:
                assert wire.ask(sock, wire.api_versions())[4:6] == b"\0\0"
    with running({}, data) as server, wire.connect(server.port(), SECONDS) as sock:
        assert wire.ask(sock, wire.api_versions())[4:6] == b"\0\0"


def set_quota(server: BrokerServer, kind: str, key: str, value: float) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=None)], ops=[OpData(key=key, value=value, remove=False)]
    )
    request = SimpleNamespace(body=AlterClientQuotasRequest(entries=[entry], validate_only=False))
    alter_client_quotas.handle(cast(Any, request), server.services)
