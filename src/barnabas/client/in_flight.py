"""Requests that were sent and not answered yet, per node (PP-17).

Role: a deque per node, newest first, because answers come in the order of the requests. Thread: the I/O thread; no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from barnabas.client.requests import ClientRequest
from barnabas.net.send import Send

__all__ = ["InFlightRequest", "InFlightRequests"]

NEVER_MS = 1 << 62


class InFlightRequest:
    """`internal` requests (ApiVersions, metadata) are the network client's own and reported to nobody else."""

    __slots__ = ("api_version", "deadline_ms", "internal", "request", "send", "sent_ms")

    def __init__(self, request: ClientRequest, send: Send, api_version: int, sent_ms: int, internal: bool) -> None:
        self.request = request
        self.send = send
        self.api_version = api_version
        self.sent_ms = sent_ms
        self.internal = internal
        self.deadline_ms = sent_ms + (request.timeout_ms or 0)

    def __repr__(self) -> str:
        return f"<InFlightRequest {self.request!r} version={self.api_version} sent={self.send.done}>"


class InFlightRequests:
    """See the file header. `next_deadline_ms` is never later than the first deadline of all."""

    __slots__ = ("_limit", "_queues", "next_deadline_ms")

    def __init__(self, max_per_connection: int) -> None:
        self._limit = max_per_connection
        self._queues: dict[int, deque[InFlightRequest]] = {}
        self.next_deadline_ms = NEVER_MS

    def add(self, entry: InFlightRequest) -> None:
        node_id = entry.request.node_id
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = deque()
        queue.appendleft(entry)
        if entry.deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = entry.deadline_ms

    def can_send_more(self, node_id: int) -> bool:
        """Nothing in flight, or the newest is fully sent and there is room for another."""
        queue = self._queues.get(node_id)
        return not queue or (queue[0].send.done and len(queue) < self._limit)

    def oldest(self, node_id: int) -> InFlightRequest | None:
        """The request that the node's next response answers."""
        queue = self._queues.get(node_id)
        return queue[-1] if queue else None

    def complete_oldest(self, node_id: int) -> InFlightRequest:
        return self._queues[node_id].pop()

    def complete_newest(self, node_id: int) -> InFlightRequest:
        """For a request that expects no response and was just fully sent."""
        return self._queues[node_id].popleft()

    def newest(self, node_id: int) -> InFlightRequest | None:
        queue = self._queues.get(node_id)
        return queue[0] if queue else None

    def clear(self, node_id: int) -> list[InFlightRequest]:
        """Forget all requests of a node; the oldest first."""
        queue = self._queues.pop(node_id, None)
        return [] if queue is None else list(reversed(queue))

    def count(self, node_id: int | None = None) -> int:
        """Of one node, or of all."""
        if node_id is None:
            return sum(map(len, self._queues.values()))
        queue = self._queues.get(node_id)
        return 0 if queue is None else len(queue)

    def extend_deadlines(self, node_id: int, milliseconds: int) -> None:
        """Time in which the broker holds us back by a quota is not its answer time."""
        for entry in self._queues.get(node_id, ()):
            entry.deadline_ms += milliseconds

    def expired_nodes(self, now_ms: int) -> list[int]:
        """Nodes that did not answer some request in time."""
        if now_ms <= self.next_deadline_ms:
            return []
        expired = [
            node_id for node_id, queue in self._queues.items() if any(now_ms > entry.deadline_ms for entry in queue)
        ]
        self.next_deadline_ms = min((entry.deadline_ms for entry in self._all()), default=NEVER_MS)
        return expired

    def _all(self) -> Iterator[InFlightRequest]:
        for queue in self._queues.values():
            yield from queue

    def __repr__(self) -> str:
        return f"<InFlightRequests { ({node_id: len(queue) for node_id, queue in self._queues.items() if queue}) }>"
