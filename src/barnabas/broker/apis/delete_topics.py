"""DeleteTopics (key 20), versions 1-6.

The catalog forgets the topic in one commit, its logs are renamed and removed in the background, and fetches that wait
for it are answered at once. v6 names topics by id as well (KIP-516). delete.topic.enable=false: error 73 (v0-2: 42). Internal topics
belong to the broker: INVALID_TOPIC_EXCEPTION.
Thread: handler (writes the catalog, never inline). Lock: none of its own.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.broker.apis.error_texts import ErrorTexts
from barnabas.broker.catalog import CatalogSnapshot, TopicInfo
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

GONE_PARTITION = 10
"""How many elements of a list the deletion of a partition weighs: it renames a directory."""
TWICE = KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named twice in one request.")
BOTH = KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
NEITHER = KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
UNKNOWN_NAME = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_ID = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
"""Answered, never raised, and the same for each of very many topics."""
NO_ID = uuid.UUID(int=0)
FIRST_VERSION_WITH_DISABLED_ERROR = 3


def handle(request: Request, broker: BrokerServices) -> DeleteTopicsResponse:
    body: DeleteTopicsRequest = request.body
    if not broker.config["delete.topic.enable"]:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        if request.header.api_version < FIRST_VERSION_WITH_DISABLED_ERROR:
            code = ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "Topic deletion is disabled: delete.topic.enable is false.")
    wanted = _wanted(body)
    found = _find(wanted, broker.catalog.snapshot)
    doomed = [topic.name for topic in found if isinstance(topic, TopicInfo)]
    deleted = {topic.topic_id for topic in broker.topics.delete(doomed)}
    snapshot, texts = broker.catalog.snapshot, ErrorTexts()
    for place, topic in enumerate(found):
        if isinstance(topic, TopicInfo) and topic.topic_id not in deleted:
            found[place] = _why_not(topic, snapshot)
    return DeleteTopicsResponse(
        responses=[_result(state, topic, texts) for state, topic in zip(wanted, found, strict=True)]
    )


def weigh(body: DeleteTopicsRequest, broker: BrokerServices) -> int:
    snapshot = broker.catalog.snapshot
    named = (_lookup(state, snapshot) for state in _wanted(body))
    return GONE_PARTITION * sum(topic.partition_count for topic in named if isinstance(topic, TopicInfo))


def _why_not(topic: TopicInfo, snapshot: CatalogSnapshot) -> KafkaError:
    """Another request was faster, or is changing the topic."""
    if topic.topic_id in snapshot.topics_by_id:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Topic '{topic.name}' is being changed by another request.")
    return UNKNOWN_NAME


def error_response(body: DeleteTopicsRequest, version: int, error: KafkaError) -> DeleteTopicsResponse:
    texts = ErrorTexts()
    return DeleteTopicsResponse(responses=[_failure(state, error, texts) for state in _wanted(body)])


def _wanted(body: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """The topics of the request in the form of v6."""
    return body.topics or [DeleteTopicState(name=name) for name in body.topic_names]


def _find(wanted: Sequence[DeleteTopicState], snapshot: CatalogSnapshot) -> list[TopicInfo | KafkaError]:
    found = [_lookup(state, snapshot) for state in wanted]
    # By name and by id may mean the same topic, so duplicates are counted after the look-up.
    times = Counter(topic.topic_id for topic in found if isinstance(topic, TopicInfo))
    unknown = Counter((state.name, state.topic_id) for state in wanted)
    for place, (state, topic) in enumerate(zip(wanted, found, strict=True)):
        known_twice = isinstance(topic, TopicInfo) and times[topic.topic_id] > 1
        if known_twice or unknown[state.name, state.topic_id] > 1:
            found[place] = TWICE
        elif isinstance(topic, TopicInfo) and topic.internal:
            text = f"Clients cannot delete the internal topic {topic.name}."
            found[place] = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    return found


def _lookup(state: DeleteTopicState, snapshot: CatalogSnapshot) -> TopicInfo | KafkaError:
    if state.name is not None and state.topic_id != NO_ID:
        return BOTH
    if state.name is not None:
        return snapshot.topics.get(state.name) or UNKNOWN_NAME
    if state.topic_id == NO_ID:
        return NEITHER
    return snapshot.topics_by_id.get(state.topic_id) or UNKNOWN_ID


def _result(state: DeleteTopicState, topic: TopicInfo | KafkaError, texts: ErrorTexts) -> DeletableTopicResult:
    if isinstance(topic, KafkaError):
        return _failure(state, topic, texts)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=0)


def _failure(state: DeleteTopicState, error: KafkaError, texts: ErrorTexts) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=error.code, error_message=texts.of(error)
    )
