"""From what users have to bytes. A serializer is a function `(value) -> bytes | None`; these are the usual ones.

Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from barnabas.producer.errors import SerializationError

__all__ = ["Serializer", "json_serializer", "string_serializer", "to_bytes"]

Serializer: TypeAlias = Callable[[Any], bytes | None]


def string_serializer(value: str | None) -> bytes | None:
    """UTF-8."""
    return None if value is None else value.encode()


def json_serializer(value: Any) -> bytes | None:
    """JSON in UTF-8, without spaces; None stays None (a tombstone)."""
    return None if value is None else json.dumps(value, separators=(",", ":")).encode()


def to_bytes(what: str, value: Any, serializer: Serializer | None) -> bytes | None:
    """The bytes of a key or value; SerializationError says what it was and what would help."""
    if serializer is not None:
        try:
            value = serializer(value)
        except Exception as error:
            raise SerializationError(
                f"{what}: {serializer!r} cannot serialize {type(value).__name__}: {error}"
            ) from error
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"{what} is {type(value).__name__}, not bytes: give bytes, or set {what}.serializer "
        f"(for example barnabas.producer.serializers.string_serializer)"
    )
