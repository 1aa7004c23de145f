"""What becomes of the batches of one Produce request: success, retry, split or failure (PP-25 .. PP-29).

Role: turns a response, or the lack of one, into an outcome per batch. Thread: the I/O thread. Lock: none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.client.cluster import Node
from barnabas.client.errors import NodeNotReady
from barnabas.client.metadata import Metadata
from barnabas.client.requests import ClientResponse
from barnabas.errors import ErrorCode, KafkaError
from barnabas.producer.batch import ProducerBatch
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

if TYPE_CHECKING:
    from barnabas.producer.sender import Sender

__all__ = ["AnswerHandler"]

log = logging.getLogger(__name__)

Place = tuple[str, int]

_INVALID_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)

_SUCCESS = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


def error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)  # type: ignore[call-arg]  # by value
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class AnswerHandler:
    """See the file header; the sender does what is decided here."""

    def __init__(self, sender: Sender, metadata: Metadata) -> None:
        self._sender = sender
        self._metadata = metadata

    def handle(
        self, response: ClientResponse, batches: Mapping[Place, ProducerBatch], names: Mapping[object, str]
    ) -> None:
        """`names` are the topics of the request by id, for versions that answer with ids."""
        for batch in batches.values():
            batch.in_flight = False
        now_ms = response.received_ms
        if response.disconnected:
            code = ErrorCode.REQUEST_TIMED_OUT if response.timed_out else ErrorCode.NETWORK_EXCEPTION
            self._all(batches, code, f"no answer of node {response.request.node_id}: the connection broke", now_ms)
        elif response.version_mismatch is not None:
            self._all(batches, ErrorCode.UNSUPPORTED_VERSION, str(response.version_mismatch), now_ms)
        elif response.body is None:  # acks=0: fully sent
            self._all(batches, ErrorCode.NONE, "", now_ms)
        else:
            self._handle_body(response.body, batches, names, now_ms)

    def fail_unsent(self, batches: Mapping[Place, ProducerBatch], error: Exception, now_ms: int) -> None:
        """The request could not even be made."""
        for batch in batches.values():
            batch.in_flight = False
            if isinstance(error, NodeNotReady):
                answer = PartitionProduceResponse(
                    index=batch.place[1],
                    error_code=int(ErrorCode.NETWORK_EXCEPTION),
                    base_offset=-1,
                    error_message=str(error),
                )
                self._finish(batch, answer, now_ms)
            else:
                self._sender.fail_batch(batch, error, True)
                self._sender.unmute(batch)

    def _all(self, batches: Mapping[Place, ProducerBatch], code: ErrorCode, message: str, now_ms: int) -> None:
        for batch in batches.values():
            answer = PartitionProduceResponse(
                index=batch.place[1], error_code=int(code), base_offset=-1, error_message=message
            )
            self._finish(batch, answer, now_ms)

    def _handle_body(
        self, body: ProduceResponse, batches: Mapping[Place, ProducerBatch], names: Mapping[object, str], now_ms: int
    ) -> None:
        leaders: dict[Place, tuple[int, int]] = {}
        unanswered = dict(batches)
        for topic in body.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for answer in topic.partition_responses:
                batch = unanswered.pop((name, answer.index), None)
                if batch is None:
                    log.warning(
                        "The answer names %s-%s, which was not in the request", name or topic.topic_id, answer.index
                    )
                    continue
                if answer.error_code and answer.current_leader.leader_id >= 0:
                    leaders[batch.place] = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
                self._finish(batch, answer, now_ms)
        if leaders:
            nodes = [Node(node.node_id, node.host, node.port, node.rack) for node in body.node_endpoints]
            self._metadata.update_leaders(leaders, nodes)
        self._all(unanswered, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer does not name the partition", now_ms)

    def _finish(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: int) -> None:
        sender = self._sender
        code = error_code(answer.error_code)
        if batch.done:
            # It expired, or was aborted, while the request was on its way: only now its memory is free.
            sender.late_answer(batch, code in _SUCCESS, answer.base_offset)
        elif code in _SUCCESS:
            sender.complete_batch(batch, answer.base_offset, answer.log_append_time_ms)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and not sender.has_expired(batch, now_ms):
            sender.split_batch(batch)
        elif sender.can_retry(batch, code, answer.log_start_offset, now_ms):
            log.warning(
                "Sending %r again (attempt %d): %s",
                batch,
                batch.attempts + 2,
                answer.error_message or code.text,
            )
            sender.reenqueue_batch(batch, now_ms)
        else:
            # Numbers that were certainly not used leave a gap for those after them.
            adjust = batch.attempts < sender.retries
            sender.fail_batch(
                batch, KafkaError(code, answer.error_message or code.text), adjust, _record_errors(code, answer)
            )
        if code in _INVALID_METADATA:
            self._metadata.request_update()
        sender.unmute(batch)


def _record_errors(code: ErrorCode, answer: PartitionProduceResponse) -> Callable[[int], BaseException] | None:
    """The errors of single records (KIP-467): those named have their own, the others failed with them."""
    if not answer.record_errors:
        return None
    only_one = len(answer.record_errors) == 1
    named: dict[int, BaseException] = {}
    for record in answer.record_errors:
        message = record.batch_index_error_message or answer.error_message or code.text
        named[record.batch_index] = KafkaError(code if only_one else ErrorCode.INVALID_RECORD, message)
    rest = KafkaError(ErrorCode.INVALID_RECORD, "another record of the same batch was refused")
    return lambda index: named.get(index, rest)
