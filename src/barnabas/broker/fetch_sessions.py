"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, then only what changes.

Role:    `FetchSessionCache.new_context` turns a Fetch request into the list of partitions to read, and the context turns
         the results into what must be answered: everything (full fetch) or only what has changed (incremental).
Threads: any.
Lock:    one per session, then one for the cache, which is a leaf: what is done for each of many partitions is done under the session's
         lock only. Neither is held while a log is read.

Requests, by session id and epoch::

    id    epoch
    0     -1     no session; also every version before 7
    any    0     full fetch: the named session is closed, a new one is made if the cache has room, else answer id 0
    any   -1     full fetch that closes the session
    n     k>0    incremental: the k-th of session n; unknown id: 70, other epoch: 71, names instead of ids or reverse: 106

The cache holds 1000 sessions and, over all of them, a bounded number of partitions. A new session may push out one that was not used for
two minutes, else one that is older than two minutes and smaller than itself; without room it is answered with id 0, and the client
goes on with full fetches. A session that grows beyond what is left is closed (70), and the client begins again.

Partitions that the broker has never had take no place: a full fetch that names some gets id 0, and an incremental one that adds some is
answered with id 0, which closes the session. To leave only them out would not do, because the client would wait for them in vain when
their topic is made later. Partitions that go while they are in a session stay, as in Kafka, until the client forgets them.

Only consumers have sessions here: fetches of followers are refused.
"""

from __future__ import annotations

import random
import threading
import uuid
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.slices import slices
from barnabas.clock import Clock
from barnabas.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.log.partition_log import PartitionLog
    from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
FIRST_VERSION_WITH_IDS: Final = 13
NEVER_HAD: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

TopicKey = str | uuid.UUID
PartitionKey = tuple[TopicKey, int]


class Wanted:
    """One partition that a fetch asks for: `key` names the topic by name or by id, the rest is what the request says. A session has one
    for each of its partitions, so it is kept small."""

    __slots__ = (
        "fetch_offset",
        "had",
        "high_watermark",
        "key",
        "leader_epoch",
        "local_log_start_offset",
        "max_bytes",
        "source",
    )

    def __init__(self, key: PartitionKey, request: FetchPartition) -> None:
        self.key = key
        self.source: PartitionLog | None = None
        """The log, as it was found last. It is this partition's as long as it is available; then it must be looked up again."""
        # What the session last told the client, and whether the broker has ever had the partition; under the session's lock.
        self.high_watermark = -1
        self.local_log_start_offset = -1
        self.had = False
        self.update(request)

    def update(self, request: FetchPartition) -> None:
        """Take over what a request says."""
        self.fetch_offset: int = request.fetch_offset
        self.max_bytes: int = request.partition_max_bytes
        self.leader_epoch: int = request.current_leader_epoch

    def must_answer(self, data: PartitionData) -> bool:
        """Whether the client has to hear about this partition."""
        records = data.records
        return bool(
            (records is not None and len(records))
            or data.error_code
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.local_log_start_offset
            or data.preferred_read_replica >= 0
        )

    def remember(self, data: PartitionData) -> None:
        """The client is being told `data`. After an error it is told again as soon as the error is gone."""
        self.had = self.had or data.error_code not in NEVER_HAD
        self.high_watermark = -1 if data.error_code else data.high_watermark
        self.local_log_start_offset = data.log_start_offset

    def __repr__(self) -> str:
        return f"<Wanted {self.key[0]}-{self.key[1]} at {self.fetch_offset}>"


Results = list[tuple[Wanted, "PartitionData"]]


