"""Encode and decode messages: the entry points, and the table of compiled functions.

Role: one function per (message, version), made on first use, in one of two forms: C code that follows a table (native/), where
the package was compiled, or Python source, written and compiled here; `python -m barnabas.protocol.codec Produce 9` prints that.
Thread: any. Lock: none; two threads that meet on first use compile the same function twice, and either result is right.

What decoding promises: whatever the bytes, the result is a message or `MalformedRequest`, memory stays in proportion to the bytes that
came and to the elements that the caller allows, and other threads get their turn meanwhile. What encoding promises: the parts, in order,
are the body; anything wrong is an `EncodeError`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence, Sized
from importlib import import_module
from typing import Any, Final, cast

from barnabas.errors import MalformedRequest
from barnabas.native import is_codec_native
from barnabas.protocol.api import APIS
from barnabas.protocol.decode_source import decoder_source
from barnabas.protocol.encode_source import encoder_source
from barnabas.protocol.explain import find_misfit
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.schema import Message
from barnabas.protocol.wire import MAX_REQUEST_ELEMENTS, SMALL_RECORDS, Buffer, EncodeError

Part = Sized  # bytes, a memoryview, or a file region: anything with a length that the transport can send
Decoder = Callable[..., Message]  # (buffer, offset, most elements); without the last, what the protocol allows
Encoder = Callable[[Message], list[Any]]
Framer = Callable[[Message, int, int], list[Any]]

_request_decoders: dict[int, Decoder] = {}
_response_decoders: dict[int, Decoder] = {}
_encoders: dict[type[Message], dict[int, Encoder]] = {}
_framers: dict[type[Message], dict[int, Framer]] = {}
_pack_frame_v0: Final = struct.Struct(">ii").pack
_pack_frame_v1: Final = struct.Struct(">iix").pack
_pack_size: Final = struct.Struct(">i").pack
# What the compiled decoders raise by themselves when the bytes end too early or are not UTF-8.
_BROKEN: Final = (struct.error, IndexError, UnicodeDecodeError)
_UNFIT: Final = (struct.error, TypeError, AttributeError, ValueError, OverflowError, BufferError)


def decode_request(
    api_key: int, version: int, buffer: Buffer, offset: int = 0, max_elements: int = MAX_REQUEST_ELEMENTS
) -> Message:
    """The request body that fills `buffer` from `offset` to its end. `TooManyElements` as soon as its lists announce more than
    `max_elements` together."""
    decode = _request_decoders.get((api_key << 16) + version) or _find_decoder(api_key, version, request=True)
    try:
        return decode(buffer, offset, max_elements)
    except _BROKEN as error:
        raise _malformed(api_key, version, error) from None


def decode_response(api_key: int, version: int, buffer: Buffer, offset: int = 0) -> Message:
    """The response body that fills `buffer` from `offset` to its end."""
    decode = _response_decoders.get((api_key << 16) + version) or _find_decoder(api_key, version, request=False)
    try:
        return decode(buffer, offset)
    except _BROKEN as error:
        raise _malformed(api_key, version, error) from None


def encode(message: Message, version: int) -> list[Part]:
    """The body of a request or response as parts; small neighbours are joined, large records stand alone."""
    try:
        encoder = _encoders[message.__class__][version]
    except KeyError:
        encoder = _find_encoder(message.__class__, version)
    try:
        return encoder(message)
    except _UNFIT as error:
        raise _unfit(message, version, error) from error


encode_request = encode
encode_response = encode


def encode_response_frame(message: Message, version: int, correlation_id: int, header_version: int) -> list[Part]:
    """A whole response: size, header and body, with the first two joined to the first part of the body."""
    try:
        framer = _framers[message.__class__][version]
    except KeyError:
        framer = _find_framer(message.__class__, version)
    try:
        return framer(message, correlation_id, header_version)
    except _UNFIT as error:
        raise _unfit(message, version, error) from error


def _unfit(message: Message, version: int, error: Exception) -> EncodeError:
    reason = find_misfit(message, version) or f"{message.schema.name}: {error}"
    return EncodeError(f"version {version}: {reason}")


def encode_request_frame(message: Message, version: int, correlation_id: int, client_id: str | None) -> list[Part]:
    """A whole request: size, header and body."""
    return frame_request(
        encode(message, version), cast(int, message.schema.api_key), version, correlation_id, client_id
    )


def frame_request(
    body: Sequence[Part], api_key: int, version: int, correlation_id: int, client_id: str | None
) -> list[Part]:
    """A whole request around an encoded body; size and header are joined with its first part when that is small bytes."""
    header = encode_request_header(api_key, version, correlation_id, client_id)
    size = len(header) + sum(map(len, body))
    first = body[0]
    if type(first) is bytes and len(first) <= SMALL_RECORDS:
        return [_pack_size(size) + header + first, *body[1:]]
    return [_pack_size(size) + header, *body]


def source_of(cls: type[Message], version: int) -> str:
    """The source of the decoder and the encoder that are compiled for this message and version."""
    return decoder_source(cls, version)[0] + "\n\n" + encoder_source(cls, version)[0]


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    return cast(Decoder, _compile(*decoder_source(cls, version), "decode", f"{cls.__name__} v{version}"))


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    return cast(Encoder, _compile(*encoder_source(cls, version), "encode", f"{cls.__name__} v{version}"))


def _compile(source: str, names: dict[str, object], function: str, title: str) -> object:
    exec(compile(source, f"<{function} {title}>", "exec"), names)
    return names[function]


class SourceForm:
    """The generated functions of one message and version."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._encode: Encoder | None = None

    @property
    def decode(self) -> Decoder:
        return compile_decoder(self._cls, self._version)

    @property
    def encode(self) -> Encoder:
        if self._encode is None:
            self._encode = compile_encoder(self._cls, self._version)
        return self._encode

    def encode_frame(self, message: Message, correlation_id: int, header_version: int) -> list[Any]:
        parts = self.encode(message)
        pack, header = (_pack_frame_v1, 5) if header_version else (_pack_frame_v0, 4)
        first = parts[0]
        size = header + len(first) if len(parts) == 1 else header + sum(map(len, parts))
        parts[0] = pack(size, correlation_id) + cast(bytes, first)
        return parts


