"""How records are printed: as kafka-console-consumer does, as kcat does, as JSON.

Role: each function makes a formatter, from a record to the bytes that are written. Thread: any. Lock: none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from barnabas.consumer import Record

PROPERTIES = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}

Formatter = Callable[["Record"], bytes]
Field = Callable[["Record"], bytes]


def console_format(properties: Mapping[str, str]) -> Formatter:
    """kafka-console-consumer's lines: timestamp, partition, offset, headers, key, value, as far as they are asked for."""
    null = properties["null.literal"].encode()
    between, end = properties["key.separator"].encode(), properties["line.separator"].encode()
    header_between = properties["headers.separator"].encode()

    def or_null(data: bytes | None) -> bytes:
        return null if data is None else data

    def headers(record: Record) -> bytes:
        pairs = [name.encode() + b":" + or_null(value) for name, value in record.headers]
        return header_between.join(pairs) or b"NO_HEADERS"

    fields: dict[str, Field] = {
        "print.timestamp": _timestamp,
        "print.partition": lambda record: b"Partition:%d" % record.partition,
        "print.offset": lambda record: b"Offset:%d" % record.offset,
        "print.headers": headers,
        "print.key": lambda record: or_null(record.key),
        "print.value": lambda record: or_null(record.value),
    }
    wanted = [field for name, field in fields.items() if properties[name].lower() == "true"]
    if wanted == [fields["print.value"]]:
        return lambda record: or_null(record.value) + end
    return lambda record: between.join([field(record) for field in wanted]) + end


def _timestamp(record: Record) -> bytes:
    if record.timestamp < 0:
        return b"NO_TIMESTAMP"
    return b"%s:%d" % (b"LogAppendTime" if record.timestamp_type else b"CreateTime", record.timestamp)


def json_line(record: Record) -> bytes:
    """One object per line; bytes that are no UTF-8 text are {"hex": …}."""
    row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if record.timestamp_type else "CreateTime",
        "key": text_or_hex(record.key),
        "value": text_or_hex(record.value),
        "headers": [[name, text_or_hex(value)] for name, value in record.headers],
    }
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def kcat_json(record: Record) -> bytes:
    """The envelope of kcat -J."""
    row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": "logappend" if record.timestamp_type else "create",
        "ts": record.timestamp,
        "headers": [part for name, value in record.headers for part in (name, text_or_hex(value))],
        "key": text_or_hex(record.key),
        "payload": text_or_hex(record.value),
    }
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def text_or_hex(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


def _tokens(null: bytes) -> dict[str, Field]:
    def value(record: Record) -> bytes:
        found: bytes | None = record.value
        return null if found is None else found

    def key(record: Record) -> bytes:
        found: bytes | None = record.key
        return null if found is None else found

    return {
        "s": value,
        "v": value,
        "S": lambda record: b"%d" % _size(record.value),
        "R": lambda record: _size(record.value).to_bytes(4, "big", signed=True),
        "k": key,
        "K": lambda record: b"%d" % _size(record.key),
        "T": lambda record: b"%d" % record.timestamp,
        "h": _headers,
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "%": lambda record: b"%",
    }


_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)|([^\\]+|\\)", re.DOTALL)
_TOKEN = re.compile(r"%(.?)", re.DOTALL)


def kcat_format(text: str, null: bytes = b"") -> Formatter:
    """kcat's -f: %s value, %k key, %h headers, %t topic, %p partition, %o offset, %T time, %S and %K sizes, %R size as bytes;
    rpk's %v is the value too. Escapes as in C."""
    tokens = _tokens(null)
    parts: list[Field] = []
    for place, piece in enumerate(_TOKEN.split(text)):
        if place % 2 == 0:  # re.split: text and tokens in turn
            parts.append(_constant(unescaped(piece)))
        elif piece in tokens:
            parts.append(tokens[piece])
        else:
            raise click.UsageError(f"%{piece} is not known in a format; there are: %{' %'.join(tokens)}")
    return lambda record: b"".join([part(record) for part in parts])


def unescaped(text: str) -> bytes:
    """A text with escapes as in C: \\n, \\t, \\x1f."""
    found = _ESCAPE.findall(text)
    return b"".join(
        bytes.fromhex(code) if code else _ESCAPES.get(letter, letter.encode()) if letter else plain.encode()
        for code, letter, plain in found
    )


def _constant(data: bytes) -> Field:
    return lambda _: data
