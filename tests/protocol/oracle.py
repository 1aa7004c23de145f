"""The independent implementation (kio) and the values that both sides can hold.

kio renames some fields and gives some a richer type: `throttle_time` is a timedelta, `error_code` an enum, the zero UUID
is None, a timestamp of -1 is None. `agree` compares across these differences; nothing else may differ.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from barnabas.protocol.api import APIS, Api
from barnabas.protocol.schema import ZERO_UUID, FieldSpec, Message, Primitive

MAX_TIMESTAMP_MS = 253_402_300_799_000  # the last second that a datetime can hold
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}

Case = tuple[Api, int, type[Message]]


def cases() -> Iterator[Case]:
    """Every (API, version, request or response) that the table declares."""
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            yield api, version, api.request
            yield api, version, api.response


def case_id(case: Case) -> str:
    return f"{case[2].__name__}-v{case[1]}"


def oracle_class(case: Case) -> Any:
    api, version, cls = case
    kind = "request" if cls is api.request else "response"
    module = importlib.import_module(f"kio.schema.{api_key_map[api.key]}.v{version}.{kind}")
    return getattr(module, cls.__name__)


def oracle_decode(oracle: Any, data: bytes) -> Any:
    value, size = entity_reader(oracle)(data, 0)
    assert size == len(data)
    return value


def oracle_encode(oracle: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(oracle)(buffer, value)
    return buffer.getvalue()


def present_fields(cls: type[Message], version: int) -> list[FieldSpec]:
    return [spec for spec in cls.schema.fields if version in spec.versions]


def paired_fields(cls: type[Message], oracle: Any, version: int) -> list[tuple[FieldSpec, Any]]:
    """Our fields beside those of kio, which has one class per version, in the order of Kafka's JSON."""
    ours, theirs = present_fields(cls, version), dataclasses.fields(oracle)
    assert [spec.name.removesuffix("_ms") for spec in ours] == [f.name.removesuffix("_ms") for f in theirs]
    return list(zip(ours, theirs, strict=True))


def oracle_element(oracle: Any, name: str) -> Any:
    """The class of a nested kio struct, out of `tuple[X, ...] | None` and the like."""
    pending = [typing.get_type_hints(oracle)[name]]
    while pending:
        hint = pending.pop()
        if dataclasses.is_dataclass(hint):
            return hint
        pending.extend(typing.get_args(hint))
    raise AssertionError(f"{oracle.__name__}.{name} holds no struct")


def agree(ours: Any, theirs: Any, version: int) -> bool:
    """Whether a value of ours and one of kio mean the same."""
    if isinstance(ours, Message):
        pairs = paired_fields(type(ours), type(theirs), version)
        return all(agree(getattr(ours, spec.name), getattr(theirs, f.name), version) for spec, f in pairs)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(agree(a, b, version) for a, b in zip(ours, theirs, strict=True))
    if isinstance(theirs, datetime.timedelta):
        theirs = theirs // datetime.timedelta(milliseconds=1)
    elif isinstance(theirs, datetime.datetime):
        # kio goes through a float and loses a microsecond now and then.
        theirs = (theirs - EPOCH + datetime.timedelta(microseconds=500)) // datetime.timedelta(milliseconds=1)
    elif theirs is None and ours in (-1, ZERO_UUID):
        return True
    elif isinstance(theirs, ErrorCode):
        theirs = theirs.value
    return bool(ours == theirs)


def messages(cls: type[Message], oracle: Any, version: int) -> st.SearchStrategy[Message]:
    """Messages with any value that the version can carry; absent fields keep their default."""
    values = {spec.name: _value(spec, oracle, f, version) for spec, f in paired_fields(cls, oracle, version)}
    return st.builds(cls, **values)


def _value(spec: FieldSpec, oracle: Any, f: Any, version: int) -> st.SearchStrategy[Any]:
    if isinstance(spec.kind, Primitive):
        one = _primitive(spec.kind, f.metadata.get("kafka_type"))
    else:
        one = messages(spec.kind, oracle_element(oracle, f.name), version)
    strategy = st.lists(one, max_size=3) if spec.is_array else one
    # kio cannot write null into a tagged field: there, null is only ever the default.
    return st.none() | strategy if version in spec.nullable and spec.tag is None else strategy


def _primitive(kind: Primitive, kafka_type: str | None) -> st.SearchStrategy[Any]:
    if kafka_type == "error_code":
        return st.sampled_from([code.value for code in ErrorCode])
    if kafka_type == "datetime_i64":
        return st.integers(min_value=0, max_value=MAX_TIMESTAMP_MS)
    if kind.name in BITS:
        half = 1 << (BITS[kind.name] - 1)
        return st.integers(-half, half - 1)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "BOOL": st.booleans(),
        "UINT16": st.integers(0, 0xFFFF),
        "FLOAT64": st.floats(allow_nan=False),
        "STRING": st.text(max_size=150),
        "BYTES": st.binary(max_size=150),
        "RECORDS": st.binary(max_size=150),
        "UUID": st.uuids() | st.just(ZERO_UUID),
    }
    return simple[kind.name]


def sample(cls: type[Message], version: int) -> Message:
    """A message that fills every field of the version with something else than its default."""
    return cls(**{spec.name: _sample_value(spec, version) for spec in present_fields(cls, version)})


def _sample_value(spec: FieldSpec, version: int) -> Any:
    if not isinstance(spec.kind, Primitive):
        one: Any = sample(spec.kind, version)
    else:
        scalars = {"BOOL": True, "FLOAT64": 1.5, "STRING": "näme", "BYTES": b"data", "RECORDS": b"batch"}
        one = uuid.UUID(int=7) if spec.kind.name == "UUID" else scalars.get(spec.kind.name, 5)
    return [one, one] if spec.is_array else one
