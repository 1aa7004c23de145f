"""Finds the field that kept a message from being encoded.

Role: the compiled encoder is fast because it checks nothing by itself; when it fails, this walks the message slowly
and names the first value that does not fit. Thread: any. Lock: none.
"""

from __future__ import annotations

import uuid
from typing import Final

from barnabas.protocol.schema import FieldSpec, Message, Primitive
from barnabas.protocol.wire import MAX_STRING

_BITS: Final = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
_CLASSES: Final[dict[str, type]] = {"STRING": str, "UUID": uuid.UUID}


def find_misfit(message: Message, version: int, path: str = "") -> str | None:
    """The path and value of the first field that this version cannot hold, or None when all look right."""
    path = path or message.schema.name
    for spec in message.schema.fields:
        if version not in spec.versions:
            continue
        found = _check(spec, getattr(message, spec.name, None), version, f"{path}.{spec.name}")
        if found:
            return found
    return None


def _check(spec: FieldSpec, value: object, version: int, path: str) -> str | None:
    if value is None:
        return None if version in spec.nullable else f"{path} may not be null in version {version}"
    if not spec.is_array:
        return _check_one(spec, value, version, path)
    if not isinstance(value, list | tuple):
        return f"{path} = {value!r} is not a list"
    for index, element in enumerate(value):
        found = _check_one(spec, element, version, f"{path}[{index}]")
        if found:
            return found
    return None


def _check_one(spec: FieldSpec, value: object, version: int, path: str) -> str | None:
    kind = spec.kind
    if not isinstance(kind, Primitive):
        if not isinstance(value, Message) or value.schema is not kind.schema:
            return f"{path} = {value!r} is not a {kind.__name__}"
        return find_misfit(value, version, path)
    wanted = _CLASSES.get(kind.name)
    if wanted is not None and not isinstance(value, wanted):
        return f"{path} = {value!r} is not a {wanted.__name__}"
    if kind.name == "STRING":
        return _check_string(str(value), path)
    return _check_number(kind, value, path)


def _check_string(value: str, path: str) -> str | None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"{path} = {value!r} cannot be written as UTF-8"
    return f"{path} has {size} bytes, at most {MAX_STRING} are allowed" if size > MAX_STRING else None


def _check_number(kind: Primitive, value: object, path: str) -> str | None:
    bits = _BITS.get(kind.name, 16)
    low, high = (0, 0xFFFF) if kind.name == "UINT16" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if kind.name in _BITS or kind.name == "UINT16":
        if not isinstance(value, int):
            return f"{path} = {value!r} is not an int"
        return None if low <= value <= high else f"{path} = {value} is outside {kind.name} ({low} to {high})"
    if kind.name == "FLOAT64" and not isinstance(value, int | float):
        return f"{path} = {value!r} is not a float"
    return None
