"""Metrics: buckets, quantiles, the text page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.metrics import ROWS
from barnabas.metrics import (
    BUCKETS,
    PIECE,
    Histogram,
    MetricRow,
    Registry,
    Sample,
    Table,
    bucket_of,
    bucket_upper_bound,
    label_text,
    merged,
    with_label,
)


@given(st.integers(0, 2**62))
def test_a_value_lies_in_its_bucket_and_the_bucket_is_narrow(value: int) -> None:
    index = bucket_of(value)
    assert 0 <= index < BUCKETS
    assert value <= bucket_upper_bound(index)
    if index:
        assert value > bucket_upper_bound(index - 1)
    assert bucket_upper_bound(index) <= value * 1.125 + 1


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_quantiles_are_within_one_bucket_of_the_exact_ones(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    ordered = sorted(values)
    for q in (0.5, 0.99):
        exact = ordered[max(0, -(-int(q * 1000) * len(ordered) // 1000) - 1)]
        assert exact <= histogram.quantile(q) <= exact * 1.125 + 1
    assert histogram.sum == sum(values)
    assert histogram.max == max(values)


def test_merging_shards_equals_recording_into_one() -> None:
    shards = [Histogram(), Histogram()]
    whole = Histogram()
    for value in range(1000):
        shards[value % 2].record(value)
        whole.record(value)
    total = merged(shards)
    assert (total.buckets, total.count, total.sum, total.max) == (whole.buckets, whole.count, whole.sum, whole.max)


def test_the_text_page_escapes_labels_and_writes_special_numbers() -> None:
    registry = Registry()
    row = MetricRow("m", "gauge", "Help.", ("a",))
    registry.register(
        row,
        lambda: [
            Sample(float("nan"), label_text(a='x"\\')),
            Sample(float("inf")),
            Sample(2.0),
            Sample(0.5, "", "_sum"),
        ],
    )
    assert registry.render() == '# HELP m Help.\n# TYPE m gauge\nm{a="x\\"\\\\"} NaN\nm +Inf\nm 2\nm_sum 0.5\n'


@pytest.mark.parametrize("char", ["\n", "\r", "\x00", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\ud800"])
def test_what_cannot_be_printed_does_not_reach_the_page(char: str) -> None:
    """Issue 18: a client id may hold anything, and lone surrogates cannot even be encoded."""
    registry = Registry()
    registry.gauge(MetricRow("m", "gauge", "Help.", ("a",)), lambda: 1, label_text(a=f"x{char}y"))
    text = registry.render()
    assert text.count("\n") == 3
    assert text.replace("\n", "").isprintable()
    [family] = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"a": "x" + char.encode("unicode_escape").decode() + "y"}


def test_a_long_label_value_is_cut() -> None:
    assert len(label_text(client="x" * 1_000_000)) < 300


@given(st.dictionaries(st.sampled_from("abc"), st.text(max_size=20), min_size=1))
def test_any_labels_can_be_read_back(labels: dict[str, str]) -> None:
    registry = Registry()
    registry.gauge(MetricRow("m", "gauge", "Help.", ("a",)), lambda: 1, label_text(**labels))
    [family] = text_string_to_metric_families(registry.render())
    assert family.samples[0].labels.keys() == labels.keys()
    assert registry.value("m", **labels) == 1


def test_a_label_is_added_to_others_or_to_none() -> None:
    assert with_label(label_text(a="1"), le="2") == '{a="1",le="2"}'
    assert with_label("", le="2") == '{le="2"}'


def test_rows_of_many_items_are_made_in_pieces() -> None:
    """Issue 18: no part of the work on a large page is long, and labels are made once for all rows."""
    made = []

    def items() -> Iterator[list[tuple[str, int]]]:
        for start in range(0, 10 * PIECE, PIECE):
            made.append(start)
            yield [(label_text(i=str(i)), i) for i in range(start, start + PIECE)]

    registry = Registry()
    rows = (MetricRow("m", "gauge", "Help.", ("i",)), MetricRow("n", "gauge", "Help.", ("i",)))
    registry.register_table(Table([(rows[0], lambda i: i), (rows[1], lambda i: -i)], items))
    pieces = list(registry.pieces())
    assert max(piece.count("\n") for piece in pieces) <= PIECE + 2
    assert len(made) == 10
    first, second = text_string_to_metric_families("".join(pieces))
    assert [sample.value for sample in first.samples] == list(range(10 * PIECE))
    assert [sample.value for sample in second.samples] == [-i for i in range(10 * PIECE)]
    assert registry.value("n", i="3") == -3


def test_a_source_that_is_unregistered_is_gone_from_the_page() -> None:
    registry = Registry()
    row = MetricRow("m", "gauge", "Help.", ("a",))
    handle = registry.gauge(row, lambda: 1.0, label_text(a="1"))
    registry.gauge(row, lambda: 2.0, label_text(a="2"))
    assert registry.value("m") == 3
    assert registry.value("m", a="2") == 2
    registry.unregister(row, handle)
    assert registry.value("m") == 2


def test_metric_names_are_declared_once() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
