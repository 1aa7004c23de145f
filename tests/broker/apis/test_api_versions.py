"""ApiVersions (key 18): the list comes from the table, features by version, and never a disconnect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.apis import api_versions
from barnabas.broker.apis.table import TABLE
from barnabas.broker.quotas import ClientQuotas
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.codec import decode_response, encode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

BROKER: Any = SimpleNamespace(apis=TABLE, quotas=ClientQuotas(ManualClock()))


def ask(version: int, name: str = "apache-kafka-java", software: str = "4.3.1") -> tuple[ApiVersionsResponse, Any]:
    request: Any = SimpleNamespace(
        header=SimpleNamespace(api_version=version),
        body=ApiVersionsRequest(client_software_name=name, client_software_version=software),
        connection=SimpleNamespace(client_software_name="unknown", client_software_version="unknown"),
    )
    return api_versions.handle(request, BROKER), request


def decoded(message: ApiVersionsResponse, version: int) -> Any:
    return decode_response(18, version, b"".join(bytes(cast(Any, part)) for part in encode(message, version)))


@pytest.mark.parametrize("version", range(5))
def test_every_row_of_the_table_is_listed_in_order(version: int) -> None:
    """RP-29, RP-37."""
    answer = decoded(ask(version)[0], version)
    listed = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert answer.error_code == ErrorCode.NONE
    assert list(listed) == sorted(TABLE)
    assert listed[0] == (0, 13)  # KAFKA-18659
    assert listed[1] == (4, 18)
    assert listed[2] == (1, 11)
    assert listed[35] == (1, 5)


@pytest.mark.parametrize("version", [5, 100, 32767])
def test_a_newer_version_is_answered_in_v0_form_with_the_full_list(version: int) -> None:
    """RP-29."""
    answer = decoded(ask(version)[0], 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(answer.api_keys) == len(TABLE)


def test_features_with_a_minimum_of_0_are_left_out_before_version_4() -> None:
    """KAFKA-17492."""
    for version, expected in ((3, {"metadata.version"}), (4, {"metadata.version", "kraft.version"})):
        answer = decoded(ask(version)[0], version)
        assert {feature.name for feature in answer.supported_features} == expected
        assert all(feature.min_version > 0 for feature in answer.supported_features) == (version == 3)
        assert answer.finalized_features_epoch >= 0
        finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        assert finalized == {"metadata.version": 30}


def test_what_is_not_there_is_not_promised() -> None:
    """Clients switch protocols on these features and keys."""
    answer = ask(4)[0]
    named = {feature.name for feature in answer.supported_features} | {f.name for f in answer.finalized_features}
    assert named.isdisjoint({"transaction.version", "group.version", "share.version", "streams.version"})
    assert {row.api_key for row in answer.api_keys}.isdisjoint({8, 9, 11, 24, 26, 68, 71, 72, 76})


@pytest.mark.parametrize("version", [3, 4])
def test_the_software_of_the_client_is_kept_on_its_connection(version: int) -> None:
    """RP-15, KIP-511."""
    _, request = ask(version, "librdkafka", "2.15.0-x")
    assert request.connection.client_software_name == "librdkafka"
    assert request.connection.client_software_version == "2.15.0-x"


@pytest.mark.parametrize(
    ("name", "software"),
    [("", "1"), ("a b", "1"), ("-a", "1"), ("a", "1."), ("ä", "1"), ("a\n", "1"), ("a" * 257, "1"), ("a", "1" * 257)],
)
def test_a_bad_software_name_or_version_is_an_invalid_request(name: str, software: str) -> None:
    with pytest.raises(KafkaError) as caught:
        ask(3, name, software)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert api_versions.error_response(None, 3, caught.value).error_code == ErrorCode.INVALID_REQUEST


def test_before_version_3_no_name_is_asked_for() -> None:
    answer, request = ask(2, "", "")
    assert answer.error_code == ErrorCode.NONE
    assert request.connection.client_software_name == "unknown"


def test_the_answer_is_built_once_but_each_throttled_client_has_its_own() -> None:
    """RP-39: its throttle time must not reach others."""
    assert ask(4)[0] is ask(4)[0]
    quotas = ClientQuotas(ManualClock())
    quotas.update({"user": "bob"}, "request_percentage", 1)
    broker: Any = SimpleNamespace(apis=TABLE, quotas=quotas)
    request = ask(4)[1]
    assert api_versions.handle(request, broker) is not api_versions.handle(request, broker)
