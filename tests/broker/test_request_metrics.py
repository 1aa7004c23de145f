"""Request metrics (RP-31): parts that add up to the total, counts by version and error, and the log of slow requests."""

from __future__ import annotations

import json
import logging
import struct
import timeit
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.network.network_metrics import register_network_metrics
from barnabas.broker.network.request import Request
from barnabas.broker.network.request_channel import RequestChannel
from barnabas.broker.request_figures import PARTS
from barnabas.broker.request_metrics import RECENT, RequestMetrics, error_name, fetch_name, parts_of
from barnabas.broker.request_metrics_page import RequestMetricsPage
from barnabas.clock import SystemClock
from barnabas.errors import ErrorCode
from barnabas.metrics import Registry, bucket_of, bucket_upper_bound
from barnabas.protocol.codec import decode_request
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests import wire
from tests.broker.network.toy_broker import ToyRow, client_of, metadata, serving, toy_request
from tests.waiting import wait_until

CHANNEL = RequestChannel(10)
STAMPS = ("start_ns", "dequeue_ns", "local_done_ns", "complete_ns", "response_dequeue_ns")


def finished(stamps: tuple[int, ...] = (100, 200, 500, 500, 900), **values: Any) -> Request:
    request = toy_request(CHANNEL)
    for name, value in zip(STAMPS, stamps, strict=True):
        setattr(request, name, value)
    for name, value in values.items():
        setattr(request, name, value)
    return request


def fetch_request(replica_id: int = -1, state_id: int = -1) -> Request:
    header = wire.fetch("t", 0)
    row = ToyRow(wire.FETCH, lambda request, services: None, (4, 18))
    request = toy_request(CHANNEL, header, row)
    request.body = FetchRequest(replica_id=replica_id, replica_state=ReplicaState(replica_id=state_id))
    return request


def test_each_part_is_the_distance_between_two_stamps() -> None:
    metrics = RequestMetrics()
    metrics.new_shard().record(finished((100, 230, 570, 1500, 2100)), 3000)
    [entry] = metrics.recent()
    expected = {"queue": 130, "local": 340, "remote": 930, "throttle": 0, "response_queue": 600, "send": 900}
    assert entry.parts == {**expected, "total": 2900}


@given(st.tuples(*[st.integers(0, 10**12)] * 5), st.integers(0, 10**12), st.integers(0, 60_000))
def test_the_total_is_the_sum_of_the_parts_whatever_the_stamps(
    stamps: tuple[int, ...], end: int, throttle: int
) -> None:
    """RP-31: also when threads set them in another order, or never; no part is negative."""
    metrics = RequestMetrics()
    request = finished(stamps, throttle_ms=throttle)
    metrics.new_shard().record(request, end)
    [entry] = metrics.recent()
    parts = [entry.parts[part] for part in PARTS[:-1]]
    assert min(parts) >= 0
    assert sum(parts) == entry.parts["total"]
    stats = metrics.snapshot()["Metadata"]
    assert [stats.histogram(part).sum for part in PARTS] == [*parts, entry.parts["total"]]


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=50))
def test_a_part_has_the_buckets_of_a_histogram(values: list[int]) -> None:
    metrics = RequestMetrics()
    shard = metrics.new_shard()
    for value in values:
        shard.record(finished((0, value, value, value, value), size=value % 1000), value)
    stats = metrics.snapshot()["Metadata"]
    queue = stats.histogram("queue")
    expected = [0] * len(queue.buckets)
    for value in values:
        expected[bucket_of(value)] += 1
    assert queue.buckets == expected
    assert (queue.count, queue.sum) == (len(values), sum(values))
    assert queue.max == bucket_upper_bound(max(bucket_of(value) for value in values))
    assert stats.request_bytes().sum == sum(value % 1000 for value in values)
    assert stats.histogram("local").buckets[0] == len(values)


def test_requests_are_counted_by_version_and_shards_are_merged() -> None:
    metrics = RequestMetrics()
    for shard in (metrics.new_shard(), metrics.new_shard()):
        for version in (1, 1, 5):
            request = finished()
            request.header.api_version = version
            shard.record(request, 1000)
    assert metrics.snapshot()["Metadata"].versions == {1: 4, 5: 2}
    assert "shards=2" in repr(metrics)


def test_the_counts_of_an_ended_processor_stay() -> None:
    metrics = RequestMetrics()
    shard = metrics.new_shard()
    shard.record(finished(), 1000)
    metrics.retire(shard)
    metrics.retire(shard)
    assert metrics.snapshot()["Metadata"].count == 1
    assert len(metrics.recent()) == 1


