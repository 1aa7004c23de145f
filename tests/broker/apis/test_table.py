"""The API table (RP-37)."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis.table import ROWS, TABLE, ApiRow
from barnabas.broker.quotas import ClientQuotas
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.api import APIS

REQUIRED = {18, 3, 0, 1, 2, 10, 19, 20, 22, 21, 23, 32, 33, 35, 37, 44, 46, 48, 49, 60, 74, 75}


def test_every_api_of_the_request_path_has_a_row() -> None:
    assert set(TABLE) == REQUIRED
    assert len(ROWS) == len(TABLE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.module)
def test_a_row_loads_its_module_and_its_versions_have_messages(row: ApiRow) -> None:
    module = row.load()
    assert callable(module.handle)
    assert row.error_response is module.error_response
    api = APIS[row.key]
    assert api.min_version <= row.min_version <= row.max_version <= api.max_version
    assert row.serves(row.min_version)
    assert row.serves(row.max_version)
    assert not row.serves(row.max_version + 1)
    assert not row.serves(row.min_version - 1)


def test_old_produce_versions_are_advertised_but_not_served() -> None:
    """KAFKA-18659."""
    assert TABLE[0].advertised_min == 0
    assert not TABLE[0].serves(2)


def test_what_may_block_is_never_run_by_a_processor() -> None:
    """Only these touch nothing but memory and the page cache."""
    assert {row.module for row in ROWS if row.inline} == {
        "produce",
        "fetch",
        "find_coordinator",
        "api_versions",
        "offset_for_leader_epoch",
    }


def test_importing_the_table_imports_no_handler() -> None:
    """The broker's start pays only for what is used."""
    code = (
        "import sys, barnabas.broker.apis.table\n"
        "print([name for name in sys.modules if name.startswith('barnabas.broker.apis.') and not name.endswith('table')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"


def test_a_row_charges_the_time_of_a_request_to_its_client() -> None:
    """RP-39: for every API but Produce and Fetch, which charge bytes too."""
    clock = ManualClock()
    quotas = ClientQuotas(clock)
    broker: Any = SimpleNamespace(quotas=quotas, catalog=SimpleNamespace(next_producer_id=lambda: 7))
    throttled: list[int] = []
    request: Any = SimpleNamespace(
        body=SimpleNamespace(transactional_id=None, producer_id=-1, producer_epoch=-1),
        connection=SimpleNamespace(principal="User:alice"),
        header=SimpleNamespace(client_id="c"),
        dequeue_ns=clock.monotonic_ns(),
        local_done_ns=0,
        throttle=lambda ms, kind: throttled.append(ms),
    )
    row = ApiRow(22, "init_producer_id", (0, 5))
    assert row.handle(request, broker).throttle_time_ms == 0
    quotas.update({"user": "alice"}, "request_percentage", 1)
    clock.advance(2)
    assert row.handle(request, broker).throttle_time_ms == 1000
    assert throttled == [1000]


def test_a_row_builds_the_error_answer_before_its_handler_ever_ran() -> None:
    row = ApiRow(22, "init_producer_id", (0, 5))
    answer = row.error_response(None, 5, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
