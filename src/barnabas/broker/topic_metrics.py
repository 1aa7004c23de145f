"""Traffic per topic (RP-32): bytes and records in and out, requests and failures.

Role:    Produce and Fetch add to the counters of a topic; scraping sums them. One object per topic, looked up by name.
Threads: written by every handler and processor, read by whoever scrapes, in slices.
Lock:    one per topic, held for a few additions; one for making a topic's object. A `+=` on a shared int is not atomic,
         with or without the GIL, and one uncontended lock for all counters of a request costs less than shards would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from barnabas.broker import metrics as rows
from barnabas.broker.slices import slices
from barnabas.metrics import MetricRow, Registry, Table, label_text

TopicLines = Sequence[tuple[str, "TopicTraffic"]]

FIELDS: dict[str, MetricRow] = {
    "messages_in": rows.MESSAGES_IN,
    "bytes_in": rows.BYTES_IN,
    "bytes_out": rows.BYTES_OUT,
    "produce_requests": rows.PRODUCE_REQUESTS,
    "fetch_requests": rows.FETCH_REQUESTS,
    "failed_produce_requests": rows.FAILED_PRODUCE,
    "failed_fetch_requests": rows.FAILED_FETCH,
}


class TopicTraffic:
    """The counters of one topic. Thread-safe; the fields may be read without the lock."""

    __slots__ = ("_lock", *FIELDS)

    bytes_in: int
    bytes_out: int
    messages_in: int
    produce_requests: int
    fetch_requests: int
    failed_produce_requests: int
    failed_fetch_requests: int

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bytes_in = self.bytes_out = self.messages_in = 0
        self.produce_requests = self.fetch_requests = 0
        self.failed_produce_requests = self.failed_fetch_requests = 0

    def produced(self, messages: int, size: int) -> None:
        """One partition of a Produce request was written."""
        with self._lock:
            self.produce_requests += 1
            self.messages_in += messages
            self.bytes_in += size

    def produce_failed(self, partitions: int = 1) -> None:
        with self._lock:
            self.produce_requests += partitions
            self.failed_produce_requests += partitions

    def fetched(self, size: int, partitions: int = 1, failed: int = 0) -> None:
        """Partitions of a Fetch request were read, of which some may have failed; the bytes of the others are being sent."""
        with self._lock:
            self.fetch_requests += partitions
            self.failed_fetch_requests += failed
            self.bytes_out += size

    def __repr__(self) -> str:
        return f"<TopicTraffic in={self.bytes_in} out={self.bytes_out} messages={self.messages_in}>"


class TopicMetrics:
    """The traffic of all topics. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, TopicTraffic] = {}
        self._removed = TopicTraffic()  # what deleted topics had, so that the totals never go back
        self.unknown = TopicTraffic()
        """Requests for topics that do not exist: they count in the totals, and no name of a peer's choice makes a label."""

    def of(self, topic: str) -> TopicTraffic:
        """The counters of an existing topic."""
        found = self._topics.get(topic)
        if found is None:
            with self._lock:
                found = self._topics.setdefault(topic, TopicTraffic())
        return found

    def remove(self, topic: str) -> None:
        """The topic was deleted: its label goes, its share of the totals stays."""
        with self._lock:
            gone = self._topics.pop(topic, None)
            if gone is not None:
                for name in FIELDS:
                    setattr(self._removed, name, getattr(self._removed, name) + getattr(gone, name))

    def total(self, field: str) -> int:
        """A counter over all topics, also deleted ones."""
        with self._lock:
            parts = [*self._topics.values(), self._removed, self.unknown]
        return sum(getattr(part, field) for part in parts)

    def register(self, registry: Registry, most: Callable[[], int]) -> None:
        """Feed the rows `kafka_server_brokertopicmetrics_*`: lines of their own for `most` topics, and the total of all."""
        columns = [(row, attrgetter(field)) for field, row in FIELDS.items()]
        registry.register_table(Table(columns, lambda: self._lines(most())))
        registry.gauge(rows.LEFT_OUT, lambda: max(0, len(self._topics) - most()), label_text(what="topics"))

    def _lines(self, most: int) -> Iterator[TopicLines]:
        """Labels and counters, a slice at a time, the total last; one pass over the topics, because there may be many."""
        with self._lock:
            topics = list(self._topics.items())
            total = self._sum([self._removed, self.unknown])
        left = most
        for part in slices(topics):
            total = self._sum([total, *(traffic for _, traffic in part)])
            yield [(label_text(topic=topic), traffic) for topic, traffic in part[:left]]
            left -= min(left, len(part))
        yield [("", total)]

    @staticmethod
    def _sum(parts: Sequence[TopicTraffic]) -> TopicTraffic:
        total = TopicTraffic()
        for name in FIELDS:
            setattr(total, name, sum(getattr(part, name) for part in parts))
        return total

    def __repr__(self) -> str:
        return f"<TopicMetrics {len(self._topics)} topics>"
