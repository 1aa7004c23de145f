"""Lines of text to records to send: a value, or key and headers before it.

Role: kafka-console-producer's properties, kcat's -K, and JSON. Thread: any; no state but the settings. Lock: none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from barnabas.errors import BarnabasError

PROPERTIES = {
    "parse.key": "false",
    "key.separator": "\t",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": "",
    "ignore.error": "false",
}

Headers = list[tuple[str, bytes | None]]


class BadLine(BarnabasError):
    """A line is not what the options say that it is."""


class Outgoing(NamedTuple):
    """A record before it has a topic."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    timestamp: int | None = None


Parser = Callable[[bytes], Outgoing]


def checked_properties(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """The properties with their defaults; click's error for one that nobody knows."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise click.UsageError(f"--property {unknown[0]} is not known; there are: {', '.join(known)}")
    # A separator on a command line is often written as two characters.
    plain = {key: value.replace("\\t", "\t").replace("\\n", "\n").replace("\\0", "\0") for key, value in given.items()}
    return {**known, **plain}


@dataclass(frozen=True)
class LineParser:
    """As kafka-console-producer reads a line: headers, key, value, each but the last optional."""

    key_separator: bytes | None = None
    headers_delimiter: bytes | None = None
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    lenient: bool = False
    """A line without a separator is all value (kcat, and ignore.error=true)."""

    def __call__(self, line: bytes) -> Outgoing:
        headers: Headers | None = None
        key: bytes | None = None
        if self.headers_delimiter is not None:
            text, line = self._split(line, self.headers_delimiter, "headers")
            headers = None if text is None or text == self.null_marker else self._headers(text)
        if self.key_separator is not None:
            key, line = self._split(line, self.key_separator, "key")
        return Outgoing(self._or_null(line), None if key is None else self._or_null(key), headers)

    def _split(self, line: bytes, separator: bytes, what: str) -> tuple[bytes | None, bytes]:
        first, found, rest = line.partition(separator)
        if found:
            return first, rest
        if self.lenient:
            return None, line
        raise BadLine(f"no {what}: there is no {separator.decode()!r} in it")

    def _or_null(self, data: bytes) -> bytes | None:
        return None if data == self.null_marker else data

    def _headers(self, text: bytes) -> Headers:
        found: Headers = []
        for part in text.split(self.headers_separator):
            name, separator, value = part.partition(self.headers_key_separator)
            if not separator:
                raise BadLine(
                    f"the header {part.decode(errors='replace')!r} has no {self.headers_key_separator.decode()!r}"
                )
            found.append((name.decode(errors="replace"), self._or_null(value)))
        return found


def parser_for(properties: Mapping[str, str]) -> LineParser:
    """The parser that --property asks for."""

    def separator(switch: str, name: str) -> bytes | None:
        return properties[name].encode() if properties[switch].lower() == "true" else None

    return LineParser(
        key_separator=separator("parse.key", "key.separator"),
        headers_delimiter=separator("parse.headers", "headers.delimiter"),
        headers_separator=properties["headers.separator"].encode(),
        headers_key_separator=properties["headers.key.separator"].encode(),
        null_marker=properties["null.marker"].encode() or None,
        lenient=properties["ignore.error"].lower() == "true",
    )


def parse_json(line: bytes) -> Outgoing:
    """What `consume --format json` prints: key, value, headers and timestamp count, place and offset do not."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:  # the latter for a thousand brackets
        raise BadLine(f"it is not JSON: {error}") from error
    if not isinstance(row, dict) or "value" not in row:
        raise BadLine('it must be a JSON object with "value"')
    timestamp = row.get("timestamp")
    if timestamp is not None and (not isinstance(timestamp, int) or isinstance(timestamp, bool)):
        raise BadLine("the timestamp must be milliseconds since 1970")
    return Outgoing(_bytes(row["value"]), _bytes(row.get("key")), _json_headers(row.get("headers")), timestamp)


def _json_headers(rows: Any) -> Headers | None:
    if not rows:
        return None
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) for row in rows
    ):
        raise BadLine("the headers must be a list of [name, value]")
    return [(_encoded(name).decode(), _bytes(value)) for name, value in rows]


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _encoded(value)
    if isinstance(value, dict) and list(value) == ["hex"]:
        try:
            return bytes.fromhex(value["hex"])
        except (ValueError, TypeError) as error:
            raise BadLine(f"it is not hexadecimal: {error}") from error
    raise BadLine('keys and values must be text, null or {"hex": …}')


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadLine("it has half of a character: \\ud800 to \\udfff come in pairs") from error
