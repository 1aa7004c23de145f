"""The demo's table of where request time went, from the text of a metrics page."""

from __future__ import annotations

import pytest

from bench.time_breakdown import BAR_CELLS, ApiTime, bar, duration, parse

PAGE = """
# TYPE kafka_network_requestmetrics_totaltime_seconds histogram
kafka_network_requestmetrics_totaltime_seconds_bucket{request="Produce",le="0.001"} 4
kafka_network_requestmetrics_totaltime_seconds_count{request="Produce"} 4
kafka_network_requestmetrics_totaltime_seconds_sum{request="Produce"} 0.004
kafka_network_requestmetrics_localtime_seconds_sum{request="Produce"} 0.003
kafka_network_requestmetrics_responsequeuetime_seconds_sum{request="Produce"} 0.001
kafka_network_requestmetrics_totaltime_seconds_count{request="Fetch"} 10
kafka_network_requestmetrics_totaltime_seconds_count{request="FetchConsumer"} 10
kafka_network_requestmetrics_remotetime_seconds_sum{request="FetchConsumer"} 5
kafka_network_requestmetrics_totaltime_seconds_count{request="Metadata"} 0
"""


def test_means_are_taken_per_api_and_the_busiest_comes_first() -> None:
    fetch, produce = parse(PAGE)
    assert (fetch.api, fetch.requests, fetch.total) == ("FetchConsumer", 10, pytest.approx(0.5))
    assert (produce.api, produce.requests, produce.total) == ("Produce", 4, pytest.approx(0.001))
    assert produce.means == pytest.approx((0, 0.00075, 0, 0, 0.00025, 0))


def test_the_bar_always_has_its_full_length() -> None:
    assert len(bar(ApiTime("Produce", 1, (1.0, 1.0, 1.0, 0.0, 0.0, 0.0))).plain) == BAR_CELLS
    assert len(bar(ApiTime("Produce", 1, (0.0,) * 6)).plain) == 0


def test_durations_are_short_to_read() -> None:
    assert duration(0.0123) == "12.3 ms"
    assert duration(0.000045) == "45 µs"
