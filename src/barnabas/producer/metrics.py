"""What a producer counts, under Kafka's names.

Role: written by the I/O thread only, read by `Producer.metrics()`. Thread: one writer, any reader. Lock: none, see
`barnabas.metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.metrics import Counter, Histogram
from barnabas.producer.batch import ProducerBatch
from barnabas.records.kernel.builder import HEADER_SIZE

__all__ = ["ProducerMetrics"]


class ProducerMetrics:
    """See the file header."""

    def __init__(self) -> None:
        self.record_sends = Counter()
        self.record_retries = Counter()
        self.record_errors = Counter()
        self.batch_splits = Counter()
        self.requests = Counter()
        self.bytes_sent = Counter()
        self.batch_sizes = Histogram()
        self.records_per_request = Histogram()
        self.queue_times = Histogram()
        self.latencies = Histogram()
        self.throttle_times = Histogram()
        self._plain_bytes = 0
        self._packed_bytes = 0

    def sent(self, batches: Iterable[ProducerBatch], now_ms: int) -> None:
        """A request with these batches leaves."""
        records = 0
        for batch in batches:
            records += batch.record_count
            self.bytes_sent.add(batch.size)
            self.batch_sizes.record(batch.size)
            self.queue_times.record(now_ms - batch.created_ms)
            self._plain_bytes += batch.plain_size - HEADER_SIZE
            self._packed_bytes += batch.size - HEADER_SIZE
        self.requests.add()
        self.record_sends.add(records)
        self.records_per_request.record(records)

    def answered(self, latency_ms: int, throttle_ms: int) -> None:
        self.latencies.record(latency_ms)
        self.throttle_times.record(throttle_ms)

    def values(self) -> dict[str, float]:
        """Kafka's names of the group `producer-metrics`."""
        return {
            "record-send-total": self.record_sends.value,
            "record-retry-total": self.record_retries.value,
            "record-error-total": self.record_errors.value,
            "batch-split-total": self.batch_splits.value,
            "request-total": self.requests.value,
            "outgoing-byte-total": self.bytes_sent.value,
            "batch-size-avg": self.batch_sizes.mean,
            "batch-size-max": self.batch_sizes.max,
            "records-per-request-avg": self.records_per_request.mean,
            "record-queue-time-avg": self.queue_times.mean,
            "record-queue-time-max": self.queue_times.max,
            "request-latency-avg": self.latencies.mean,
            "request-latency-max": self.latencies.max,
            "produce-throttle-time-avg": self.throttle_times.mean,
            "produce-throttle-time-max": self.throttle_times.max,
            "compression-rate-avg": self._packed_bytes / self._plain_bytes if self._plain_bytes else 1.0,
        }
