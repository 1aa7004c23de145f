"""FindCoordinator refuses in the body, by version, until groups and transactions are there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis.find_coordinator import error_response, handle
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest


def refused(body: FindCoordinatorRequest, version: int) -> Any:
    request: Any = SimpleNamespace(body=body)
    with pytest.raises(KafkaError) as caught:
        handle(request, None)  # type: ignore[arg-type]
    parts = encode_response(error_response(body, version, caught.value), version)
    return decode_response(10, version, b"".join(bytes(part) for part in parts))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("kind", "code", "words"), [(0, 15, "consumer groups"), (1, 35, "transactions"), (2, 35, "share groups")]
)
def test_every_kind_of_key_is_told_what_is_not_there(kind: int, code: int, words: str) -> None:
    """For a group the error is retriable: librdkafka asks even when partitions are assigned by hand."""
    answer = refused(FindCoordinatorRequest(key="g", key_type=kind), 3)
    assert (answer.error_code, answer.node_id) == (code, -1)
    assert words in answer.error_message


def test_several_keys_each_get_their_answer() -> None:
    answer = refused(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 6)
    assert [(each.key, each.error_code) for each in answer.coordinators] == [("a", 15), ("b", 15)]


def test_an_unknown_kind_of_key_is_an_invalid_request() -> None:
    assert refused(FindCoordinatorRequest(key="g", key_type=7), 2).error_code == ErrorCode.INVALID_REQUEST


def test_version_0_has_neither_kind_nor_message() -> None:
    assert refused(FindCoordinatorRequest(key="g"), 0).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_answer_is_no_multiple_of_its_request() -> None:
    """It was 38 times as large: each key was answered as often as it was named, and each with the same text."""
    keys = [f"k{number}" for number in range(10_000)]
    body = FindCoordinatorRequest(coordinator_keys=keys * 2)
    parts = encode_response(error_response(body, 6, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "x" * 60)), 6)
    size = sum(map(len, parts))
    assert size < 5 * sum(len(key) + 1 for key in keys)
    assert [each.key for each in refused(body, 6).coordinators] == keys
