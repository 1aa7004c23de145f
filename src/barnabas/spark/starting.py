"""Where a read begins and where it ends: what users may write, and the offsets that it means.

Role: a `Place` is what an option says (an end of the partition, offsets, a time, so long ago, so many records back); `resolve` asks the
brokers what that is now. Thread: any; what asks is handed in. Lock: none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from barnabas.errors import BarnabasError
from barnabas.spark.offsets import (
    EARLIEST,
    LATEST,
    Partition,
    PartitionOffsets,
    name_of,
    names_of,
    parse_offsets,
)

__all__ = [
    "AtEnd",
    "AtOffsets",
    "AtTime",
    "AtTimes",
    "OffsetLookup",
    "Place",
    "RecordsBack",
    "TimeBack",
    "duration_ms",
    "parse_ending",
    "parse_starting",
    "parse_times",
    "resolve",
]

_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,15})\s*([a-z]*)", re.IGNORECASE)
_DURATION_FORM = "must be a number with a unit: us, ms, s, m, min, h or d, for example 15m"
_STARTING_FORM = (
    'must be earliest, latest, a time back like -10m, records back like -100, or JSON like {"orders":{"0":23,"1":-2}}'
)
_ENDING_FORM = 'must be latest or JSON like {"orders":{"0":50,"1":-1}}'


@dataclass(frozen=True, slots=True)
class AtEnd:
    """EARLIEST or LATEST of every partition."""

    which: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset (or EARLIEST, LATEST) for each partition; all must be named, and no other."""

    offsets: Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time (ms since 1970) of every partition."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """A time for each partition; all must be named, and no other."""

    times: Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class TimeBack:
    """So long before now; behind the newest record where none is that young."""

    span_ms: int


@dataclass(frozen=True, slots=True)
class RecordsBack:
    """So many offsets before the end of each partition, or its beginning."""

    count: int


Place = AtEnd | AtOffsets | AtTime | AtTimes | TimeBack | RecordsBack


class OffsetLookup(Protocol):
    """Who asks the brokers (discovery.py)."""

    def earliest(self, partitions: Collection[Partition]) -> PartitionOffsets: ...

    def latest(self, partitions: Collection[Partition]) -> PartitionOffsets: ...

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]: ...


def duration_ms(text: str) -> int:
    """A time span as Spark writes it; without a unit, milliseconds. ValueError says what is expected."""
    match = _DURATION.fullmatch(text.strip())
    unit = _UNITS_MS.get(match[2].lower() or "ms") if match else None
    if match is None or unit is None:
        raise ValueError(_DURATION_FORM)
    return int(int(match[1]) * unit)


def parse_starting(text: str) -> Place:
    """The option startingOffsets; ValueError says what is expected."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return AtEnd(EARLIEST if word == "earliest" else LATEST)
    if word.startswith("-"):
        back = word[1:].strip()
        if back.isascii() and back.isdigit():
            return RecordsBack(int(back))
        try:
            return TimeBack(duration_ms(back))
        except ValueError:
            raise ValueError(_STARTING_FORM) from None
    if not word.startswith("{"):
        raise ValueError(_STARTING_FORM)
    return AtOffsets(parse_offsets(text))


def parse_ending(text: str) -> Place:
    """The option endingOffsets; ValueError says what is expected."""
    word = text.strip().lower()
    if word == "latest":
        return AtEnd(LATEST)
    if not word.startswith("{"):
        raise ValueError(_ENDING_FORM)
    offsets = parse_offsets(text)
    if early := [partition for partition, offset in offsets.items() if offset == EARLIEST]:
        raise ValueError(f"must not end at the earliest (-2): {names_of(early)}")
    return AtOffsets(offsets)


def parse_times(text: str) -> AtTimes:
    """The options startingOffsetsByTimestamp and endingOffsetsByTimestamp; ValueError says what is expected."""
    times = parse_offsets(text)
    if negative := [partition for partition, time in times.items() if time < 0]:
        raise ValueError(f"must be milliseconds since 1970, not negative: {names_of(negative)}")
    return AtTimes(times)


@dataclass(frozen=True, slots=True)
class Missing:
    """What to do where no record is as young as the time that was asked for."""

    latest: bool
    option: str


def resolve(
    place: Place, partitions: Collection[Partition], lookup: OffsetLookup, missing: Missing, now_ms: int
) -> PartitionOffsets:
    """The offsets of a place, now. BarnabasError where partitions are not named, or no record is that young and none may be."""
    match place:
        case AtEnd(which):
            return lookup.earliest(partitions) if which == EARLIEST else lookup.latest(partitions)
        case AtOffsets(offsets):
            _check_named(offsets, partitions, missing.option, "offset (-2 for the earliest, -1 for the latest)")
            return _with_ends(offsets, lookup)
        case AtTime(time_ms):
            return _at_times(dict.fromkeys(partitions, time_ms), lookup, missing)
        case AtTimes(times):
            _check_named(times, partitions, missing.option, "time")
            return _at_times(times, lookup, missing)
        case TimeBack(span_ms):
            times = dict.fromkeys(partitions, max(now_ms - span_ms, 0))
            return _at_times(times, lookup, Missing(latest=True, option=missing.option))
        case RecordsBack(count):
            earliest = lookup.earliest(partitions)
            return {part: max(end - count, earliest[part]) for part, end in lookup.latest(partitions).items()}


def _check_named(named: Collection[Partition], partitions: Collection[Partition], option: str, what: str) -> None:
    extra, absent = set(named) - set(partitions), set(partitions) - set(named)
    if extra or absent:
        raise BarnabasError(
            f"{option} must name the {what} of every partition that is read, and of no other: "
            f"not named {names_of(absent)}; named but not there {names_of(extra)}"
        )


def _with_ends(offsets: Mapping[Partition, int], lookup: OffsetLookup) -> PartitionOffsets:
    """The same with EARLIEST and LATEST replaced by what they are."""
    found = dict(offsets)
    found |= lookup.earliest([part for part, offset in offsets.items() if offset == EARLIEST])
    found |= lookup.latest([part for part, offset in offsets.items() if offset == LATEST])
    return found


def _at_times(times: Mapping[Partition, int], lookup: OffsetLookup, missing: Missing) -> PartitionOffsets:
    found = lookup.at_times(times)
    young = [partition for partition, offset in found.items() if offset is None]
    if young and not missing.latest:
        first = min(young)
        raise BarnabasError(
            f"{missing.option}: {name_of(first)} has no record at or after {times[first]}; "
            "with startingOffsetsByTimestampStrategy=latest such partitions begin at their end"
        )
    ends = lookup.latest(young)
    return {partition: ends[partition] if offset is None else offset for partition, offset in found.items()}