def test_errors_are_counted_wherever_the_response_has_them() -> None:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t", partition_responses=[PartitionProduceResponse(error_code=code) for code in (0, 3, 3)]
            )
        ]
    )
    metrics = RequestMetrics()
    shard = metrics.new_shard()
    data = wire.produce("t", b"")
    request = toy_request(CHANNEL, data, ToyRow(wire.PRODUCE, lambda request, services: None, (3, 13)))
    request.response = response
    shard.record(request, request.start_ns + 5)
    assert metrics.snapshot()["Produce"].errors == {0: 1, 3: 2}
    fetch = fetch_request()
    fetch.response = FetchResponse(error_code=70)
    shard.record(fetch, fetch.start_ns + 5)
    assert metrics.snapshot()["FetchConsumer"].errors == {70: 1}


def test_requests_that_could_not_be_parsed_count_as_errors_of_their_api() -> None:
    """RP-29; a key that nobody knows makes no label of its own."""
    metrics = RequestMetrics()
    shard = metrics.new_shard()
    for key in (3, 3, 1, 999, 1000):
        shard.record_error(key, ErrorCode.INVALID_REQUEST)
    snapshot = metrics.snapshot()
    counts = {name: stats.errors[42] for name, stats in snapshot.items()}
    assert counts == {"Metadata": 2, "FetchConsumer": 1, "Fetch": 1, "Unknown": 2}


@pytest.mark.parametrize(
    ("replica_id", "state_id", "name"),
    [(-1, -1, "FetchConsumer"), (2, -1, "FetchFollower"), (-1, 2, "FetchFollower")],
)
def test_fetches_are_split_into_consumers_and_followers(replica_id: int, state_id: int, name: str) -> None:
    """RP-31."""
    request = fetch_request(replica_id, state_id)
    assert fetch_name(request.body) == name
    metrics = RequestMetrics()
    metrics.new_shard().record(request, request.start_ns + 5)
    snapshot = metrics.snapshot()
    assert set(snapshot) == {"Fetch", name}
    assert snapshot["Fetch"].count == 1


def test_fetches_of_both_kinds_add_up_to_fetch() -> None:
    metrics = RequestMetrics()
    shard = metrics.new_shard()
    for replica_id in (-1, -1, 4):
        request = fetch_request(replica_id)
        shard.record(request, request.start_ns + 5)
    snapshot = metrics.snapshot()
    assert [snapshot[name].count for name in ("Fetch", "FetchConsumer", "FetchFollower")] == [3, 2, 1]


def test_conversion_and_temporary_memory_are_counted_when_there_are_any() -> None:
    metrics = RequestMetrics()
    shard = metrics.new_shard()
    shard.record(finished(), 1000)
    shard.record(finished(conversions_ns=7_000_000, temporary_bytes=4096), 1000)
    stats = metrics.snapshot()["Metadata"]
    assert (stats.conversions.count, stats.conversions.sum, stats.temporary.sum) == (1, 7_000_000, 4096)


def test_the_last_requests_are_kept_in_order_and_bounded() -> None:
    metrics = RequestMetrics()
    shard = metrics.new_shard()
    for number in range(RECENT + 10):
        shard.record(finished((number, number, number, number, number)), number + 1)
    recent = metrics.recent(1000)
    assert len(recent) == RECENT
    assert [entry.start_ns for entry in recent] == list(range(10, RECENT + 10))
    assert len(metrics.recent(5)) == 5
    assert parts_of(recent)["total"] == RECENT
    assert "Metadata v1 127.0.0.1" in repr(recent[0])


def test_slow_requests_are_logged_as_kafkas_json_line(caplog: pytest.LogCaptureFixture) -> None:
    """Conventions 3: only at or above the threshold, which changes at run time."""
    caplog.set_level(logging.INFO, "kafka.request.logger")
    metrics = RequestMetrics(log_threshold_ms=10)
    shard = metrics.new_shard()
    shard.record(finished((0, 0, 0, 0, 0)), 9_999_999)
    assert caplog.records == []
    shard.record(finished((0, 1_000_000, 3_000_000, 6_000_000, 10_000_000), throttle_ms=50), 15_000_000)
    [record] = caplog.records
    text = record.getMessage()
    assert text.startswith("Completed request:{")
    found = json.loads(text.removeprefix("Completed request:"))
    times = {name: value for name, value in found.items() if name.endswith("TimeMs")}
    assert times == {
        "totalTimeMs": 65.0,
        "requestQueueTimeMs": 1.0,
        "localTimeMs": 2.0,
        "remoteTimeMs": 3.0,
        "throttleTimeMs": 50.0,
        "responseQueueTimeMs": 4.0,
        "sendTimeMs": 5.0,
    }
    assert found["requestHeader"]["requestApiKeyName"] == "Metadata"
    assert found["clientInformation"] == {"softwareName": "unknown", "softwareVersion": "unknown"}
    metrics.set_log_threshold(-1)
    shard.record(finished((0, 0, 0, 0, 0)), 10**15)
    assert len(caplog.records) == 1


