"""Traffic per topic (RP-32)."""

from __future__ import annotations

import threading

from barnabas.broker import metrics as rows
from barnabas.broker.topic_metrics import FIELDS, TopicMetrics
from barnabas.metrics import Registry


def test_counters_appear_by_topic_and_in_total() -> None:
    """RP-32: BytesIn, BytesOut, MessagesIn per topic and in total."""
    metrics, registry = TopicMetrics(), Registry()
    metrics.register(registry, lambda: 10)
    metrics.of("a").produced(3, 300)
    metrics.of("b").produced(1, 50)
    metrics.of("b").fetched(20, partitions=2, failed=1)
    metrics.unknown.produce_failed()
    found = {
        (row.name, sample.labels[len('{topic="') : -len('"}')] or None): sample.value
        for row, samples in registry.collect()
        for sample in samples
    }
    assert found[rows.BYTES_IN.name, None] == 350
    assert found[rows.BYTES_IN.name, "a"] == 300
    assert found[rows.MESSAGES_IN.name, None] == 4
    assert found[rows.BYTES_OUT.name, "b"] == 20
    assert found[rows.PRODUCE_REQUESTS.name, None] == 3
    assert found[rows.FAILED_PRODUCE.name, None] == 1
    assert found[rows.FETCH_REQUESTS.name, "b"] == 2
    assert found[rows.FAILED_FETCH.name, "b"] == 1


def test_topics_beyond_the_limit_count_in_the_total_only() -> None:
    """Issue 18: a page has a bound, and says what is not on it."""
    metrics, registry = TopicMetrics(), Registry()
    metrics.register(registry, lambda: 300)
    for number in range(1000):
        metrics.of(f"t{number}").produced(1, 10)
    [samples] = [found for row, found in registry.collect() if row is rows.BYTES_IN]
    assert len(samples) == 301
    assert [sample.value for sample in samples if not sample.labels] == [10_000]
    assert registry.value("barnabas_metrics_left_out", what="topics") == 700


def test_the_total_keeps_what_a_deleted_topic_had() -> None:
    metrics = TopicMetrics()
    metrics.of("a").produced(3, 300)
    metrics.remove("a")
    metrics.remove("never there")
    metrics.of("a").produced(1, 1)
    assert metrics.total("bytes_in") == 301
    assert metrics.of("a").bytes_in == 1


def test_no_addition_is_lost_between_threads() -> None:
    """RP-32: correctness does not lean on the GIL."""
    metrics = TopicMetrics()

    def work() -> None:
        for _ in range(2000):
            metrics.of("t").produced(1, 10)
            metrics.of("t").fetched(5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert metrics.total("messages_in") == 8000
    assert metrics.total("bytes_out") == 40_000
    assert metrics.total("fetch_requests") == 8000
    assert set(FIELDS) >= {"messages_in", "bytes_in", "bytes_out"}
