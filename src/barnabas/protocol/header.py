"""Request and response headers.

Role: reads the header in front of a request body, and writes and reads the one in front of a response.
Thread: any. Lock: none, pure functions.

    request header   v1, v2: api_key int16 | api_version int16 | correlation_id int32 | client_id nullable string
                     v2 adds tagged fields; client_id keeps its int16 length there, so that any version can be read
    response header  v0: correlation_id int32;  v1 adds tagged fields
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.errors import MalformedRequest
from barnabas.protocol.api import APIS, Api
from barnabas.protocol.wire import Buffer, skip_tags

_FIXED: Final = struct.Struct(">hhih")
_unpack_fixed = _FIXED.unpack_from
_unpack_correlation = struct.Struct(">i").unpack_from
_pack_v0 = struct.Struct(">i").pack
_pack_v1 = struct.Struct(">ix").pack
_FIXED_SIZE: Final = _FIXED.size
# Clients send the same few ids in every request: decoding each only once saves more than the lookup costs.
_MAX_CACHED_IDS: Final = 1024
_MAX_CACHED_ID_SIZE: Final = 128
_client_ids: dict[bytes, str] = {}


class RequestHeader:
    """The parsed header; `body_offset` is where the body begins in the frame, `api` the row or None if unknown."""

    __slots__ = ("api", "api_key", "api_version", "body_offset", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_offset = 0
        self.api: Api | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RequestHeader):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, body_offset={self.body_offset})"
        )


def parse_request_header(buffer: Buffer) -> RequestHeader:
    """Read the header at the start of a frame (without its size). Unknown keys and versions are the caller's to refuse.

    A version that this table does not know may have a header that it does not know either: then only the part up to
    the client id is read, which is all that the answer "unsupported version" needs.
    """
    try:
        key, version, correlation_id, size = _unpack_fixed(buffer)
    except struct.error:
        raise MalformedRequest(f"request header of {len(buffer)} bytes") from None
    offset = _FIXED_SIZE
    client_id: str | None = None
    if size >= 0:
        offset += size
        raw = bytes(buffer[_FIXED_SIZE:offset])
        if len(raw) != size:
            raise MalformedRequest(f"client id of {size} bytes ends after the request")
        client_id = _client_ids.get(raw)
        if client_id is None:
            client_id = _decode_client_id(raw)
    elif size != -1:
        raise MalformedRequest(f"client id has length {size}")
    header = RequestHeader(key, version, correlation_id, client_id)
    api = header.api = APIS.get(key)
    if api is not None and api.flexible_from <= version <= api.max_version:
        # Nobody sends tags in a header so far: one look instead of a call.
        empty = offset < len(buffer) and not buffer[offset]
        offset = offset + 1 if empty else skip_tags(buffer, offset, len(buffer))
    header.body_offset = offset
    return header


def _decode_client_id(raw: bytes) -> str:
    """Decode and remember; the cache is bounded in count and in bytes, since any peer can fill it."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedRequest("client id is not UTF-8") from None
    if len(raw) <= _MAX_CACHED_ID_SIZE:
        if len(_client_ids) >= _MAX_CACHED_IDS:
            _client_ids.clear()
        _client_ids[raw] = text
    return text


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request that this process sends, in the version that the API row asks for."""
    raw = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(raw)
    tags = b"\0" if APIS[api_key].request_header_version(api_version) == 2 else b""
    return _FIXED.pack(api_key, api_version, correlation_id, size) + raw + tags


def encode_response_header(correlation_id: int, header_version: int) -> bytes:
    """4 bytes for version 0, 5 for version 1 (no tagged fields)."""
    return _pack_v1(correlation_id) if header_version else _pack_v0(correlation_id)


def parse_response_header(buffer: Buffer, header_version: int) -> tuple[int, int]:
    """The correlation id and the offset of the body."""
    try:
        (correlation_id,) = _unpack_correlation(buffer)
    except struct.error:
        raise MalformedRequest(f"response header of {len(buffer)} bytes") from None
    offset = skip_tags(buffer, 4, len(buffer)) if header_version else 4
    return correlation_id, offset
