"""Request metrics as samples of the text page (RP-31): summaries with Kafka's names, real histograms beside them.

Role: turns the merged shards of `request_metrics.py` into samples; nothing here runs on the request path.
Thread: whoever scrapes. Lock: none; one snapshot of the shards serves all rows of a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.broker import metrics as rows
from barnabas.broker.request_figures import PARTS
from barnabas.broker.request_metrics import ApiStats, RequestMetrics, error_name
from barnabas.clock import Clock
from barnabas.metrics import SUB_BITS, Histogram, Registry, Sample, bucket_upper_bound, label_text, with_label

NS_PER_MS = 1e6
NS_PER_S = 1e9
SNAPSHOT_NS = 500_000_000
"""All rows of one scrape read one snapshot; a later scrape makes a new one."""

# The bounds of the real histograms: every second power of two from 1 µs to 68 s, as bucket indexes.
BOUNDS = tuple(((bits - SUB_BITS) << SUB_BITS) + (1 << SUB_BITS) - 1 for bits in range(10, 37, 2))


class RequestMetricsPage:
    """Registers every row of RP-31."""

    def __init__(self, metrics: RequestMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._snapshot: dict[str, ApiStats] = {}
        self._taken_ns = -SNAPSHOT_NS

    def register(self, registry: Registry) -> None:
        for part, summary, histogram in zip(PARTS, rows.TIMES, rows.SECONDS, strict=True):
            registry.register(summary, self._summary(part))
            registry.register(histogram, self._histogram(part))
        registry.register(rows.REQUEST_BYTES, self._of(ApiStats.request_bytes))
        registry.register(rows.TEMPORARY_MEMORY, self._of(lambda stats: stats.temporary))
        registry.register(rows.MESSAGE_CONVERSIONS_TIME, self._of(lambda stats: stats.conversions, NS_PER_MS))
        registry.register(rows.REQUESTS, self._requests)
        registry.register(rows.ERRORS, self._errors)

    def _stats(self) -> dict[str, ApiStats]:
        now = self._clock.monotonic_ns()
        if now - self._taken_ns >= SNAPSHOT_NS:
            self._snapshot = self._metrics.snapshot()
            self._taken_ns = now
        return self._snapshot

    def _summary(self, part: str) -> Callable[[], Iterator[Sample]]:
        return self._of(lambda stats: stats.histogram(part), NS_PER_MS)

    def _of(self, read: Callable[[ApiStats], Histogram], unit: float = 1.0) -> Callable[[], Iterator[Sample]]:
        def collect() -> Iterator[Sample]:
            for name, stats in self._stats().items():
                yield from summary_samples(read(stats), label_text(request=name), unit)

        return collect

    def _histogram(self, part: str) -> Callable[[], Iterator[Sample]]:
        def collect() -> Iterator[Sample]:
            for name, stats in self._stats().items():
                yield from bucket_samples(stats.histogram(part), label_text(request=name))

        return collect

    def _requests(self) -> Iterator[Sample]:
        for name, stats in self._stats().items():
            for version, count in sorted(stats.versions.items()):
                yield Sample(count, label_text(request=name, version=str(version)))

    def _errors(self) -> Iterator[Sample]:
        for name, stats in self._stats().items():
            for code, count in sorted(stats.errors.items()):
                yield Sample(count, label_text(request=name, error=error_name(code)))


def summary_samples(histogram: Histogram, labels: str, unit: float) -> Iterator[Sample]:
    """Quantiles, and `_count` and `_sum` beside them."""
    values = histogram.quantiles(rows.QUANTILES)
    for q, value in zip(rows.QUANTILES, values, strict=True):
        yield Sample(value / unit, with_label(labels, quantile=f"{q:.2f}" if q != 0.999 else "0.999"))
    yield Sample(histogram.sum / unit, labels, "_sum")
    yield Sample(histogram.count, labels, "_count")


def bucket_samples(histogram: Histogram, labels: str) -> Iterator[Sample]:
    """Cumulative buckets in seconds."""
    seen, index = 0, 0
    for bound in BOUNDS:
        seen += sum(histogram.buckets[index : bound + 1])
        index = bound + 1
        yield Sample(seen, with_label(labels, le=f"{(bucket_upper_bound(bound) + 1) / NS_PER_S:g}"), "_bucket")
    yield Sample(histogram.count, with_label(labels, le="+Inf"), "_bucket")
    yield Sample(histogram.sum / NS_PER_S, labels, "_sum")
    yield Sample(histogram.count, labels, "_count")


def flush_samples(histogram: Callable[[], Histogram]) -> Callable[[], Iterator[Sample]]:
    """The flush times of the log as a summary in milliseconds."""
    return lambda: summary_samples(histogram(), "", NS_PER_MS)
