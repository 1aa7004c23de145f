"""Driving a network client from a test: real selector, real sockets, the test's own thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from barnabas.client.addresses import parse_bootstrap
from barnabas.client.cluster import Node
from barnabas.client.config import MAX_IN_FLIGHT, client_config
from barnabas.client.metadata import Metadata
from barnabas.client.network_client import NetworkClient, make_selector
from barnabas.client.requests import ClientRequest, ClientResponse

DEADLINE_SECONDS = 30.0
QUICK = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 5, "retry.backoff.ms": 5, "retry.backoff.max.ms": 5}


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Driver:
    """A network client of its own, with its metadata; closes both."""

    def __init__(self, servers: str, settings: Mapping[str, object] | None = None, **arguments: object) -> None:
        self.config = client_config(
            "test", {"bootstrap.servers": servers, **QUICK, **(settings or {})}, rows=(MAX_IN_FLIGHT,)
        )
        self.metadata = Metadata(self.config)
        self.metadata.bootstrap(parse_bootstrap(servers))
        self.client = NetworkClient(make_selector(self.config), self.metadata, "tester", self.config, **arguments)
        self.responses: list[ClientResponse] = []

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def poll_until(self, condition: Callable[[], object], what: str = "the condition") -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"{what} did not come true within {DEADLINE_SECONDS} s: {self.client!r}")
            self.responses += self.client.poll(20, now_ms())

    def learn(self, topic: str) -> None:
        """Ask for the topic's metadata and wait for it."""
        self.metadata.add_topic(topic, now_ms())
        self.poll_until(lambda: self.metadata.fetch().available_partitions(topic), f"metadata of {topic}")

    def connect(self, node: Node) -> Node:
        self.poll_until(lambda: self.client.ready(node, now_ms()), f"a connection to {node}")
        return node

    def ask(self, request: ClientRequest) -> ClientResponse:
        """Send and wait for the end."""
        self.client.send(request, now_ms())
        self.poll_until(lambda: any(item.request is request for item in self.responses), f"the end of {request!r}")
        return next(item for item in self.responses if item.request is request)
