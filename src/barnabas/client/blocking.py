"""A client for one thread that waits for its own answers: what consumer and admin client stand on.

Role: owns selector, metadata and network client, and turns "send and poll until answered" into calls with a deadline. Whatever the
network does meanwhile (disconnects, a leader that moved, a broker that is away) is retried until the deadline, with back-off.
Thread: its owner's; only `abandon_waits` and the network's `wakeup` from others. Lock: none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from barnabas.client.addresses import resolved_bootstrap
from barnabas.client.backoff import ExponentialBackoff
from barnabas.client.cluster import Cluster, Node, bootstrap_cluster
from barnabas.client.errors import ClientClosed, ClientTimeout, ForkedClient
from barnabas.client.metadata import Metadata
from barnabas.client.network_client import NetworkClient, make_selector
from barnabas.client.requests import BodyBuilder, ClientRequest, ClientResponse
from barnabas.clock import Clock, SystemClock
from barnabas.config import Config
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.protocol.schema import Message

__all__ = ["BlockingClient", "Deadline", "SingleThread"]

_LONGEST_POLL_MS = 1000  # so that a signal is seen even where it does not interrupt the system call


class Deadline:
    """The end of a blocking call."""

    __slots__ = ("_clock", "end_ms", "timeout_s")

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self.timeout_s = timeout_s
        self.end_ms = clock.monotonic_ns() // 1_000_000 + round(timeout_s * 1000)

    @property
    def left_ms(self) -> int:
        return max(self.end_ms - self._clock.monotonic_ns() // 1_000_000, 0)

    @property
    def over(self) -> bool:
        return self.left_ms == 0


class SingleThread:
    """Refuses a second thread while a first one is inside, and a forked process: `with owner:` around every public call."""

    __slots__ = ("_lock", "_process", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._process = os.getpid()
        self._lock = threading.Lock()

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that made the client: the connections are the parent's."""
        return os.getpid() != self._process

    def __enter__(self) -> None:
        if self.is_forked:
            raise ForkedClient(f"this {self._what} was made before this process was forked; make one in the child")
        if not self._lock.acquire(blocking=False):
            raise BarnabasError(f"this {self._what} is being used by another thread: give each thread one of its own")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class BlockingClient:
    """See the file header."""

    def __init__(self, config: Config, clock: Clock | None = None, auto_create: bool = True) -> None:
        self.config = config
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.metadata = Metadata(config, self.clock, auto_create=auto_create)
        self.metadata.bootstrap(resolved_bootstrap(config["bootstrap.servers"]))
        self.network = NetworkClient(
            make_selector(config, self.clock), self.metadata, config["client.id"], config, self.clock
        )
        self._backoff = ExponentialBackoff(config["retry.backoff.ms"], config["retry.backoff.max.ms"])
        self._abandoned = False

    def now_ms(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000

    def deadline(self, timeout_s: float) -> Deadline:
        return Deadline(self.clock, timeout_s)

    def poll(self, timeout_ms: float) -> list[ClientResponse]:
        return self.network.poll(min(timeout_ms, _LONGEST_POLL_MS), self.now_ms())

    def abandon_waits(self) -> None:
        """Any thread: what waits now or later gets ClientClosed at once, because its owner is about to close."""
        self._abandoned = True
        self.network.wakeup()

    def close(self) -> None:
        self.network.close()

    # ---------------------------------------------------------------- waiting

    def wait_until(self, condition: Callable[[], object], deadline: Deadline, what: str) -> None:
        """Poll until the condition holds; ClientTimeout names what was waited for and the addresses that failed."""
        while not condition():
            if self._abandoned:
                raise ClientClosed(f"{what}: the client was closed meanwhile")
            if deadline.over:
                tried = self.metadata.failures.words()
                raise ClientTimeout(f"waited {deadline.timeout_s * 1000:.0f} ms for {what}{tried}")
            self.poll(deadline.left_ms)

    def reach(self, deadline: Deadline) -> None:
        """Until a broker has answered; at once KafkaError when every bootstrap server refuses the connection."""
        addresses = [node.address for node in bootstrap_cluster(self.metadata.bootstrap_addresses).nodes]

        def answered() -> bool:
            if self.metadata.failures.all_refused(addresses):
                places = ", ".join(addresses)
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"nobody listens at {places}: connection refused")
            return not self.metadata.fetch().is_bootstrap

        self.wait_until(answered, deadline, "a broker to answer")

    def pause(self, attempt: int, deadline: Deadline) -> None:
        """The back-off after a failed attempt, counted from 0, with the network served meanwhile."""
        end_ms = min(self.now_ms() + self._backoff.after(attempt), deadline.end_ms)
        while (left := end_ms - self.now_ms()) > 0 and not self._abandoned:
            self.poll(left)

    def topics(self, topics: list[str], deadline: Deadline) -> Cluster:
        """Metadata in which each of these topics is described; KafkaError when one is refused for good."""
        now = self.now_ms()
        for topic in topics:
            self.metadata.add_topic(topic, now)

        def described() -> bool:
            for topic in topics:
                self.metadata.raise_for_topic(topic)
            known = self.metadata.fetch().topics
            return all(topic in known for topic in topics)

        try:
            self.wait_until(described, deadline, f"metadata of {', '.join(topics)}")
        except ClientTimeout as error:
            raise ClientTimeout(error.message + "".join(map(self.metadata.words_about, topics))) from None
        return self.metadata.fetch()

    # ---------------------------------------------------------------- calls

    def send(self, node: Node, api_key: int, body: Message | BodyBuilder, deadline: Deadline) -> Any:
        """The answer of one node to one request; KafkaError NETWORK_EXCEPTION when the connection broke before it came."""
        self.wait_until(lambda: self.network.ready(node, self.now_ms()), deadline, f"a connection to {node.address}")
        ended: list[ClientResponse] = []
        request = ClientRequest(node.id, api_key, body, self.now_ms(), callback=ended.append)
        self.network.send(request, self.now_ms())
        self.wait_until(lambda: ended, deadline, f"the answer of {node.address}")
        return _body_of(ended[0], node)

    def send_anywhere(self, api_key: int, body: Message | BodyBuilder, deadline: Deadline) -> Any:
        """The answer of whichever node is least busy, tried again elsewhere when a connection breaks."""
        return self.retry(lambda: self.send(self._any_node(deadline), api_key, body, deadline), deadline)

    def send_to_controller(self, api_key: int, body: Message | BodyBuilder, deadline: Deadline) -> Any:
        """The answer of the controller, or of any node where brokers forward to it."""
        return self.retry(lambda: self.send(self._controller(deadline), api_key, body, deadline), deadline)

    def retry(self, attempt: Callable[[], Any], deadline: Deadline) -> Any:
        """What `attempt` returns, tried again with back-off and new metadata while its error is retriable and time is left."""
        count = 0
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if not error.retriable or isinstance(error, ClientTimeout) or deadline.over:
                    raise
            self.metadata.request_update()
            self.pause(count, deadline)
            count += 1

    def _any_node(self, deadline: Deadline) -> Node:
        found: list[Node] = []

        def choose() -> bool:
            node = self.network.least_loaded_node(self.now_ms())
            if node is not None and not self.metadata.fetch().is_bootstrap:
                found.append(node)
            return bool(found)

        self.wait_until(choose, deadline, "a broker to answer")
        return found[-1]

    def _controller(self, deadline: Deadline) -> Node:
        node = self._any_node(deadline)
        return self.metadata.fetch().controller or node


def _body_of(response: ClientResponse, node: Node) -> Any:
    if response.version_mismatch is not None:
        raise response.version_mismatch
    if response.disconnected:
        why = "no answer in time" if response.timed_out else "the connection broke"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{node.address}: {why}")
    return response.body
