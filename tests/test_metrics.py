"""Metrics: buckets, quantiles, the text page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.metrics import ROWS
from barnabas.metrics import BUCKETS, Histogram, MetricRow, Registry, Sample, bucket_of, bucket_upper_bound, merged


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
        lambda: [Sample(float("nan"), (("a", 'x"\\\n'),)), Sample(float("inf")), Sample(2.0), Sample(0.5, (), "_sum")],
    )
    assert registry.render() == '# HELP m Help.\n# TYPE m gauge\nm{a="x\\"\\\\\\n"} NaN\nm +Inf\nm 2\nm_sum 0.5\n'


def test_a_source_that_is_unregistered_is_gone_from_the_page() -> None:
    registry = Registry()
    row = MetricRow("m", "gauge", "Help.", ("a",))
    handle = registry.gauge(row, lambda: 1.0, (("a", "1"),))
    registry.gauge(row, lambda: 2.0, (("a", "2"),))
    assert registry.value("m") == 3
    assert registry.value("m", a="2") == 2
    registry.unregister(row, handle)
    assert registry.value("m") == 2


def test_metric_names_are_declared_once() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
