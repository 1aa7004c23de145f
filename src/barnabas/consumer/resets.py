"""Finding a position for partitions that have none: at the start, after a seek to an end or a time, when an offset is gone.

Role: ListOffsets requests that nobody waits for: `run` sends what is due, the answers set positions when they come.
Thread: the consumer's; no lock.
"""

from __future__ import annotations

from collections import defaultdict, deque

from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import Node, Partition
from barnabas.client.offsets import EARLIEST, LATEST, LIST_OFFSETS, OffsetFinder
from barnabas.client.requests import ClientRequest, ClientResponse
from barnabas.consumer.assignment import Assignment, PartitionState
from barnabas.consumer.config import duration_ms
from barnabas.consumer.leaders import Leaders
from barnabas.errors import ErrorCode, KafkaError, error_of
from barnabas.protocol.messages.list_offsets import ListOffsetsPartitionResponse

__all__ = ["PositionResets"]

MAX_ERRORS = 100  # of a consumer that is not polled
Asked = dict[Partition, tuple[PartitionState, int]]


class PositionResets:
    """See the file header."""

    def __init__(self, client: BlockingClient, assignment: Assignment, leaders: Leaders, finder: OffsetFinder) -> None:
        self._client = client
        self._assignment = assignment
        self._leaders = leaders
        self._finder = finder
        self._retry_ms: int = client.config["retry.backoff.ms"]
        self._in_flight: set[Partition] = set()
        self._errors: deque[KafkaError] = deque(maxlen=MAX_ERRORS)

    def run(self) -> None:
        """Ask for what is missing; what retrying cannot cure, and a partition without a strategy, is an error for `raise_error`."""
        now_ms = self._client.now_ms()
        by_leader: dict[Node, list[PartitionState]] = defaultdict(list)
        for state in self._assignment.waiting_for_reset():
            if state.partition in self._in_flight or state.backoff_until_ms > now_ms:
                continue
            try:
                leader = self._leader_of(state)
            except KafkaError as error:
                state.backoff_until_ms = now_ms + self._retry_ms
                self._errors.append(error)
                continue
            if leader is not None:
                by_leader[leader].append(state)
        for leader, states in by_leader.items():
            if self._client.network.ready(leader, now_ms):
                self._ask(leader, states, now_ms)

    def raise_error(self) -> None:
        """What `run` met, one error for each call."""
        if self._errors:
            raise self._errors.popleft()

    def _leader_of(self, state: PartitionState) -> Node | None:
        if state.reset == "none":
            topic, number = state.partition
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{topic}-{number} has no position and auto.offset.reset is none: seek first",
            )
        self._client.metadata.raise_for_topic(state.partition[0])
        return self._leaders.of(state).node

    def _ask(self, leader: Node, states: list[PartitionState], now_ms: int) -> None:
        times = {state.partition: self._time(state.reset or "latest") for state in states}
        asked: Asked = {state.partition: (state, state.epoch) for state in states}
        body = self._finder.request(list(times), times)
        self._in_flight |= asked.keys()
        self._client.network.send(
            ClientRequest(leader.id, LIST_OFFSETS, body, now_ms, callback=lambda response: self._take(response, asked)),
            now_ms,
        )

    def _time(self, strategy: str) -> int:
        if strategy == "earliest":
            return EARLIEST
        span = duration_ms(strategy)
        if span is not None:
            return self._client.clock.wall_ms() - span
        return int(strategy.removeprefix("time:")) if strategy.startswith("time:") else LATEST

    def _take(self, response: ClientResponse, asked: Asked) -> None:
        self._in_flight -= asked.keys()
        retry_at = self._client.now_ms() + self._retry_ms
        if not response.was_answered:
            if response.version_mismatch is not None:
                self._errors.append(response.version_mismatch)
            for state, _ in asked.values():
                state.backoff_until_ms = retry_at
            return
        for topic in response.body.topics:
            for row in topic.partitions:
                place = asked.get((topic.name, row.partition_index))
                if place is not None and place[0].epoch == place[1]:
                    self._take_partition(place[0], row, retry_at)

    def _take_partition(self, state: PartitionState, row: ListOffsetsPartitionResponse, retry_at: int) -> None:
        topic, number = state.partition
        code = error_of(row.error_code)
        if not row.error_code and row.offset >= 0:
            state.seek(row.offset)
        elif not row.error_code:
            state.reset_by("latest")  # no record is that young
        elif code.retriable:
            state.backoff_until_ms = retry_at
            self._client.metadata.request_update()
        else:
            state.backoff_until_ms = retry_at
            self._errors.append(KafkaError(code, f"{code.text}: {topic}-{number}"))
