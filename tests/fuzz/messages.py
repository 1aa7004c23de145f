"""Decoding and encoding a message in both forms of the codec, and holding them against each other."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from barnabas.errors import MalformedRequest
from barnabas.protocol import codec
from barnabas.protocol.api import APIS, Api
from barnabas.protocol.schema import Message
from barnabas.protocol.wire import TooManyElements
from tests.fuzz.target import Instrument, Outcome, must
from tests.protocol.conftest import codec_is_built

FEW_ELEMENTS = 20
_BROKEN = (
    struct.error,
    IndexError,
    UnicodeDecodeError,
)  # what a decoder lets through, and `codec` makes a MalformedRequest

Decoder = Callable[..., Message]
Encoder = Callable[[Message], list[Any]]
_sources: dict[tuple[type[Message], int], tuple[Decoder, Encoder]] = {}


def has(api: Api | None, version: int) -> bool:
    return api is not None and api.min_version <= version <= api.max_version


def all_messages(*, request: bool) -> list[tuple[type[Message], int]]:
    return [
        (api.request if request else api.response, version)
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
    ]


def make_sources(with_coverage: Instrument, *, request: bool) -> None:
    """The generated decoders and encoders, all of them now, so that coverage knows them from the start."""
    for cls, version in all_messages(request=request):
        decode, encode = codec.compile_decoder(cls, version), codec.compile_encoder(cls, version)
        _sources[cls, version] = with_coverage(decode), with_coverage(encode)


def _source(cls: type[Message], version: int) -> tuple[Decoder, Encoder]:
    key = (cls, version)
    if key not in _sources:
        _sources[key] = codec.compile_decoder(cls, version), codec.compile_encoder(cls, version)
    return _sources[key]


@cache
def _native(cls: type[Message], version: int) -> Any:
    return import_module("barnabas.protocol.native.plan").Plan(cls, version) if codec_is_built() else None


def _decoded(decode: Decoder, data: bytes | memoryview, offset: int, limits: tuple[int, ...]) -> Outcome:
    """A message, or which error."""
    try:
        return Outcome(decode(data, offset, *limits))
    except TooManyElements as error:
        return Outcome(error=f"too many elements: {error.elements}")
    except (*_BROKEN, MalformedRequest):
        return Outcome(error="malformed")


def check(cls: type[Message], version: int, data: bytes, offset: int) -> Message | None:
    """Decode what follows the offset, in both forms; the message, if it is one."""
    decode, encode = _source(cls, version)
    plan = _native(cls, version)
    first: Outcome | None = None
    for limits in ((FEW_ELEMENTS,), ()):
        first = _decoded(decode, data, offset, limits)
        if plan is not None:
            for buffer in (data, memoryview(data)):
                second = _decoded(plan.decode, buffer, offset, limits)
                must(
                    _agree(first, second), f"{cls.__name__} v{version}: the plain form says {first}, that in C {second}"
                )
    if first is None or first.value is None:
        return None
    message: Message = first.value
    _check_encoding(message, version, (decode, encode), plan)
    return message


def _agree(one: Outcome, other: Outcome) -> bool:
    """A NaN is not equal to itself, so texts are compared too."""
    return one == other or repr(one) == repr(other)


def _check_encoding(message: Message, version: int, source: tuple[Decoder, Encoder], plan: Any) -> None:
    decode, encode = source
    written = b"".join(encode(message))
    again = decode(written, 0)
    must(_agree(Outcome(message), Outcome(again)), f"v{version}: {message} was written and read as {again}")
    if plan is not None:
        must(b"".join(plan.encode(message)) == written, f"v{version}: {message} is written differently in C")