class FetchSession:
    """One session; its fields are guarded by its lock."""

    __slots__ = ("cached_size", "created_ms", "epoch", "id", "last_used_ms", "lock", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, partitions: dict[PartitionKey, Wanted], uses_topic_ids: bool, now_ms: int):
        self.id = session_id
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = self.last_used_ms = now_ms
        self.cached_size = len(partitions)
        self.lock = threading.Lock()

    def update(self, request: FetchRequest) -> None:
        """Take over what an incremental request adds, changes and forgets."""
        for topic in request.topics:
            topic_key = _topic_key(topic, self.uses_topic_ids)
            for some in slices(topic.partitions):
                self._take_over(topic_key, some)
        for forgotten in request.forgotten_topics_data:
            topic_key = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for indexes in slices(forgotten.partitions):
                for index in indexes:
                    self.partitions.pop((topic_key, index), None)

    def _take_over(self, topic_key: TopicKey, requested: Sequence[FetchPartition]) -> None:
        partitions = self.partitions
        for wanted in requested:
            key = (topic_key, wanted.partition)
            known = partitions.get(key)
            if known is None:
                partitions[key] = Wanted(key, wanted)
            else:
                known.update(wanted)

    def __repr__(self) -> str:
        return f"<FetchSession {self.id} epoch={self.epoch} partitions={len(self.partitions)}>"


class FetchContext:
    """A fetch without a session, and the base of the others: every partition is answered, no state is kept."""

    __slots__ = ("partitions",)

    def __init__(self, partitions: list[Wanted]) -> None:
        self.partitions = partitions

    skips_unchanged: bool = False
    """Whether partitions about which there is nothing new may be left out of the results."""

    def to_answer(self, results: Results) -> Results:
        """What would be answered, without changing anything: for the size that a quota is charged with."""
        return results

    def finish(self, results: Results) -> tuple[int, int, Results]:
        """Error code, session id and what to answer. Called once, just before the answer."""
        return ErrorCode.NONE, INVALID_SESSION_ID, results

    def throttled(self) -> tuple[int, int]:
        """Error code and session id of the empty answer of a throttled fetch; the session stays as it is."""
        return ErrorCode.NONE, INVALID_SESSION_ID


class SessionErrorContext(FetchContext):
    """The session of the request cannot be used, so nothing is known about what to read."""

    __slots__ = ("_code",)

    def __init__(self, code: ErrorCode) -> None:
        super().__init__([])
        self._code = code

    def finish(self, results: Results) -> tuple[int, int, Results]:
        return self._code, INVALID_SESSION_ID, []

    def throttled(self) -> tuple[int, int]:
        return self._code, INVALID_SESSION_ID


class FullFetchContext(FetchContext):
    """A full fetch that asks for a new session."""

    __slots__ = ("_cache", "_uses_topic_ids")

    def __init__(self, partitions: list[Wanted], cache: FetchSessionCache, uses_topic_ids: bool) -> None:
        super().__init__(partitions)
        self._cache = cache
        self._uses_topic_ids = uses_topic_ids

    def finish(self, results: Results) -> tuple[int, int, Results]:
        cached: dict[PartitionKey, Wanted] = {}
        for some in slices(results):
            for wanted, data in some:
                if data.error_code and data.error_code in NEVER_HAD:
                    return ErrorCode.NONE, INVALID_SESSION_ID, results
                wanted.had = True
                wanted.high_watermark = data.high_watermark
                wanted.local_log_start_offset = data.log_start_offset
                cached[wanted.key] = wanted
        return ErrorCode.NONE, self._cache.create(cached, self._uses_topic_ids), results


