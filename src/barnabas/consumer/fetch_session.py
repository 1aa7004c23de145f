"""Fetch sessions (KIP-227): after a first full request a broker remembers the partitions, and requests name only what changed.

Role: one session per node; builds the next request from what is wanted now, and follows the broker's answer. A broker that forgot the
session, or a connection that broke, starts a new one. Thread: the consumer's; no lock.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.client.cluster import Partition
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from barnabas.protocol.schema import ZERO_UUID

__all__ = ["LAST_VERSION_WITH_NAMES", "FetchSession", "Wanted"]

LAST_VERSION_WITH_NAMES = 12
_NO_SESSION = 0
_FIRST_EPOCH = 0
_FINAL_EPOCH = -1
_MAX_EPOCH = 0x7FFF_FFFF
_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Wanted(NamedTuple):
    """What to ask for of one partition."""

    topic_id: uuid.UUID
    offset: int
    leader_epoch: int
    max_bytes: int


class FetchSession:
    """See the file header."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._known: dict[Partition, Wanted] = {}
        self._uses_ids = True

    @property
    def id(self) -> int:
        return self._id

    @property
    def partitions(self) -> Iterable[Partition]:
        """What the broker has in its session after the last request."""
        return self._known.keys()

    @property
    def uses_ids(self) -> bool:
        """Whether topics are named by their ids (version 13 and later)."""
        return self._uses_ids

    def build(self, wanted: Mapping[Partition, Wanted], request: FetchRequest) -> FetchRequest:
        """Fill in session, topics and forgotten topics."""
        uses_ids = all(row.topic_id != ZERO_UUID for row in wanted.values())
        if uses_ids != self._uses_ids:
            self._epoch = _FIRST_EPOCH  # a session names its topics in one way only
            self._uses_ids = uses_ids
        request.session_id = self._id
        request.session_epoch = self._epoch
        if self._epoch == _FIRST_EPOCH:
            self._known = dict(wanted)
            request.topics = _topics(wanted)
            return request
        before = self._known
        changed = {place: row for place, row in wanted.items() if before.get(place) != row}
        gone = [place for place in before if place not in wanted]
        renamed = [place for place in changed if place in before and before[place].topic_id != changed[place].topic_id]
        request.topics = _topics(changed)
        request.forgotten_topics_data = _forgotten({place: before[place].topic_id for place in (*gone, *renamed)})
        self._known = dict(wanted)
        return request

    def build_close(self, request: FetchRequest) -> FetchRequest | None:
        """A request that ends the session on the broker; None when there is none."""
        if self._id == _NO_SESSION:
            return None
        request.session_id = self._id
        request.session_epoch = _FINAL_EPOCH
        return request

    def take(self, response: FetchResponse) -> bool:
        """Follow the answer; False when the session is lost and the same has to be asked for again."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND or response.error_code not in _LOST:
                self._id = _NO_SESSION
            self._epoch = _FIRST_EPOCH
            return False
        if response.session_id == _NO_SESSION:
            self._id, self._epoch = _NO_SESSION, _FIRST_EPOCH
        else:
            self._id = response.session_id
            self._epoch = 1 if self._epoch in (_FIRST_EPOCH, _MAX_EPOCH) else self._epoch + 1
        return True

    def lost_connection(self) -> None:
        """No answer: begin again, and let the broker replace the old session."""
        self._epoch = _FIRST_EPOCH

    def __repr__(self) -> str:
        return f"<FetchSession {self._id} epoch={self._epoch} partitions={len(self._known)}>"


def _topics(wanted: Mapping[Partition, Wanted]) -> list[FetchTopic]:
    rows: dict[tuple[str, uuid.UUID], list[FetchPartition]] = defaultdict(list)
    for (topic, number), row in wanted.items():
        rows[topic, row.topic_id].append(
            FetchPartition(
                partition=number,
                current_leader_epoch=row.leader_epoch,
                fetch_offset=row.offset,
                partition_max_bytes=row.max_bytes,
            )
        )
    return [FetchTopic(topic=topic, topic_id=topic_id, partitions=found) for (topic, topic_id), found in rows.items()]


def _forgotten(places: Mapping[Partition, uuid.UUID]) -> list[ForgottenTopic]:
    rows: dict[tuple[str, uuid.UUID], list[int]] = defaultdict(list)
    for (topic, number), topic_id in places.items():
        rows[topic, topic_id].append(number)
    return [
        ForgottenTopic(topic=topic, topic_id=topic_id, partitions=found) for (topic, topic_id), found in rows.items()
    ]
