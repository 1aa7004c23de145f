"""Metrics: counters, log-scaled histograms, gauges and the registry that renders them as Prometheus text.

Role: on the hot path a metric is an int in a slot or a list; names, labels and text are made only when somebody scrapes. A page of 20 000
topics has 260 000 lines, so it is made in pieces: a sample is a tuple, its labels are text already, made once for all rows of a topic.
Thread: `Counter.add` and `Histogram.record` belong to ONE writer thread (each thread has a shard of its own); any thread may
read, and sees each int either before or after an update. `SharedCounter` may be written by any thread.
Lock: `SharedCounter` and `Registry` have one each, never held while calling out.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas.printable import printable

Item = TypeVar("Item")

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


class Sample(NamedTuple):
    """One line of the text page: the value, the labels as `label_text` writes them, and a suffix to the metric's name."""

    value: float
    labels: str = ""
    suffix: str = ""


PIECE = 256
"""About how many lines are made at a time."""

Collect = Callable[[], Iterable[Sample]]
Piece = Sequence[tuple[float, str, str]]
"""Some samples of a row. May be empty: then the work so far gave none."""


@dataclass(frozen=True, slots=True)
class Table(Generic[Item]):
    """Rows that say something of each of many items, such as topics."""

    columns: Sequence[tuple[MetricRow, Callable[[Item], float]]]
    items: Callable[[], Iterable[Sequence[tuple[str, Item]]]]
    """Labels and item, about `PIECE` at a time."""

    def families(self) -> Iterator[tuple[MetricRow, Iterator[Piece]]]:
        """Labels are made while the first row is, and kept for the others."""
        kept: list[Sequence[tuple[str, Item]]] = []
        for index, (row, read) in enumerate(self.columns):
            yield row, self._pieces(read, kept if index else self._keeping(kept))

    def _keeping(self, kept: list[Sequence[tuple[str, Item]]]) -> Iterator[Sequence[tuple[str, Item]]]:
        for part in self.items():
            kept.append(part)
            yield part

    @staticmethod
    def _pieces(read: Callable[[Item], float], parts: Iterable[Sequence[tuple[str, Item]]]) -> Iterator[Piece]:
        for part in parts:
            yield [(read(item), labels, "") for labels, item in part]


class Registry:
    """The metrics of one broker: a row and a function that collects its samples. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[str, tuple[MetricRow, list[Collect]]] = {}
        self._tables: list[Table[Any]] = []

    def register(self, row: MetricRow, collect: Collect) -> None:
        """Add a source of samples to a row; several owners may feed one row, each with its own labels."""
        with self._lock:
            self._sources.setdefault(row.name, (row, []))[1].append(collect)

    def register_table(self, table: Table[Any]) -> None:
        """Add rows about many items; nobody else may feed them."""
        with self._lock:
            self._tables.append(table)

    def unregister(self, row: MetricRow, collect: Collect) -> None:
        with self._lock:
            entry = self._sources.get(row.name)
            if entry and collect in entry[1]:
                entry[1].remove(collect)

    def gauge(self, row: MetricRow, read: Callable[[], float], labels: str = "") -> Collect:
        """Register a single number that is read on scrape; returns the handle for `unregister`."""

        def collect() -> Iterable[Sample]:
            return (Sample(float(read()), labels),)

        self.register(row, collect)
        return collect

    def families(self) -> Iterator[tuple[MetricRow, Iterator[Piece]]]:
        """Each row and its samples, in pieces; they are collected while somebody iterates, and in this order only."""
        with self._lock:
            sources = [(row, tuple(collects)) for row, collects in self._sources.values()]
            tables = tuple(self._tables)
        for row, collects in sources:
            yield row, _in_pieces(collects)
        for table in tables:
            yield from table.families()

    def collect(self) -> Iterator[tuple[MetricRow, list[Sample]]]:
        for row, pieces in self.families():
            yield row, [Sample(*sample) for piece in pieces for sample in piece]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that carry these labels, for tests and for the doctor."""
        wanted = [_pair(*pair) for pair in labels.items()]
        for row, samples in self.collect():
            if row.name == name:
                found = ((s.value, s.labels[1:-1]) for s in samples if not s.suffix)
                return sum(value for value, text in found if all(f",{pair}," in f",{text}," for pair in wanted))
        raise KeyError(name)

    def pieces(self) -> Iterator[str]:
        """The Prometheus text form, version 0.0.4, a piece at a time: each takes a fraction of a millisecond to make, and may be empty."""
        for row, pieces in self.families():
            name, head = row.name, f"# HELP {row.name} {row.help}\n# TYPE {row.name} {row.kind}\n"
            for piece in pieces:
                if piece:
                    yield head + "".join(
                        [f"{name}{suffix}{labels} {_number(value)}\n" for value, labels, suffix in piece]
                    )
                    head = ""
                else:
                    yield ""

    def render(self) -> str:
        """The same as a whole."""
        return "".join(self.pieces())


def label_text(**labels: str) -> str:
    """`{name="value"}` with what a value may not hold escaped; values may come from peers."""
    return "{" + ",".join([_pair(name, value) for name, value in labels.items()]) + "}"


def with_label(labels: str, **more: str) -> str:
    """The labels that `label_text` made, or none, and these."""
    return f"{labels[:-1]},{label_text(**more)[1:]}" if labels else label_text(**more)


def _pair(name: str, value: str) -> str:
    value = printable(value)
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{value}"'


def _in_pieces(collects: Iterable[Collect]) -> Iterator[Piece]:
    for collect in collects:
        samples = iter(collect())
        while piece := tuple(islice(samples, PIECE)):
            yield piece


def _number(value: float) -> str:
    if type(value) is int:
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
