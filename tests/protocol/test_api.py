"""The table of APIs: versions of the specification, header versions, and Kafka's names."""

from __future__ import annotations

import pytest

from barnabas.protocol.api import APIS, Api, ApiKey
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.produce import ProduceResponse

# key: (lowest, highest, first flexible), as in section 2 of the protocol specification.
SPECIFIED = {
    0: (3, 13, 9), 1: (4, 18, 12), 2: (1, 11, 6), 3: (0, 13, 9), 10: (0, 6, 3), 18: (0, 4, 3), 19: (2, 7, 5), 20: (1, 6, 4),
    21: (0, 2, 2), 22: (0, 5, 2), 23: (2, 4, 4), 32: (1, 4, 4), 33: (0, 2, 2), 35: (1, 5, 2), 37: (0, 3, 2),
    44: (0, 1, 1), 46: (0, 0, 0), 48: (0, 1, 1), 49: (0, 1, 1), 60: (0, 2, 0), 74: (0, 1, 0), 75: (0, 0, 0),
}  # fmt: skip


def test_the_versions_are_those_of_the_specification() -> None:
    known = {key: (api.min_version, api.max_version, api.flexible_from) for key, api in APIS.items()}
    assert known == SPECIFIED


def test_request_and_response_agree_on_their_versions() -> None:
    for api in APIS.values():
        request, response = api.request.schema, api.response.schema
        assert (request.versions.low, request.versions.high) == (response.versions.low, response.versions.high)
        assert request.flexible.low == response.flexible.low
        assert request.name == api.name + "Request"
        assert response.name == api.name + "Response"


def test_flexible_versions_have_the_newer_headers_except_the_api_versions_response() -> None:
    for key, api in APIS.items():
        for version in range(api.min_version, api.max_version + 1):
            flexible = version >= SPECIFIED[key][2]
            assert api.request_header_version(version) == (2 if flexible else 1)
            assert api.response_header_version(version) == (1 if flexible and key != 18 else 0)


def test_keys_have_kafkas_numbers() -> None:
    assert len(ApiKey) == 94
    assert (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.SASL_AUTHENTICATE, ApiKey.END_TXN) == (0, 8, 36, 26)
    assert (ApiKey.DESCRIBE_CLUSTER, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH) == (60, 68, 78)


def test_a_row_with_messages_of_different_apis_is_refused() -> None:
    with pytest.raises(TypeError, match="do not belong"):
        Api(ApiKey.FETCH, FetchRequest, ProduceResponse)


def test_a_row_prints_what_it_is() -> None:
    assert repr(APIS[0]) == "Api(Produce, key=0, versions=3-13)"
