"""Fetching: asks the leaders for the next records of every partition, ahead of what `poll` has handed out.

Role: one fetch request per node is in flight, in a session. While a partition's data is being read, the next of it is asked for already,
but not more: per partition there is at most one fetch being read, one waiting and one on its way, so memory is bounded by
three times what is asked for of each (`max.partition.fetch.bytes`, or more for columns). Thread: the consumer's; no lock.
"""

from __future__ import annotations

import logging
from collections import deque

from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import Node, Partition
from barnabas.client.errors import UnknownPartition
from barnabas.client.metadata_answer import STALE_METADATA_ERRORS
from barnabas.client.requests import ClientRequest, ClientResponse
from barnabas.consumer.assignment import Assignment, PartitionState
from barnabas.consumer.fetch_session import LAST_VERSION_WITH_NAMES, FetchSession, Wanted
from barnabas.consumer.fetched_partition import Decoding, FetchedPartition
from barnabas.consumer.leaders import Leaders
from barnabas.errors import ErrorCode, KafkaError, error_of
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.schema import ZERO_UUID

__all__ = ["Fetcher"]

log = logging.getLogger(__name__)

FETCH = int(ApiKey.FETCH)
_ANY_VERSION = 32767
COLUMNS_PARTITION_BYTES = 4 * 1024 * 1024
COLUMNS_BYTES = 16 * 1024 * 1024
_QUIET_ERRORS = STALE_METADATA_ERRORS | {
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Errors that go by: wait, ask for metadata, fetch again."""

Asked = dict[Partition, tuple[PartitionState, int, int]]
"""What a request asked for: the state, its epoch and the offset."""


class Fetcher:
    """See the file header."""

    def __init__(self, client: BlockingClient, assignment: Assignment, leaders: Leaders) -> None:
        config = client.config
        self._client = client
        self._assignment = assignment
        self._leaders = leaders
        self._reset: str = config["auto.offset.reset"]
        self._max_wait_ms: int = config["fetch.max.wait.ms"]
        self._min_bytes: int = config["fetch.min.bytes"]
        self._max_bytes: int = config["fetch.max.bytes"]
        self._partition_bytes: int = config["max.partition.fetch.bytes"]
        self._partition_bytes_chosen = config.is_set("max.partition.fetch.bytes")
        self.for_columns = False  # whether what is fetched now becomes Arrow columns
        self._rack: str = config["client.rack"]
        self._retry_ms: int = config["retry.backoff.ms"]
        committed: bool = config["isolation.level"] == "read_committed"
        self._isolation = 1 if committed else 0
        self._decoding = Decoding(config["check.crcs"], committed, config["barnabas.fetch.max.decompressed.bytes"])
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[int, Asked] = {}
        self._waiting: deque[FetchedPartition] = deque()
        self._errors: deque[KafkaError] = deque()
        self.fetches = 0
        self.bytes_fetched = 0
        self.fetch_time_ms = 0

    # ---------------------------------------------------------------- what came

    def next_fetched(self) -> FetchedPartition | None:
        """The next fetch that is wanted and not of a paused partition; behind the last, raises what a broker said against one."""
        paused: list[FetchedPartition] = []
        found: FetchedPartition | None = None
        while self._waiting and found is None:
            fetched = self._waiting.popleft()
            if fetched.is_stale:
                continue
            if fetched.state.paused:
                paused.append(fetched)
            else:
                found = fetched
        self._waiting.extendleft(reversed(paused))
        if found is None and self._errors:
            raise self._errors.popleft()
        return found

    def put_back(self, fetched: FetchedPartition) -> None:
        """For a fetch whose partition was paused while it was being read."""
        self._waiting.appendleft(fetched)

    @property
    def has_data(self) -> bool:
        return bool(self._errors) or any(not item.is_stale and not item.state.paused for item in self._waiting)

    # ---------------------------------------------------------------- asking

    def send_fetches(self) -> None:
        """Ask every leader that is not asked already for what is wanted of it."""
        if len(self._in_flight) >= len(self._client.metadata.fetch().nodes_by_id) > 0:
            return  # the common turn while an answer comes in pieces: all are asked
        now_ms = self._client.now_ms()
        wanted: dict[int, dict[Partition, Wanted]] = {}
        waiting = {fetched.state.partition for fetched in self._waiting if not fetched.is_stale}
        nodes: dict[int, Node] = {}
        partition_bytes = self._bytes_of_a_partition()
        for state in self._assignment:
            if not state.has_position or state.paused or state.is_read:
                continue
            if state.partition in waiting or state.backoff_until_ms > now_ms:
                continue
            try:
                leader = self._leaders.of(state)
            except UnknownPartition as error:
                self._fail(state, error)
                continue
            if leader.node is not None and leader.node.id not in self._in_flight:
                nodes[leader.node.id] = leader.node
                topic_id = self._client.metadata.fetch().topic_id(state.partition[0]) or ZERO_UUID
                row = Wanted(topic_id, state.fetch_offset, leader.epoch, partition_bytes)
                wanted.setdefault(leader.node.id, {})[state.partition] = row
        for node_id, rows in wanted.items():
            if self._client.network.ready(nodes[node_id], now_ms):
                self._send(node_id, rows, now_ms)

    def _bytes_of_a_partition(self) -> int:
        """How much of one partition to ask for. Columns are made by the answer, and each answer costs as much Python as some thousand
        records: unless the user chose a size, larger ones are asked for, as long as few partitions share the memory."""
        if self._partition_bytes_chosen or not self.for_columns:
            return self._partition_bytes
        share = COLUMNS_BYTES // max(len(self._assignment.partitions), 1)
        return max(self._partition_bytes, min(share, COLUMNS_PARTITION_BYTES))

    def _send(self, node_id: int, rows: dict[Partition, Wanted], now_ms: int) -> None:
        session = self._sessions.setdefault(node_id, FetchSession())
        body = session.build(rows, self._request())
        asked: Asked = {}
        for partition, row in rows.items():
            state = self._assignment[partition]
            asked[partition] = (state, state.epoch, row.offset)
        self._in_flight[node_id] = asked
        newest = _ANY_VERSION if session.uses_ids else LAST_VERSION_WITH_NAMES
        request = ClientRequest(node_id, FETCH, body, now_ms, callback=self._take, max_version=newest)
        self._client.network.send(request, now_ms)

    def _request(self) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation,
            rack_id=self._rack,
        )

    def close_sessions(self) -> None:
        """Tell the brokers that their sessions may go; nobody waits for the answer."""
        now_ms = self._client.now_ms()
        for node_id, session in self._sessions.items():
            body = session.build_close(self._request())
            if body is not None and self._client.network.can_send_request(node_id, now_ms):
                body.max_wait_ms = 0
                newest = _ANY_VERSION if session.uses_ids else LAST_VERSION_WITH_NAMES
                self._client.network.send(ClientRequest(node_id, FETCH, body, now_ms, max_version=newest), now_ms)

    # ---------------------------------------------------------------- answers

    def _take(self, response: ClientResponse) -> None:
        """The end of a fetch request (callback of the network client)."""
        node_id = response.request.node_id
        asked = self._in_flight.pop(node_id)
        session = self._sessions[node_id]
        if response.version_mismatch is not None:
            self._errors.append(response.version_mismatch)
        elif response.disconnected:
            session.lost_connection()
        elif session.take(response.body):
            self.fetches += 1
            self.fetch_time_ms += response.latency_ms
            self._take_partitions(response.body, asked)
        elif not error_of(response.body.error_code).retriable:
            self._errors.append(KafkaError(error_of(response.body.error_code), "a broker refused a fetch request"))

    def _take_partitions(self, body: FetchResponse, asked: Asked) -> None:
        names = self._topic_names(asked) if body.responses and not body.responses[0].topic else {}
        leaders: dict[Partition, tuple[int, int]] = {}
        for topic in body.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                place = asked.get((name, row.partition_index))
                if row.current_leader.leader_id >= 0:
                    leaders[name, row.partition_index] = (row.current_leader.leader_id, row.current_leader.leader_epoch)
                if place is not None and place[0].epoch == place[1]:
                    self._take_partition(place[0], place[2], row)
        if leaders:
            nodes = [Node(item.node_id, item.host, item.port, item.rack) for item in body.node_endpoints]
            self._client.metadata.update_leaders(leaders, nodes)

    def _topic_names(self, asked: Asked) -> dict[object, str]:
        ids = self._client.metadata.fetch().topic_ids
        return {ids[topic]: topic for topic, _ in asked if topic in ids}

    def _take_partition(self, state: PartitionState, offset: int, row: PartitionData) -> None:
        if row.error_code:
            self._take_error(state, offset, error_of(row.error_code))
            return
        state.high_watermark = row.high_watermark
        state.last_stable_offset = row.last_stable_offset
        state.log_start_offset = row.log_start_offset
        if row.records:
            data = memoryview(row.records)  # type: ignore[arg-type]  # bytes or a view of the frame
            self.bytes_fetched += len(data)
            try:
                fetched = FetchedPartition(state, offset, data, row.aborted_transactions or (), self._decoding)
            except KafkaError as error:
                self._fail(state, error)
                return
            state.fetch_offset = fetched.end_offset
            self._waiting.append(fetched)

    def _take_error(self, state: PartitionState, offset: int, code: ErrorCode) -> None:
        topic, number = state.partition
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state, offset)
        elif code in _QUIET_ERRORS:
            log.debug("Fetching %s-%d: %s, will try again", topic, number, code.name)
            state.backoff_until_ms = self._client.now_ms() + self._retry_ms
            self._client.metadata.request_update()
        else:
            self._fail(state, KafkaError(code, f"{code.text}: {topic}-{number} at offset {offset}"))

    def _out_of_range(self, state: PartitionState, offset: int) -> None:
        topic, number = state.partition
        if state.position < offset:
            # Only read ahead: what was fetched in front of it comes first, and the position is then where this offset is.
            state.backoff_until_ms = self._client.now_ms() + self._retry_ms
        elif self._reset == "none":
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            self._fail(state, KafkaError(code, f"{code.text}: offset {offset} of {topic}-{number}"))
        else:
            log.info("Offset %d of %s-%d is gone: going on at the %s", offset, topic, number, self._reset)
            state.reset_by(self._reset)

    def _fail(self, state: PartitionState, error: KafkaError) -> None:
        """The user has to decide; until then the partition is tried again only now and then."""
        state.backoff_until_ms = self._client.now_ms() + max(self._retry_ms, 1)
        self._errors.append(error)

    def __repr__(self) -> str:
        return f"<Fetcher in_flight={list(self._in_flight)} waiting={list(self._waiting)}>"