def _choose_form() -> Any:
    return import_module("barnabas.protocol.native.plan").Plan if is_codec_native() else SourceForm


_Form: Any = _choose_form()


def _find_decoder(api_key: int, version: int, *, request: bool) -> Decoder:
    api = APIS.get(api_key)
    if api is None or not api.min_version <= version <= api.max_version:
        raise MalformedRequest(f"no codec for API key {api_key} version {version}")
    table, cls = (_request_decoders, api.request) if request else (_response_decoders, api.response)
    return table.setdefault((api_key << 16) + version, _Form(cls, version).decode)


def _find_encoder(cls: type[Message], version: int) -> Encoder:
    return _encoders.setdefault(cls, {}).setdefault(version, _checked_form(cls, version).encode)


def _find_framer(cls: type[Message], version: int) -> Framer:
    return _framers.setdefault(cls, {}).setdefault(version, _checked_form(cls, version).encode_frame)


def _checked_form(cls: type[Message], version: int) -> Any:
    if version not in cls.schema.versions:
        raise EncodeError(f"{cls.schema.name} has no version {version}")
    return _Form(cls, version)


def _malformed(api_key: int, version: int, error: Exception) -> MalformedRequest:
    return MalformedRequest(f"{APIS[api_key].name} version {version}: {error}")


def main(arguments: list[str]) -> int:
    """Print the compiled source of an API, by name (any case) and version."""
    rows = {api.name.lower(): api for api in APIS.values()}
    api = rows.get(arguments[0].lower()) if len(arguments) == 2 else None
    if api is None or not arguments[1].isdecimal() or not api.min_version <= int(arguments[1]) <= api.max_version:
        known = " ".join(f"{api.name}:{api.min_version}-{api.max_version}" for api in APIS.values())
        print(f"usage: python -m barnabas.protocol.codec <api> <version>\n{known}", file=sys.stderr)
        return 2
    for cls in (api.request, api.response):
        print(f"# {cls.__name__} version {arguments[1]}\n\n{source_of(cls, int(arguments[1]))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
