"""Whatever a peer sends, decoding gives a message or MalformedRequest, and costs memory in proportion to the bytes.

This is the codec's share of RP-29; naming the connection and closing it is the processor's.
"""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import MalformedRequest
from barnabas.protocol.api import APIS
from barnabas.protocol.codec import decode_request, decode_response, encode_request
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema import Message
from tests.protocol.oracle import Case, case_id, cases, sample

CASES = list(cases())
all_cases = pytest.mark.parametrize("case", CASES, ids=case_id)
MIB = 1 << 20
HUGE_INT32 = b"\x7f\xff\xff\xff"
HUGE_VARINT = b"\xff\xff\xff\xff\x07"


def encoded(case: Case) -> bytes:
    return b"".join(encode_request(sample(case[2], case[1]), case[1]))  # type: ignore[arg-type]


def decode(case: Case, data: bytes) -> Message:
    api, version, cls = case
    function = decode_request if cls is api.request else decode_response
    return function(api.key, version, data, 0)


def decodes_or_refuses(case: Case, data: bytes) -> bool:
    """True when it decodes, False when it is refused properly; anything else is the test's failure."""
    try:
        decode(case, data)
    except MalformedRequest:
        return False
    return True


@all_cases
def test_a_body_cut_at_any_byte_is_malformed(case: Case) -> None:
    data = encoded(case)
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode(case, data[:end])


@all_cases
def test_bytes_behind_a_response_are_malformed_and_behind_a_request_left_alone(case: Case) -> None:
    """Kafka does not look behind the body of a request, and librdkafka 2.x leaves bytes there (Metadata v13)."""
    data = encoded(case)
    if case[2] is case[0].request:
        assert decode(case, data + b"\0\1\2") == decode(case, data)
        return
    with pytest.raises(MalformedRequest):
        decode(case, data + b"\0")


@all_cases
def test_bytes_damaged_anywhere_raise_nothing_else(case: Case) -> None:
    data = encoded(case)
    for position in range(len(data)):
        for damage in (b"\x00", b"\x7f", b"\x80", b"\xff", HUGE_INT32, HUGE_VARINT, b"\xff" * 10):
            decodes_or_refuses(case, data[:position] + damage + data[position + len(damage) :])


@all_cases
def test_random_bytes_raise_nothing_else(case: Case) -> None:
    source = random.Random(case_id(case))
    for size in range(60):
        decodes_or_refuses(case, source.randbytes(size))
        # Small bytes look like plausible lengths and reach deeper.
        decodes_or_refuses(case, bytes(source.choices(range(6), k=size)))


@settings(max_examples=200, deadline=None, database=None)
@given(st.sampled_from(CASES), st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_else(case: Case, data: bytes) -> None:
    decodes_or_refuses(case, data)


def test_five_bytes_that_claim_two_billion_elements_cost_less_than_a_mebibyte() -> None:
    for case in CASES:  # compile first: the functions themselves are no part of the cost
        decodes_or_refuses(case, b"")
    tracemalloc.start()
    try:
        for case in CASES:
            for bomb in (HUGE_INT32 + b"\0", HUGE_VARINT, b"\xff\xff\xff\xff\x0f"):
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                decodes_or_refuses(case, bomb)
                assert tracemalloc.get_traced_memory()[1] - before < MIB, (case, bomb)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("cls", "version"),
    [(ProduceRequest, 7), (ProduceRequest, 13), (FetchRequest, 11), (FetchRequest, 18), (MetadataRequest, 12)],
)
def test_a_huge_length_at_any_place_costs_less_than_a_mebibyte(cls: type[Message], version: int) -> None:
    case = next(c for c in CASES if c[2] is cls and c[1] == version)
    data = encoded(case)
    decode(case, data)
    tracemalloc.start()
    try:
        for position in range(len(data)):
            for bomb in (HUGE_INT32, HUGE_VARINT):
                decodes_or_refuses(case, data[:position] + bomb + data[position + len(bomb) :])
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_millions_of_tiny_elements_are_refused_although_every_length_is_honest() -> None:
    """Two million empty topics of three bytes each would take a quarter of a gigabyte."""
    count = 1 << 21
    body = b"\0" * 7 + b"\x81\x80\x80\x01" + b"\x01\x01\x00" * count + b"\0"
    decode_request(0, 9, b"\0" * 7 + b"\x02\x01\x01\x00\0", 0)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest, match=f"topic_data has length {count}"):
            decode_request(0, 9, body, 0)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x00\x00\x00\x01\x7f\xff", "length 32767"),  # a string longer than the request
        (b"\x00\x00\x00\x01\xff\xff\x00\x00", "length -1"),  # null where version 4 allows none
        (b"\x00\x00\x00\x01\xff\xfe\x00\x00", "length -2"),
        (b"\xff\xff\xff\xfe\x00", "length -2"),  # null is -1 only
        (b"\x00\x00\x00\x01\x00\x02\xc3\x28\x00", "utf-8"),
    ],
)
def test_the_text_says_what_is_wrong_with_a_metadata_request(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedRequest, match=reason):
        decode_request(3, 4, body, 0)


