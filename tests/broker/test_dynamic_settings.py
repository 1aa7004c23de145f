"""What is said to change at run time does change, at once and after a restart, and a stop waits for no change (issue 18, C2 and H5)."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers import RequestHandler
from barnabas.broker.server import BrokerServer
from barnabas.broker.settings import BROKER
from barnabas.client.admin import Admin
from barnabas.client.admin_results import ConfigResource, NewTopic, ResourceType
from barnabas.config import Config
from barnabas.errors import KafkaError
from barnabas.producer import Producer
from barnabas.testing import EmbeddedBroker
from barnabas.threads import ServerThread
from tests import wire
from tests.waiting import wait_until

ME = "1"


class WatchedConfig(Config):
    """Knows which settings were looked up."""

    def __init__(self, data: Path) -> None:
        self.read: set[str] = set()
        nowhere = {"listeners": "PLAINTEXT://127.0.0.1:0", "barnabas.metrics.listener": ""}
        super().__init__(BROKER, {"log.dirs": str(data), "barnabas.request.inline": "false", **nowhere})

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


def change(broker: EmbeddedBroker, **settings: object) -> None:
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    broker.server.services.dynamic_config.edit(ME, lambda _: given)


def test_every_dynamic_setting_is_followed_or_looked_up_on_each_use(tmp_path: Path) -> None:
    """Two were accepted, stored and without effect: log.flush.interval.ms and producer.id.expiration.ms."""
    config = WatchedConfig(tmp_path)
    server = BrokerServer(config)
    server.start()
    try:
        config.read.clear()
        use_everything(server)
    finally:
        assert server.shutdown(30)
    for row in BROKER:
        followed = row.name in config.followed
        assert not row.dynamic or followed != row.read_on_use, f"{row.name}: who notices a change?"
        assert not row.read_on_use or row.name in config.read, f"{row.name}: was looked up at the start only"


def use_everything(server: BrokerServer) -> None:
    """What reads settings: a topic is made by itself, filled with a compressed batch, and waited for; configs and metrics are shown."""
    client = {"bootstrap.servers": server.bootstrap_servers}
    with Producer({**client, "compression.type": "gzip"}) as producer:
        producer.send("made-by-itself", b"v" * 1000).result(30)
    with wire.connect(server.port()) as sock:
        assert wire.ask(sock, wire.fetch("made-by-itself", 1, wait_ms=1))
    with Admin(client) as admin:
        admin.describe_configs([ConfigResource(ResourceType.BROKER, ME)])
        admin.create_topics([NewTopic("made", configs={"flush.messages": "1"})])
    with Producer({**client, "compression.type": "gzip"}) as producer:
        producer.send("made", b"v" * 1000).result(30)  # to be flushed, which makes the request heavy
    server.registry.render()


def test_intervals_of_the_log_change_at_run_time_and_are_there_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        change(broker, log_flush_interval_ms=77, producer_id_expiration_ms=88)
        for _ in range(2):
            logs = broker.server.services.logs
            assert (logs.flusher.interval_ms, logs.housekeeper.producer_id_expiration_ms) == (77, 88)
            broker.restart()
        change(broker)
        logs = broker.server.services.logs
        assert (logs.flusher.interval_ms, logs.housekeeper.producer_id_expiration_ms) == (1000, 86_400_000)


@pytest.mark.parametrize(
    "key", ["max_connections", "max_connections_per_ip", "listener_name_plaintext_max_connections"]
)
def test_a_limit_of_connections_that_was_set_at_run_time_is_enforced_after_a_restart(tmp_path: Path, key: str) -> None:
    """Issue 18, H5: DescribeConfigs showed it in force."""
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        change(broker, **{key: 3})
        broker.restart()
        clients = [wire.connect(broker.port) for _ in range(3)]
        for client in clients:
            assert wire.ask(client, wire.api_versions())
        with wire.connect(broker.port) as fourth:
            fourth.sendall(wire.api_versions())
            fourth.settimeout(0.3)
            assert not answered(fourth)
        for client in clients:
            client.close()


def answered(sock: object) -> bool:
    try:
        return bool(sock.recv(1))  # type: ignore[attr-defined]
    except (TimeoutError, ConnectionError):
        return False


def test_thread_counts_that_were_set_at_run_time_are_there_after_a_restart(tmp_path: Path) -> None:
    settings = {"num.io.threads": 2, "num.network.threads": 2}
    with EmbeddedBroker(config=settings, data_dir=tmp_path) as broker:
        change(broker, num_io_threads=4, num_network_threads=3, log_cleaner_threads=2)
        for _ in range(2):
            sockets, logs = broker.server.socket_server, broker.server.services.logs
            assert (sockets.pools["data-plane"].size, len(sockets.processors)) == (4, 3)
            assert "2 threads" in repr(logs.cleaner)
            broker.restart()


def test_a_broker_starts_although_the_stored_count_of_threads_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(config={"num.io.threads": 4}, data_dir=tmp_path) as broker:
        change(broker, num_io_threads=8)
        monkeypatch.setattr(RequestHandler, "start", only_below(6, RequestHandler.start))
        caplog.set_level(logging.WARNING)
        broker.restart()
        assert broker.server.socket_server.pools["data-plane"].size == 4
        assert broker.server.config["num.io.threads"] == 4
        assert "num.io.threads=8" in caplog.text
        with wire.connect(broker.port) as client:
            assert wire.ask(client, wire.api_versions())


@pytest.mark.parametrize(
    ("key", "kind"), [("num.io.threads", "request-handler"), ("num.network.threads", "network-thread")]
)
def test_a_thread_that_cannot_be_started_undoes_the_change(
    monkeypatch: pytest.MonkeyPatch, key: str, kind: str
) -> None:
    """Issue 18, C2."""
    with EmbeddedBroker(config={key: 3}) as broker:
        server = broker.server
        with monkeypatch.context() as patched:
            patched.setattr(ServerThread, "start", only_first(2, ServerThread.start))
            with pytest.raises(KafkaError, match=r"INVALID_CONFIG.*can't start new thread"):
                server.services.dynamic_config.edit(ME, lambda _: {key: "6"})
        assert server.config[key] == 3
        assert not server.services.catalog.snapshot.broker_configs
        names = [thread.name for thread in threading.enumerate()]
        wait_until(lambda: sum(kind in each.name for each in threading.enumerate()) == 3, what=f"three of {names}")
        with wire.connect(broker.port) as client:
            assert wire.ask(client, wire.api_versions())
        server.services.dynamic_config.edit(ME, lambda _: {key: "6"})
        assert sum(kind in each.name for each in threading.enumerate()) == 6


Start = Callable[..., None]


def only_below(limit: int, start: Start) -> Start:
    def refuse(handler: RequestHandler, timeout: float = 30.0) -> None:
        if handler.id >= limit:
            raise RuntimeError("can't start new thread")
        start(handler, timeout)

    return refuse


def only_first(count: int, start: Start) -> Start:
    started: list[ServerThread] = []

    def refuse(thread: ServerThread, timeout: float = 30.0) -> None:
        if len(started) == count:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread, timeout)

    return refuse


@pytest.mark.parametrize("key", ["num.io.threads", "num.network.threads", "log.cleaner.threads"])
def test_a_stop_does_not_wait_for_threads_that_are_being_started(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Issue 18, C2: SIGTERM was not obeyed while a handler started thread after thread."""
    with EmbeddedBroker(config={key: 2}) as broker:
        server = broker.server
        start, entered, go_on = ServerThread.start, threading.Event(), threading.Event()

        def slow(thread: ServerThread, timeout: float = 30.0) -> None:
            entered.set()
            go_on.wait(60)
            start(thread, timeout)

        with monkeypatch.context() as patched:
            patched.setattr(ServerThread, "start", slow)
            changing = threading.Thread(target=try_to_change, args=(server, key))
            changing.start()
            try:
                assert entered.wait(30)
                began = time.monotonic()
                assert server.shutdown(20)
                assert time.monotonic() - began < 20
            finally:
                go_on.set()
                changing.join(30)
        wait_until(lambda: not changing.is_alive())


def try_to_change(server: BrokerServer, key: str) -> None:
    with contextlib.suppress(KafkaError):  # the broker is stopping
        server.services.dynamic_config.edit(ME, lambda _: {key: "4"})
