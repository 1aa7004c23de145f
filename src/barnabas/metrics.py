"""Metrics: counters, log-scaled histograms, gauges and the registry that renders them as Prometheus text.

Role: on the hot path a metric is an int in a slot or a list; names, labels and text are made only when somebody scrapes.
Thread: `Counter.add` and `Histogram.record` belong to ONE writer thread (each thread has a shard of its own); any thread may
read, and sees each int either before or after an update. `SharedCounter` may be written by any thread.
Lock: `SharedCounter` and `Registry` have one each, never held while calling out.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]

SUB_BITS = 3
SUB = 1 << SUB_BITS
BUCKETS = 62 * SUB
"""Eight buckets per power of two: a quantile is right within 12.5 %, over the whole range of 64-bit nanoseconds."""


class Counter:
    """A count with one writer."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount

    def __repr__(self) -> str:
        return f"Counter({self.value})"


class SharedCounter:
    """A count with many writers."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0

    def add(self, amount: int = 1) -> None:
        with self._lock:
            self.value += amount

    def __repr__(self) -> str:
        return f"SharedCounter({self.value})"


def bucket_of(value: int) -> int:
    """The bucket for a value: values below 8 have a bucket each, then eight buckets per power of two."""
    if value < SUB:
        return value if value > 0 else 0
    shift = value.bit_length() - SUB_BITS - 1
    index = (shift << SUB_BITS) + (value >> shift)
    return index if index < BUCKETS else BUCKETS - 1


def bucket_upper_bound(index: int) -> int:
    """The largest value that falls into a bucket."""
    if index < SUB:
        return index
    shift = (index >> SUB_BITS) - 1
    return (((index & (SUB - 1)) + SUB + 1) << shift) - 1


class Histogram:
    """A distribution of non-negative ints with one writer; shards are merged on scrape."""

    __slots__ = ("buckets", "count", "max", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.count = 0
        self.sum = 0
        self.max = 0

    def record(self, value: int) -> None:
        self.buckets[bucket_of(value)] += 1
        self.count += 1
        self.sum += value
        if value > self.max:
            self.max = value

    def merge(self, other: Histogram) -> None:
        """Add what another shard has seen; `self` must be private to the caller."""
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.count += other.count
        self.sum += other.sum
        self.max = max(self.max, other.max)

    def quantile(self, q: float) -> int:
        """The value below which a share `q` of all values lies, within one bucket; 0 when there is none."""
        return self.quantiles((q,))[0]

    def quantiles(self, qs: Sequence[float]) -> list[int]:
        total = sum(self.buckets)
        if not total:
            return [0] * len(qs)
        found: list[int] = []
        index, seen = 0, self.buckets[0]
        for q in qs:
            wanted = max(1, q * total)
            while seen < wanted and index < BUCKETS - 1:
                index += 1
                seen += self.buckets[index]
            found.append(min(bucket_upper_bound(index), self.max))
        return found

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def __repr__(self) -> str:
        p50, p99 = self.quantiles((0.5, 0.99))
        return f"Histogram(count={self.count}, p50={p50}, p99={p99}, max={self.max})"


def merged(shards: Iterable[Histogram]) -> Histogram:
    """One private histogram with what all shards have seen."""
    total = Histogram()
    for shard in shards:
        total.merge(shard)
    return total


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric, declared once: the text page and the reference are made from it."""

    name: str
    kind: str  # counter, gauge, summary or histogram
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the text page: a suffix to the metric's name, the labels and the value."""

    value: float
    labels: Labels = ()
    suffix: str = ""


Collect = Callable[[], Iterable[Sample]]


class Registry:
    """The metrics of one broker: a row and a function that collects its samples. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[str, tuple[MetricRow, list[Collect]]] = {}

    def register(self, row: MetricRow, collect: Collect) -> None:
        """Add a source of samples to a row; several owners may feed one row, each with its own labels."""
        with self._lock:
            self._sources.setdefault(row.name, (row, []))[1].append(collect)

    def unregister(self, row: MetricRow, collect: Collect) -> None:
        with self._lock:
            entry = self._sources.get(row.name)
            if entry and collect in entry[1]:
                entry[1].remove(collect)

    def gauge(self, row: MetricRow, read: Callable[[], float], labels: Labels = ()) -> Collect:
        """Register a single number that is read on scrape; returns the handle for `unregister`."""

        def collect() -> Iterable[Sample]:
            return (Sample(float(read()), labels),)

        self.register(row, collect)
        return collect

    def collect(self) -> Iterator[tuple[MetricRow, list[Sample]]]:
        with self._lock:
            sources = [(row, tuple(collects)) for row, collects in self._sources.values()]
        for row, collects in sources:
            yield row, [sample for collect in collects for sample in collect()]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that carry these labels, for tests and for the doctor."""
        wanted = set(labels.items())
        for row, samples in self.collect():
            if row.name == name:
                return sum(s.value for s in samples if not s.suffix and wanted <= set(s.labels))
        raise KeyError(name)

    def render(self) -> str:
        """The Prometheus text form, version 0.0.4."""
        lines: list[str] = []
        for row, samples in self.collect():
            if samples:
                lines.append(f"# HELP {row.name} {row.help}")
                lines.append(f"# TYPE {row.name} {row.kind}")
                lines.extend(f"{row.name}{s.suffix}{_label_text(s.labels)} {_number(s.value)}" for s in samples)
        return "\n".join(lines) + "\n"


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