def test_a_varint_over_five_bytes_or_32_bits_is_malformed() -> None:
    for varint in (b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f"):
        with pytest.raises(MalformedRequest, match="32 bits"):
            decode_request(3, 9, varint + b"\0" * 20, 0)


def test_unknown_tagged_fields_are_stepped_over() -> None:
    tags = b"\x02\x00\x00\x8f\x4e\x03abc"  # tag 0 with nothing, tag 9999 with three bytes
    plain = b"".join(encode_request(MetadataRequest(), 9))  # type: ignore[arg-type]
    assert decode_request(3, 9, plain[:-1] + tags, 0) == MetadataRequest()


def test_unknown_tags_beside_known_ones_are_stepped_over() -> None:
    plain = b"".join(encode_request(FetchRequest(cluster_id="c"), 12))  # type: ignore[arg-type]
    assert plain.endswith(b"\x01\x00\x02\x02c")
    decoded = decode_request(1, 12, plain[:-5] + b"\x02\x00\x02\x02c\x63\x01x", 0)
    assert decoded == FetchRequest(cluster_id="c")


@pytest.mark.parametrize(
    "tags", [b"\x01\x00\x7f", b"\x81\x08" + b"\0" * 2066, b"\x01\x00\xff\xff\xff\xff\x0f", b"\x05\0"]
)
def test_tagged_fields_that_are_too_long_or_too_many_are_malformed(tags: bytes) -> None:
    plain = b"".join(encode_request(MetadataRequest(), 9))  # type: ignore[arg-type]
    with pytest.raises(MalformedRequest):
        decode_request(3, 9, plain[:-1] + tags, 0)


def test_a_known_tagged_field_must_fill_its_size() -> None:
    plain = b"".join(encode_request(FetchRequest(cluster_id="c"), 12))  # type: ignore[arg-type]
    with pytest.raises(MalformedRequest, match="tagged field 0"):
        decode_request(1, 12, plain[:-5] + b"\x01\x00\x03\x02c\x00", 0)


def test_a_string_of_a_flexible_version_has_kafkas_limit() -> None:
    name = b"a" * 40000
    body = b"\x02" + b"\0" * 16 + b"\xc1\xb8\x02" + name + b"\0" + b"\1\0\0\0\0"
    with pytest.raises(MalformedRequest, match="length 40000"):
        decode_request(3, 10, body, 0)


@pytest.mark.parametrize(("key", "version"), [(999, 0), (0, 2), (0, 14), (1, -1), (-1, 0), (0, 32767), (3, -32768)])
def test_unknown_apis_and_versions_are_malformed(key: int, version: int) -> None:
    for function in (decode_request, decode_response):
        with pytest.raises(MalformedRequest, match="no codec"):
            function(key, version, b"\0" * 20, 0)


def test_every_version_of_the_table_is_tested_here() -> None:
    assert {case[0].key for case in CASES} == set(APIS)