class IncrementalFetchContext(FetchContext):
    """The next request of a session."""

    __slots__ = ("_cache", "_epoch", "_session")

    def __init__(self, session: FetchSession, cache: FetchSessionCache) -> None:
        """With the session's lock held."""
        super().__init__(list(session.partitions.values()))
        self._session = session
        self._cache = cache
        self._epoch = session.epoch

    skips_unchanged = True

    def to_answer(self, results: Results) -> Results:
        new: Results = []
        with self._session.lock:
            for some in slices(results):
                new.extend([(wanted, data) for wanted, data in some if wanted.must_answer(data)])
        return new

    def finish(self, results: Results) -> tuple[int, int, Results]:
        session = self._session
        with session.lock:
            if session.epoch != self._epoch:
                # The client gave this request up and sent another one on a new connection meanwhile.
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, []
            answered: Results = []
            had_all = True
            for some in slices(results):
                had_all &= self._answer(some, answered)
        if had_all:
            return ErrorCode.NONE, session.id, answered
        self._cache.close(session.id)
        return ErrorCode.NONE, INVALID_SESSION_ID, answered

    def _answer(self, results: Sequence[tuple[Wanted, PartitionData]], answered: Results) -> bool:
        """Whether the broker has ever had all that is answered. Under the session's lock."""
        partitions = self._session.partitions
        had_all = True
        for wanted, data in results:
            if wanted.must_answer(data):
                wanted.remember(data)
                answered.append((wanted, data))
                had_all &= wanted.had
                if data.records and partitions.get(wanted.key) is wanted:
                    # To the end: next time the others come first when max_bytes is used up.
                    partitions[wanted.key] = partitions.pop(wanted.key)
        return had_all

    def throttled(self) -> tuple[int, int]:
        session = self._session
        with session.lock:
            same = session.epoch == self._epoch
        return (ErrorCode.NONE if same else ErrorCode.INVALID_FETCH_SESSION_EPOCH), session.id


