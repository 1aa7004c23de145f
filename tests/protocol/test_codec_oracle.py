"""Every API and version against an independent implementation, both ways.

kio has a schema for every version declared here, so no version goes without an oracle; `test_kio_knows_...` says so.
BARNABAS_PROTOCOL_EXAMPLES raises the number of examples per case.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.api import APIS
from barnabas.protocol.codec import decode_request, decode_response, encode_request
from barnabas.protocol.schema import Message
from tests.protocol.oracle import (
    Case,
    agree,
    case_id,
    cases,
    messages,
    oracle_class,
    oracle_decode,
    oracle_encode,
    paired_fields,
    sample,
)

EXAMPLES = int(os.environ.get("BARNABAS_PROTOCOL_EXAMPLES", "15"))
CASES = list(cases())
all_cases = pytest.mark.parametrize("case", CASES, ids=case_id)


def decode(case: Case, data: bytes) -> Message:
    api, version, cls = case
    function = decode_request if cls is api.request else decode_response
    return function(api.key, version, data, 0)


def test_kio_knows_every_version_that_the_table_declares() -> None:
    assert len(CASES) == 2 * sum(api.max_version - api.min_version + 1 for api in APIS.values())
    for case in CASES:
        assert paired_fields(case[2], oracle_class(case), case[1]) is not None


@all_cases
def test_both_implementations_read_each_other_and_write_the_same_bytes(case: Case) -> None:
    version, cls = case[1], case[2]
    oracle = oracle_class(case)

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(messages(cls, oracle, version))
    def check(message: Message) -> None:
        ours = b"".join(encode_request(message, version))  # type: ignore[arg-type]
        theirs = oracle_decode(oracle, ours)
        assert agree(message, theirs, version)
        written_by_kio = oracle_encode(oracle, theirs)
        assert written_by_kio == ours
        assert decode(case, written_by_kio) == message

    check()


@all_cases
def test_a_message_with_every_field_set_survives_the_round_trip(case: Case) -> None:
    """Random values rarely set every tagged field at once; this one does."""
    version, cls = case[1], case[2]
    oracle = oracle_class(case)
    message = sample(cls, version)
    data = b"".join(encode_request(message, version))  # type: ignore[arg-type]
    assert agree(message, oracle_decode(oracle, data), version)
    assert oracle_encode(oracle, oracle_decode(oracle, data)) == data
    assert decode(case, data) == message


@all_cases
def test_a_default_message_is_the_same_on_both_sides(case: Case) -> None:
    """What we leave out has Kafka's default."""
    version, cls = case[1], case[2]
    message = cls()
    data = b"".join(encode_request(message, version))  # type: ignore[arg-type]
    assert agree(message, oracle_decode(oracle_class(case), data), version)
    assert decode(case, data) == message


@pytest.mark.parametrize("wrap", [bytes, memoryview, lambda data: memoryview(bytearray(data))])
@given(data=st.data())
@settings(max_examples=20, deadline=None, database=None)
def test_the_kind_of_buffer_makes_no_difference(wrap: type, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    encoded = b"".join(encode_request(sample(case[2], case[1]), case[1]))  # type: ignore[arg-type]
    assert decode(case, wrap(encoded)) == sample(case[2], case[1])
