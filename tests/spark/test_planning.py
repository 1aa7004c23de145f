"""Places, limits and tasks: the arithmetic of a query, without Spark and without a broker."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from barnabas.errors import BarnabasError
from barnabas.spark.admission import Delay, Limits, admit
from barnabas.spark.filters import Narrowing
from barnabas.spark.offsets import Partition, from_spark, to_spark
from barnabas.spark.planning import OffsetRange, plan
from barnabas.spark.starting import AtEnd, AtOffsets, AtTime, AtTimes, Missing, RecordsBack, TimeBack, resolve

names = st.sampled_from(["a", "b-1", "c.d"])
partitions = st.tuples(names, st.integers(0, 30))
offsets = st.dictionaries(partitions, st.integers(0, 1 << 40))


@settings(deadline=None)
@given(offsets)
def test_offsets_go_to_spark_and_back_in_one_order(found: dict[Partition, int]) -> None:
    written = json.dumps(to_spark(found))
    assert from_spark(json.loads(written)) == found
    assert written == json.dumps(to_spark(dict(reversed(found.items()))))
    for numbers in json.loads(written).values():
        assert list(map(int, numbers)) == sorted(map(int, numbers))


class Ends:
    """Partitions with 100 records from offset 50 on, one in each millisecond from 1000 on."""

    def earliest(self, parts: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(parts, 50)

    def latest(self, parts: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(parts, 150)

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        return {part: None if time >= 1100 else max(50, 50 + time - 1000) for part, time in times.items()}


TWO = [("t", 0), ("t", 1)]
STRICT = Missing(latest=False, option="startingTimestamp")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (AtEnd(-2), [50, 50]),
        (AtEnd(-1), [150, 150]),
        (AtOffsets({("t", 0): 60, ("t", 1): -1}), [60, 150]),
        (AtOffsets({("t", 0): -2, ("t", 1): 7}), [50, 7]),
        (AtTime(1010), [60, 60]),
        (AtTimes({("t", 0): 1001, ("t", 1): 0}), [51, 50]),
        (RecordsBack(10), [140, 140]),
        (RecordsBack(1000), [50, 50]),
        (TimeBack(1900), [150, 150]),
        (TimeBack(1950), [100, 100]),
        (TimeBack(99_999), [50, 50]),
    ],
)
def test_places_are_resolved(place: object, found: list[int]) -> None:
    assert resolve(place, TWO, Ends(), STRICT, now_ms=3000) == dict(zip(TWO, found, strict=True))


def test_all_partitions_must_be_named_and_no_other() -> None:
    for place in (AtOffsets({("t", 0): 5, ("t", 2): 5}), AtTimes({("t", 0): 5, ("t", 2): 5})):
        with pytest.raises(BarnabasError, match=r"not named t-1; named but not there t-2"):
            resolve(place, TWO, Ends(), STRICT, now_ms=0)


def test_a_time_without_a_record_is_an_error_or_the_end() -> None:
    with pytest.raises(BarnabasError, match="t-0 has no record at or after 5000"):
        resolve(AtTime(5000), TWO, Ends(), STRICT, now_ms=0)
    assert resolve(AtTime(5000), TWO, Ends(), Missing(True, ""), now_ms=0) == dict.fromkeys(TWO, 150)


# ---------------------------------------------------------------- tasks


@settings(deadline=None)
@given(
    st.dictionaries(partitions, st.tuples(st.integers(0, 1000), st.integers(0, 5000)), max_size=8),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 700),
)
def test_tasks_cover_every_offset_once(
    ranges: dict[Partition, tuple[int, int]], least: int | None, most: int | None
) -> None:
    starts = {part: start for part, (start, _) in ranges.items()}
    ends = {part: start + size for part, (start, size) in ranges.items()}
    tasks = plan(starts, ends, least, most)
    for part, start in starts.items():
        position = start
        for task in tasks:
            if (task.topic, task.partition) == part:
                assert task.start == position
                assert task.size > 0
                position = task.end
        assert position == ends[part]
    assert most is None or all(task.size <= most for task in tasks)


def test_without_options_each_partition_is_one_task_and_empty_ones_have_none() -> None:
    assert plan({("t", 0): 0, ("t", 1): 5}, {("t", 0): 7, ("t", 1): 5}, None, None) == [OffsetRange("t", 0, 0, 7)]


def test_min_partitions_splits_the_large_ones() -> None:
    tasks = plan({("t", 0): 0, ("t", 1): 0}, {("t", 0): 100, ("t", 1): 10}, 6, None)
    assert [(task.partition, task.start, task.end) for task in tasks] == [
        (0, 0, 20),
        (0, 20, 40),
        (0, 40, 60),
        (0, 60, 80),
        (0, 80, 100),
        (1, 0, 10),
    ]


# ---------------------------------------------------------------- limits


@settings(deadline=None)
@given(st.dictionaries(partitions, st.integers(0, 10_000), min_size=1, max_size=6), st.integers(1, 20_000))
def test_a_limit_admits_about_so_many_and_starves_nobody(sizes: dict[Partition, int], limit: int) -> None:
    starts = dict.fromkeys(sizes, 7)
    ends = {part: 7 + size for part, size in sizes.items()}
    found = admit(starts, ends, Limits(limit, None), dict)
    assert all(starts[part] <= found[part] <= ends[part] for part in sizes)
    assert all(found[part] > 7 for part, size in sizes.items() if size)
    taken = sum(found.values()) - 7 * len(sizes)
    assert taken <= limit + len(sizes)
    assert taken >= min(limit, sum(sizes.values())) - len(sizes)


def test_a_limit_of_bytes_weighs_each_partition() -> None:
    starts, ends = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 1000, ("t", 1): 1000}
    weights = {("t", 0): 100.0, ("t", 1): 900.0}
    assert admit(starts, ends, Limits(None, 100_000), lambda: weights) == {("t", 0): 100, ("t", 1): 100}
    assert admit(starts, ends, Limits(None, 10_000_000), lambda: weights) == ends
    assert admit(starts, ends, Limits(50, 100_000), lambda: weights) == {("t", 0): 25, ("t", 1): 25}


def test_a_batch_waits_for_enough_records_but_not_for_ever() -> None:
    delay = Delay(100, longest_ms=1000)
    assert not delay.holds(1, now_ms=50)  # the first never waits
    assert delay.holds(99, now_ms=60)
    assert not delay.holds(100, now_ms=70)
    assert delay.holds(0, now_ms=1069)
    assert not delay.holds(0, now_ms=1070)
    assert not Delay(None, longest_ms=1000).holds(0, now_ms=0)


# ---------------------------------------------------------------- filters


def narrowed(*filters: Filter) -> tuple[list[Filter], dict[Partition, tuple[int, int]]]:
    narrowing = Narrowing()
    left = list(narrowing.take(list(filters)))
    parts = [("t", 0), ("t", 1), ("u", 0)]
    starts, ends = narrowing.apply(dict.fromkeys(parts, 50), dict.fromkeys(parts, 150), Ends())
    return left, {part: (starts[part], ends[part]) for part in ends}


def test_filters_on_topic_partition_and_offset_are_met_exactly() -> None:
    filters = (
        IsNotNull(("partition",)),
        EqualTo(("topic",), "t"),
        In(("partition",), (1, 7)),
        GreaterThan(("offset",), 60),
        GreaterThanOrEqual(("offset",), 55),
        LessThan(("offset",), 90),
        LessThanOrEqual(("offset",), 79),
    )
    assert narrowed(*filters) == ([], {("t", 1): (61, 80)})
    assert narrowed(EqualTo(("offset",), 70), EqualTo(("partition",), 0), EqualTo(("topic",), "u")) == (
        [],
        {("u", 0): (70, 71)},
    )


def test_a_time_gives_a_first_offset_and_spark_looks_again() -> None:
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    at_least = GreaterThanOrEqual(("timestamp",), begin + timedelta(milliseconds=1020))
    above = GreaterThan(("timestamp",), begin + timedelta(milliseconds=1020))
    late = GreaterThan(("timestamp",), begin + timedelta(days=1))
    before = LessThan(("timestamp",), begin + timedelta(milliseconds=1020))
    assert narrowed(at_least, EqualTo(("topic",), "u")) == ([at_least], {("u", 0): (70, 150)})
    assert narrowed(above, EqualTo(("topic",), "u")) == ([above], {("u", 0): (71, 150)})
    assert narrowed(late, EqualTo(("topic",), "u")) == ([late], {("u", 0): (150, 150)})
    assert narrowed(before, EqualTo(("topic",), "u")) == ([before], {("u", 0): (50, 150)})


def test_filters_that_say_something_else_are_left_to_spark() -> None:
    filters: list[Filter] = [
        Not(EqualTo(("partition",), 0)),
        EqualTo(("key",), b"k"),
        IsNull(("offset",)),
        IsNotNull(("value",)),
        GreaterThan(("partition",), 0),
    ]
    left, ranges = narrowed(*filters)
    assert left == filters
    assert set(ranges.values()) == {(50, 150)}