class FetchSessionCache:
    """All sessions of a broker. Thread-safe."""

    def __init__(
        self, clock: Clock, max_entries: int = 1000, max_partitions: int = 500_000, eviction_ms: int = 120_000
    ) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._max_partitions = max_partitions
        self._eviction_ms = eviction_ms
        self._lock = threading.Lock()
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._cached = 0  # the sum of their `cached_size`
        self._evictable: list[tuple[int, int]] = []  # (partitions, id) of sessions older than `eviction_ms`, sorted
        self._random = random.Random()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions that all sessions remember (NumIncrementalFetchPartitionsCached)."""
        return self._cached

    def partitions_of(self, session_id: int) -> int:
        """How many partitions a request of this session reads, besides those that it names."""
        session = self._sessions.get(session_id)
        return 0 if session is None else session.cached_size

    def new_context(self, request: FetchRequest, version: int) -> FetchContext:
        """What this request wants, by its session."""
        epoch = request.session_epoch
        uses_topic_ids = version >= FIRST_VERSION_WITH_IDS
        if epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._incremental(request, uses_topic_ids)
        if request.session_id != INVALID_SESSION_ID:
            self.close(request.session_id)
        partitions = _distinct(request, uses_topic_ids)
        if epoch == FINAL_EPOCH:
            return FetchContext(partitions)
        return FullFetchContext(partitions, self, uses_topic_ids)

    def create(self, partitions: dict[PartitionKey, Wanted], uses_topic_ids: bool) -> int:
        """A new session for these partitions; its id, or 0 when there is no room."""
        now_ms = self._clock.monotonic_ns() // 1_000_000
        with self._lock:
            if not self._make_room(len(partitions), now_ms):
                return INVALID_SESSION_ID
            if len(self._sessions) >= self._max_entries and not self._try_evict(len(partitions), now_ms):
                return INVALID_SESSION_ID
            session_id = self._new_id()
            session = self._sessions[session_id] = FetchSession(session_id, partitions, uses_topic_ids, now_ms)
            self._cached += session.cached_size
            return session_id

    def _incremental(self, request: FetchRequest, uses_topic_ids: bool) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        with session.lock:
            if session.epoch != request.session_epoch:
                return SessionErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            if session.uses_topic_ids is not uses_topic_ids:
                return SessionErrorContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
            if not self._may_grow(session, request):
                return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session.update(request)
            if not session.partitions:
                self.close(session.id)
                return FetchContext([])
            if not self._touch(session):
                return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session.epoch = next_epoch(session.epoch)
            return IncrementalFetchContext(session, self)

    def _may_grow(self, session: FetchSession, request: FetchRequest) -> bool:
        """Whether there is room for what the request may add; if not, the session is closed: it can neither take the partitions nor
        leave them out. The sum in the cache follows in `_touch`; until then requests of other sessions may exceed it by what they name."""
        named = sum(len(topic.partitions) for topic in request.topics)
        if self._cached + named <= self._max_partitions:
            return True
        keys = (
            (_topic_key(topic, session.uses_topic_ids), p.partition)
            for topic in request.topics
            for p in topic.partitions
        )
        added = sum(key not in session.partitions for key in keys)
        with self._lock:
            if not added or self._make_room(added, self._clock.monotonic_ns() // 1_000_000, session):
                return True
        self.close(session.id)
        return False

    def close(self, session_id: int) -> None:
        """Forget a session, if it is there."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None:
                self._remove(session)

    def _touch(self, session: FetchSession) -> bool:
        """Now the most recently used one, of its present size, and evictable by larger ones once it is old enough. False when it was
        evicted meanwhile."""
        now_ms = self._clock.monotonic_ns() // 1_000_000
        size = len(session.partitions)
        with self._lock:
            if self._sessions.pop(session.id, None) is None:
                return False
            self._sessions[session.id] = session
            session.last_used_ms = now_ms
            if size != session.cached_size:
                self._drop_evictable(session)
                self._cached += size - session.cached_size
                session.cached_size = size
            if now_ms - session.created_ms > self._eviction_ms and not self._is_evictable(session):
                insort(self._evictable, (size, session.id))
            return True

    # Under the lock of the cache.

    def _new_id(self) -> int:
        while True:
            candidate = self._random.randint(1, 2**31 - 1)
            if candidate not in self._sessions:
                return candidate

    def _make_room(self, size: int, now_ms: int, keep: FetchSession | None = None) -> bool:
        """Room for `size` more partitions. Only sessions that nobody uses make way: a large one must not push out all the others."""
        while self._cached + size > self._max_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or oldest is keep or now_ms - oldest.last_used_ms <= self._eviction_ms:
                return False
            self._remove(oldest)
            self.evictions += 1
        return True

    def _try_evict(self, size: int, now_ms: int) -> bool:
        """Make room for a session of `size` partitions."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            victim = oldest
        elif self._evictable and self._evictable[0][0] < size:
            victim = self._sessions[self._evictable[0][1]]
        else:
            return False
        self._remove(victim)
        self.evictions += 1
        return True

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self._cached -= session.cached_size
        self._drop_evictable(session)

    def _is_evictable(self, session: FetchSession) -> bool:
        entry = (session.cached_size, session.id)
        at = bisect_left(self._evictable, entry)
        return at < len(self._evictable) and self._evictable[at] == entry

    def _drop_evictable(self, session: FetchSession) -> None:
        if self._is_evictable(session):
            del self._evictable[bisect_left(self._evictable, (session.cached_size, session.id))]

    def __repr__(self) -> str:
        return f"<FetchSessionCache {len(self._sessions)}/{self._max_entries} evictions={self.evictions}>"


def next_epoch(epoch: int) -> int:
    return 1 if epoch >= MAX_EPOCH else epoch + 1


def _topic_key(topic: FetchTopic, uses_topic_ids: bool) -> TopicKey:
    key: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
    return key


def _distinct(request: FetchRequest, uses_topic_ids: bool) -> list[Wanted]:
    """A partition that is named twice is read once, where it is named first but as it is named last, as in Kafka's map."""
    found: dict[PartitionKey, Wanted] = {}
    for topic in request.topics:
        topic_key = _topic_key(topic, uses_topic_ids)
        for some in slices(topic.partitions):
            for partition in some:
                key = (topic_key, partition.partition)
                found[key] = Wanted(key, partition)
    return list(found.values())
