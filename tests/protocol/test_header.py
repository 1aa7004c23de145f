"""Request and response headers, against kio and against damaged bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeaderV1

from barnabas.errors import MalformedRequest
from barnabas.protocol.api import APIS
from barnabas.protocol.header import (
    encode_request_header,
    encode_response_header,
    parse_request_header,
    parse_response_header,
)
from tests.protocol.oracle import oracle_decode

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
CLIENT_ID = st.none() | st.text(max_size=200)


@settings(max_examples=200, deadline=None, database=None)
@given(st.sampled_from(sorted(APIS)), st.data(), INT32, CLIENT_ID)
def test_kio_reads_our_request_header_and_we_read_it_back(
    key: int, data: st.DataObject, correlation_id: int, client_id: str | None
) -> None:
    version = data.draw(st.integers(APIS[key].min_version, APIS[key].max_version))
    raw = encode_request_header(key, version, correlation_id, client_id)
    oracle = RequestHeaderV2 if APIS[key].request_header_version(version) == 2 else RequestHeaderV1
    theirs = oracle_decode(oracle, raw)
    assert (theirs.request_api_key, theirs.request_api_version) == (key, version)
    assert (theirs.correlation_id, theirs.client_id) == (correlation_id, client_id)
    for buffer in (raw + b"body", memoryview(raw + b"body")):
        ours = parse_request_header(buffer)
        assert (ours.api_key, ours.api_version, ours.correlation_id) == (key, version, correlation_id)
        assert (ours.client_id, ours.body_offset, ours.api) == (client_id, len(raw), APIS[key])


@given(INT32)
def test_kio_reads_our_response_header(correlation_id: int) -> None:
    for version, oracle in ((0, ResponseHeaderV0), (1, ResponseHeaderV1)):
        raw = encode_response_header(correlation_id, version)
        assert oracle_decode(oracle, raw).correlation_id == correlation_id
        assert parse_response_header(raw + b"body", version) == (correlation_id, len(raw))


def test_a_null_client_id_is_accepted() -> None:
    header = parse_request_header(b"\x00\x12\x00\x00\x00\x00\x00\x05\xff\xff")
    assert (header.client_id, header.correlation_id, header.body_offset) == (None, 5, 10)


def test_the_client_id_of_a_flexible_header_keeps_its_two_byte_length() -> None:
    header = parse_request_header(b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x02ab\x00rest")
    assert (header.client_id, header.body_offset) == ("ab", 13)


def test_tagged_fields_of_a_header_are_stepped_over() -> None:
    header = parse_request_header(b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x02ab\x01\x07\x03xyzrest")
    assert header.body_offset == 18


@pytest.mark.parametrize(("key", "version"), [(18, 99), (999, 0), (-1, -1), (0, 14)])
def test_an_unknown_key_or_version_is_left_to_the_caller(key: int, version: int) -> None:
    raw = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7\0\2ab"
    header = parse_request_header(raw)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (key, version, 7, "ab")


def test_a_header_cut_at_any_byte_is_malformed() -> None:
    for raw in (b"\x00\x00\x00\x09\x00\x00\x00\x05\x00\x02ab\x00", b"\x00\x00\x00\x07\x00\x00\x00\x05\x00\x02ab"):
        for end in range(len(raw)):
            with pytest.raises(MalformedRequest):
                parse_request_header(raw[:end])
    for end in range(5):
        with pytest.raises(MalformedRequest):
            parse_response_header(b"\0\0\0\1\0"[:end], 1)


@pytest.mark.parametrize("client", [b"\xff\xfe", b"\x00\x02\xc3\x28", b"\x7f\xffabc"])
def test_a_client_id_with_a_wrong_length_or_no_utf8_is_malformed(client: bytes) -> None:
    with pytest.raises(MalformedRequest, match="client id"):
        parse_request_header(b"\x00\x00\x00\x03\x00\x00\x00\x05" + client)


@settings(max_examples=300, deadline=None, database=None)
@given(st.binary(max_size=64))
def test_arbitrary_bytes_raise_nothing_but_malformed_request(raw: bytes) -> None:
    try:
        header = parse_request_header(raw)
    except MalformedRequest:
        return
    assert 10 <= header.body_offset <= len(raw)


def test_many_different_client_ids_do_not_pile_up() -> None:
    from barnabas.protocol import header as module

    for number in range(5000):
        raw = str(number).encode()
        parse_request_header(b"\x00\x00\x00\x03\x00\x00\x00\x05" + len(raw).to_bytes(2, "big") + raw)
    assert len(module._client_ids) <= module._MAX_CACHED_IDS