def test_an_error_has_a_name_even_when_no_table_knows_it() -> None:
    assert error_name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_name(9999) == "9999"


@pytest.mark.serial
def test_recording_costs_a_few_microseconds() -> None:
    """RP-31 on the hot path. The bound is several times what it takes (2 µs), because machines are shared."""
    shard = RequestMetrics().new_shard()
    data = wire.produce("t", b"")
    request = toy_request(CHANNEL, data, ToyRow(wire.PRODUCE, lambda request, services: None, (3, 13)))
    request.body = decode_request(wire.PRODUCE, 7, data[4:], request.header.body_offset)
    request.response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse()])]
    )
    request.start_ns, request.dequeue_ns, request.complete_ns, request.response_dequeue_ns = 100, 9000, 30_000, 40_000
    best = min(timeit.repeat(lambda: shard.record(request, 50_000), number=500, repeat=20)) / 500
    assert best < 15e-6


def test_every_row_of_the_request_path_is_fed() -> None:
    """RP-31, RP-32: the text page of a broker that has served something."""
    with serving(num_network_threads=2) as server, client_of(server) as client:
        registry = Registry()
        RequestMetricsPage(server.request_metrics, SystemClock()).register(registry)
        register_network_metrics(registry, server)
        for number in range(3):
            assert wire.ask(client, metadata(number))
        body = b"\x04toy\x041.0\x00"
        client.sendall(wire.frame(struct.pack(">hhihs", wire.API_VERSIONS, 3, 1, 1, b"c") + b"\0" + body))
        assert wire.read_frame(client)
        wait_until(lambda: "ApiVersions" in server.request_metrics.snapshot())
        text = registry.render()
        for line in (
            'kafka_network_requestmetrics_requests_total{request="Metadata",version="1"} 3',
            'kafka_network_requestmetrics_totaltimems_count{request="Metadata"} 3',
            'kafka_network_requestmetrics_totaltime_seconds_bucket{request="Metadata",le="+Inf"} 3',
            'kafka_network_requestmetrics_errors_total{request="Metadata",error="NONE"}',
            'kafka_network_requestchannel_requestqueuesize{plane="data-plane"} 0',
            'kafka_network_requestchannel_responsequeuesize{processor="1"} 0',
            'kafka_network_processor_idlepercent{networkProcessor="0"}',
            "kafka_network_socketserver_networkprocessoravgidlepercent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "kafka_network_socketserver_memorypoolused 0",
            'kafka_network_acceptor_acceptorblocked_percent{listener="PLAINTEXT"}',
            'kafka_server_socketservermetrics_connections{listener="PLAINTEXT",clientSoftwareName="toy",clientSoftwareVersion="1.0"} 1',
        ):
            assert line in text
        assert registry.value("kafka_server_socketservermetrics_connection_count", listener="PLAINTEXT") == 1
        assert registry.value("kafka_server_socketservermetrics_connection_creation_total") == 1
        server.resize_processors(1)
        assert 'networkProcessor="1"' not in registry.render()


def test_buckets_of_a_histogram_row_grow_to_the_count() -> None:
    metrics = RequestMetrics()
    shard = metrics.new_shard()
    for milliseconds in (0, 1, 5, 50, 500, 100_000):
        shard.record(finished((0, 0, 0, 0, 0), response=MetadataResponse()), milliseconds * 1_000_000)
    registry = Registry()
    RequestMetricsPage(metrics, SystemClock()).register(registry)
    [samples] = [found for row, found in registry.collect() if row.name.endswith("totaltime_seconds")]
    counts = [sample.value for sample in samples if sample.suffix == "_bucket"]
    assert counts == sorted(counts)
    assert counts[-1] == 6
    assert counts[-2] == 5
