"""The whole metrics page of a broker that has worked: every declared row, in a form that Prometheus reads."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker import metrics as rows
from barnabas.testing import EmbeddedBroker
from tests import wire
from tests.waiting import wait_until

# Rows that have no sample before something has happened that does not happen here.
ONLY_WHEN_IT_HAPPENS = {rows.QUOTA_THROTTLE.name, rows.ERRORS.name}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    config = {"barnabas.metrics.listener": "127.0.0.1:0", "queued.max.request.bytes": 10_000_000}
    with EmbeddedBroker(topics={"t": 2}, config=config) as broker, wire.connect(broker.port) as sock:
        wire.ask(sock, wire.api_versions())
        wire.ask(sock, wire.produce("t", wire.batch([b"a", b"b"])))
        wire.ask(sock, wire.fetch("t", 0))
        wait_until(lambda: len(broker.server.request_metrics.recent()) == 3)
        yield broker


@pytest.fixture
def page(broker: EmbeddedBroker) -> str:
    with urllib.request.urlopen(f"http://{broker.server.metrics_address}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


@pytest.fixture
def families(page: str) -> dict[str, Metric]:
    """As Prometheus' own parser reads them; it drops `_total` from the names of counters."""
    return {family.name: family for family in text_string_to_metric_families(page)}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    samples = [s for f in families.values() for s in f.samples if s.name == name and labels.items() <= s.labels.items()]
    assert samples, f"no sample {name} {labels}"
    return float(sum(s.value for s in samples))


def test_every_declared_row_is_on_the_page(families: dict[str, Metric]) -> None:
    """RP-31, RP-32: nothing is declared that nobody feeds."""
    missing = {row.name for row in rows.ROWS} - {
        name for f in families.values() for name in (f.name, f.name + "_total")
    }
    assert missing <= ONLY_WHEN_IT_HAPPENS


def test_kinds_and_labels_are_those_of_the_rows(families: dict[str, Metric]) -> None:
    for row in rows.ROWS:
        family = families.get(row.name) or families.get(row.name.removesuffix("_total"))
        if family is None:
            continue
        assert family.type == row.kind, row.name
        extra = {"quantile"} if row.kind == "summary" else {"le"} if row.kind == "histogram" else set()
        for sample in family.samples:
            assert set(sample.labels) <= {*row.labels, *extra}, sample


def test_a_row_stands_on_the_page_once(page: str) -> None:
    heads = [line for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))


def test_requests_are_counted_by_api_and_version(families: dict[str, Metric]) -> None:
    """RP-31."""
    name = "kafka_network_requestmetrics_requests_total"
    assert value(families, name, request="Produce", version="7") == 1
    assert value(families, name, request="FetchConsumer", version="4") == 1
    assert value(families, name, request="ApiVersions", version="0") == 1


def test_the_histogram_of_the_total_is_the_sum_of_those_of_the_parts(families: dict[str, Metric]) -> None:
    """RP-31: Total is the sum of the parts."""
    parts = ("requestqueue", "local", "remote", "throttle", "responsequeue", "responsesend")
    prefix = "kafka_network_requestmetrics_"
    total = value(families, prefix + "totaltime_seconds_sum", request="Produce")
    assert total > 0
    assert total == pytest.approx(
        sum(value(families, f"{prefix}{p}time_seconds_sum", request="Produce") for p in parts)
    )
    assert value(families, prefix + "totaltime_seconds_count", request="Produce") == 1
    assert value(families, prefix + "totaltime_seconds_bucket", request="Produce", le="+Inf") == 1


def test_traffic_is_counted_by_topic_and_in_total(families: dict[str, Metric]) -> None:
    """RP-32."""
    prefix = "kafka_server_brokertopicmetrics_"
    assert value(families, prefix + "messagesin_total", topic="t") == 2
    assert value(families, prefix + "bytesin_total", topic="t") > 0
    assert value(families, prefix + "bytesout_total", topic="t") > 0


def test_the_state_of_the_log_is_there_for_each_partition(families: dict[str, Metric]) -> None:
    assert value(families, "kafka_log_log_logendoffset", topic="t", partition="0") == 2
    assert value(families, "kafka_log_log_logendoffset", topic="t", partition="1") == 0
    assert value(families, "kafka_server_replicamanager_partitioncount") == 2


def test_gauges_of_the_request_layer_make_sense_at_rest(families: dict[str, Metric]) -> None:
    """RP-32: queues empty, threads mostly idle, the memory pool all free."""
    assert value(families, "kafka_network_requestchannel_requestqueuesize") == 0
    assert value(families, "kafka_network_requestchannel_responsequeuesize_all") == 0
    assert 0 <= value(families, "kafka_network_socketserver_networkprocessoravgidlepercent") <= 1
    assert 0 <= value(families, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent") <= 1
    assert value(families, "kafka_network_socketserver_memorypoolavailable") == 10_000_000
    assert value(families, "kafka_network_socketserver_memorypoolused") == 0
    assert value(families, "kafka_server_kafkaserver_brokerstate") == 3
    assert value(families, "process_resident_memory_bytes") > 1_000_000
