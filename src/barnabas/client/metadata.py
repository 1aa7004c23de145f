"""What a client knows of the cluster, and when it has to ask again (PP-23, PP-24).

Role: holds the current `Cluster` snapshot, the topics that somebody needs, and the times of the next update. The network client's
updater asks `next_request`, sends it, and hands the answer to `update`. A full update replaces the snapshot, a partial one (only new
topics) is merged into it. Leader epochs that go back are ignored, unless the topic was made anew.
Thread: any; user threads wait in `await_update`. Lock: `_changed` guards everything; `fetch` and `time_to_next_update` read one
attribute that is replaced whole, and take nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from barnabas.client.backoff import ExponentialBackoff
from barnabas.client.cluster import EMPTY_CLUSTER, NO_EPOCH, Cluster, Node, PartitionInfo, bootstrap_cluster
from barnabas.client.errors import ClientClosed, ClientTimeout
from barnabas.client.failures import ConnectionFailures
from barnabas.client.metadata_answer import LeaderEpochs, is_stale_leader_error, read_answer, with_partitions
from barnabas.clock import Clock, SystemClock
from barnabas.config import Config
from barnabas.errors import ErrorCode, KafkaError, error_of
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

__all__ = ["LeaderAndEpoch", "Metadata", "MetadataUpdateRequest"]

log = logging.getLogger(__name__)

NEVER_MS = 1 << 62
LONG_AGO_MS = -NEVER_MS
_FINAL_TOPIC_ERRORS = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """Who leads a partition, as far as the client knows; `epoch` is -1 when the brokers do not say."""

    node: Node | None
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class MetadataUpdateRequest:
    """A request to send, and what `update` has to know when its answer is there."""

    body: MetadataRequest
    request_version: int
    partial: bool


Listener = Callable[[Cluster], None]


class Metadata:
    """See the file header. `idle_ms`: topics that nobody asked for during this time are forgotten; None: never."""

    def __init__(
        self, config: Config, clock: Clock | None = None, idle_ms: int | None = None, auto_create: bool = True
    ) -> None:
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._backoff = ExponentialBackoff(config["retry.backoff.ms"], config["retry.backoff.max.ms"])
        self._max_age_ms: int = config["metadata.max.age.ms"]
        self._idle_ms = idle_ms
        self._auto_create = auto_create
        self._changed = threading.Condition()
        self._cluster: Cluster = EMPTY_CLUSTER
        self._bootstrap: Sequence[tuple[str, int]] = ()
        self._topics: dict[str, int] = {}  # each with the time at which it counts as idle
        self._new_topics: set[str] = set()
        self._all_topics = False
        self._epochs = LeaderEpochs()
        self._update_version = 0
        self._request_version = 0
        self._need_full = False
        self._need_partial = False
        self._last_refresh_ms = LONG_AGO_MS
        self._last_success_ms = LONG_AGO_MS
        self._attempts = 0
        self._equivalent_answers = 0
        self._next_update_ms = LONG_AGO_MS
        self._fatal: KafkaError | None = None
        self._closed = False
        self._listeners: list[Listener] = []
        self.failures = ConnectionFailures()

    # ---------------------------------------------------------------- reading

    def fetch(self) -> Cluster:
        """The snapshot of now, without waiting."""
        return self._cluster

    @property
    def update_version(self) -> int:
        """Counts the answers; a new one wakes `await_update`."""
        return self._update_version

    def time_to_next_update(self, now_ms: int) -> int:
        """0: an update is due."""
        left = self._next_update_ms - now_ms
        return left if left > 0 else 0

    def current_leader(self, topic: str, partition: int) -> LeaderAndEpoch:
        """The leader, unless a newer leader epoch was seen elsewhere: then the node is None until metadata has caught up."""
        cluster = self._cluster
        info = cluster.partition(topic, partition)
        seen = self._epochs.get(topic, partition)
        if info is None or (seen is not None and info.leader_epoch != seen):
            return LeaderAndEpoch(None, NO_EPOCH if seen is None else seen)
        return LeaderAndEpoch(cluster.node(info.leader_id), info.leader_epoch)

    def last_seen_epoch(self, topic: str, partition: int) -> int | None:
        return self._epochs.get(topic, partition)

    @property
    def topics(self) -> list[str]:
        """The topics that updates ask for."""
        with self._changed:
            return list(self._topics)

    # ---------------------------------------------------------------- asking for updates

    def bootstrap(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Begin, or begin again, with these addresses only."""
        with self._changed:
            self._bootstrap = tuple(addresses)
            self._need_full = True
            self._update_version += 1
            self._cluster = bootstrap_cluster(self._bootstrap)
            self._schedule()
            self._changed.notify_all()

    def rebootstrap(self) -> None:
        """No known broker answers any more: start again from the bootstrap servers (KIP-899)."""
        servers = ", ".join(node.address for node in bootstrap_cluster(self._bootstrap).nodes)
        log.info("Starting again from the bootstrap servers %s", servers)
        self.bootstrap(self._bootstrap)

    @property
    def bootstrap_addresses(self) -> Sequence[tuple[str, int]]:
        return self._bootstrap

    def add_topic(self, topic: str, now_ms: int) -> bool:
        """`topic` is needed now. True when it was not known to be: then a partial update is asked for."""
        expiry = NEVER_MS if self._idle_ms is None else now_ms + self._idle_ms
        with self._changed:
            known = topic in self._topics
            self._topics[topic] = expiry
            if not known:
                self._new_topics.add(topic)
                self._request_new_topics()
            return not known

    def set_topics(self, topics: Iterable[str]) -> None:
        """Exactly these topics are needed from now on."""
        with self._changed:
            wanted = set(topics)
            added = wanted - self._topics.keys()
            self._topics = dict.fromkeys(wanted, NEVER_MS)
            self._new_topics &= wanted
            if added:
                self._new_topics |= added
                self._request_new_topics()

    def want_all_topics(self, wanted: bool = True) -> None:
        with self._changed:
            self._all_topics = wanted
            self._need_full = True
            self._schedule()

    def request_update(self, topic: str | None = None) -> int:
        """Ask for an update as soon as the back-off allows (at once when no answer has told of `topic` yet). The version to wait behind;
        never blocks."""
        with self._changed:
            if topic in self._new_topics:
                self._request_new_topics()
            else:
                self._need_full = True
                self._schedule()
            return self._update_version

    def update_last_seen_epoch(self, topic: str, partition: int, epoch: int) -> bool:
        """A broker named this leader epoch; a newer one than ours means that our metadata is old, and asks for an update."""
        with self._changed:
            newer = self._epochs.advance(topic, partition, epoch)
            if newer:
                self._need_full = True
                self._schedule()
            return newer

    def await_update(self, last_version: int, timeout_s: float) -> None:
        """Wait until an answer newer than `last_version` is there; ClientTimeout names the addresses tried. Ctrl-C ends it."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._update_version > last_version or self._fatal is not None or self._closed, timeout_s
            )
            if self._closed:
                raise ClientClosed("the client was closed while it waited for metadata")
            self._raise_fatal()
            if not done:
                raise ClientTimeout(f"no metadata within {timeout_s * 1000:.0f} ms{self.failures.words()}")

    def raise_for_topic(self, topic: str) -> None:
        """A fatal error, or one that asking again for `topic` will not cure."""
        with self._changed:
            self._raise_fatal()
        code = self._cluster.topic_errors.get(topic, 0)
        if code in _FINAL_TOPIC_ERRORS:
            raise KafkaError(error_of(code), f"{error_of(code).text}: {topic}")

    def words_about(self, topic: str) -> str:
        """For the end of an error message: what the brokers said of a topic that is not known, or nothing."""
        code = self._cluster.topic_errors.get(topic, 0)
        return f"; the brokers answer {error_of(code).name} for {topic}" if code else ""

    def _raise_fatal(self) -> None:
        error, self._fatal = self._fatal, None
        if error is not None:
            raise error

    def _request_new_topics(self) -> None:
        self._last_refresh_ms = LONG_AGO_MS
        self._need_partial = True
        self._equivalent_answers = 0
        self._request_version += 1
        self._schedule()

    # ---------------------------------------------------------------- the updater's side

    def next_request(self, now_ms: int) -> MetadataUpdateRequest:
        """Partial (only new topics) when nothing asks for more."""
        with self._changed:
            partial = (
                not self._need_full
                and bool(self._new_topics)
                and not self._all_topics
                and self._last_success_ms + self._max_age_ms > now_ms
            )
            topics = None if self._all_topics else sorted(self._new_topics if partial else self._topics)
            body = MetadataRequest(
                topics=None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics],
                allow_auto_topic_creation=self._auto_create,
            )
            return MetadataUpdateRequest(body, self._request_version, partial)

    def update(self, asked: MetadataUpdateRequest, response: MetadataResponse, now_ms: int) -> None:
        """The answer to `asked` is there."""
        with self._changed:
            if self._closed:
                return
            self._need_partial = asked.request_version < self._request_version
            self._last_refresh_ms = now_ms
            self._attempts = 0
            self._update_version += 1
            if not asked.partial:
                self._need_full = False
                self._last_success_ms = now_ms
            self._equivalent_answers += 1
            self._take(response, asked, now_ms)
            self._schedule()
            listeners = list(self._listeners)
            cluster = self._cluster
            self.failures.clear()
            self._changed.notify_all()
        for listener in listeners:
            listener(cluster)

    def _take(self, response: MetadataResponse, asked: MetadataUpdateRequest, now_ms: int) -> None:
        for topic in asked.body.topics or ():
            self._new_topics.discard(topic.name or "")
        before = self._cluster
        answer, progress = read_answer(response, before, self._epochs, lambda topic: self._retains(topic, now_ms))
        if progress or answer.nodes_by_id.keys() != before.nodes_by_id.keys():
            self._equivalent_answers = 0
        if asked.partial:
            answered = {topic.name for topic in response.topics}
            kept = {
                name: info
                for name, info in before.topics.items()
                if name not in answered and self._retains(name, now_ms)
            }
            errors = {name: code for name, code in before.topic_errors.items() if name not in answered}
            answer = replace(answer, topics={**kept, **answer.topics}, topic_errors={**errors, **answer.topic_errors})
        if is_stale_leader_error(answer):
            self._need_full = True
        if answer.cluster_id != before.cluster_id:
            log.info("Cluster ID: %s", answer.cluster_id)
        self._epochs.retain(lambda topic: self._retains(topic, now_ms))
        self._cluster = answer

    def _retains(self, topic: str, now_ms: int) -> bool:
        """Whether somebody still needs the topic; an idle one is forgotten here."""
        if self._all_topics:
            return True
        expiry = self._topics.get(topic)
        if expiry is None:
            return False
        if topic in self._new_topics or expiry > now_ms:
            return True
        log.debug("Topic %s was not used for a while, its metadata is dropped", topic)
        del self._topics[topic]
        return False

    def update_leaders(
        self, leaders: Mapping[tuple[str, int], tuple[int, int]], nodes: Iterable[Node]
    ) -> set[tuple[str, int]]:
        """Newer leaders (id, epoch) that a Produce or Fetch answer named beside its error (KIP-951); the partitions that changed."""
        with self._changed:
            cluster = self._cluster
            known = {**cluster.nodes_by_id, **{node.id: node for node in nodes}}
            changed: dict[tuple[str, int], PartitionInfo] = {}
            for (topic, partition), (leader, epoch) in leaders.items():
                info = cluster.partition(topic, partition)
                seen = self._epochs.get(topic, partition)
                newest = max(NO_EPOCH if info is None else info.leader_epoch, NO_EPOCH if seen is None else seen)
                if info is not None and leader in known and epoch > newest:
                    changed[topic, partition] = replace(info, leader_id=leader, leader_epoch=epoch, error_code=0)
                    self._epochs.set(topic, partition, epoch)
            if changed:
                self._cluster = replace(cluster, nodes_by_id=known, topics=with_partitions(cluster, changed.values()))
            return set(changed)

    def failed_update(self, now_ms: int) -> None:
        """A metadata request failed: the next one waits for the back-off."""
        with self._changed:
            self._last_refresh_ms = now_ms
            self._attempts += 1
            self._equivalent_answers = 0
            self._schedule()

    def fatal_error(self, error: KafkaError) -> None:
        """Retrying cannot help: whoever waits gets this error."""
        with self._changed:
            self._fatal = error
            self._changed.notify_all()

    def on_update(self, listener: Listener) -> None:
        """Call `listener(cluster)` on the I/O thread after each update."""
        with self._changed:
            self._listeners.append(listener)

    def close(self) -> None:
        """Wakes everybody who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _schedule(self) -> None:
        """Work out the time of the next update; after every change, so that reading it costs nothing."""
        due = LONG_AGO_MS if self._need_full or self._need_partial else self._last_success_ms + self._max_age_ms
        allowed = self._last_refresh_ms + self._backoff.after(max(self._attempts - 1, 0))
        if self._equivalent_answers > 1:
            allowed = max(allowed, self._last_refresh_ms + self._backoff.after(self._equivalent_answers - 1))
        self._next_update_ms = max(due, allowed)

    def __repr__(self) -> str:
        return f"<Metadata version={self._update_version} topics={len(self._topics)} nodes={len(self._cluster.nodes_by_id)}>"
