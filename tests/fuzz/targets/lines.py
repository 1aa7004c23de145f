"""Lines and formats of the command line: what `produce` reads, what `consume` and `cat` print, and addresses of brokers.

Input: a byte for what it is, the line or the format.
"""

from __future__ import annotations

import json

import click

from barnabas.cli.record_formats import PROPERTIES as PRINTED
from barnabas.cli.record_formats import console_format, json_line, kcat_format, kcat_json, unescaped
from barnabas.cli.record_lines import PROPERTIES as READ
from barnabas.cli.record_lines import BadLine, Outgoing, checked_properties, parse_json, parser_for
from barnabas.client.addresses import parse_bootstrap
from barnabas.consumer import Record
from barnabas.errors import ConfigError
from tests.fuzz.target import Reader, must, outcome

_switches = {"parse.key": "true", "parse.headers": "true", "null.marker": "NULL"}
PARSERS = (
    parser_for(checked_properties({}, READ)),
    parser_for(checked_properties(_switches, READ)),
    parser_for(checked_properties({**_switches, "ignore.error": "true", "key.separator": "::"}, READ)),
)
CONSOLE = console_format({**PRINTED, **{name: "true" for name in PRINTED if name.startswith("print.")}})


def run(data: bytes) -> None:
    reader = Reader(data)
    kind, rest = reader.byte() % 6, reader.rest()
    if kind < len(PARSERS):
        _print(outcome((BadLine,), PARSERS[kind], rest).value)
    elif kind == 3:
        sent: Outgoing | None = outcome((BadLine,), parse_json, rest).value
        again = _print(sent)
        if sent is not None and again is not None:
            must(
                again._replace(timestamp=None, headers=again.headers or None)
                == sent._replace(timestamp=None, headers=sent.headers or None),
                f"{sent} is printed and read as {again}",
            )
    elif kind == 4:
        text = rest.decode("utf-8", "replace")
        unescaped(text)
        form = outcome((click.UsageError,), kcat_format, text).value
        if form is not None:
            form(_record(Outgoing(rest, rest, [("name", rest)])))
    else:
        outcome((ConfigError,), parse_bootstrap, rest.decode("utf-8", "replace"))


def _record(sent: Outgoing) -> Record:
    record = Record("fuzz", 0, 5, -1 if sent.timestamp is None else sent.timestamp, 0)
    record.key, record.value, record.headers = sent.key, sent.value, tuple(sent.headers or ())
    return record


def _print(sent: Outgoing | None) -> Outgoing | None:
    """What was read is printed in all forms; read again as JSON."""
    if sent is None:
        return None
    record = _record(sent)
    CONSOLE(record)
    json.loads(kcat_json(record))
    return parse_json(json_line(record))


def seeds() -> dict[str, bytes]:
    texts = {
        0: ("value", ""),
        1: ("a:1,b:NULL\tkey\tvalue", "NULL\tNULL\tNULL", "no key"),
        2: ("h:1\tkey::value", "value"),
        3: (
            '{"value":"v","key":{"hex":"00ff"},"headers":[["a","b"],["c",null]],"timestamp":5}',
            '{"value":null}',
            '{"value":{"hex":"zz"}}',
            '{"value":"\\ud800"}',
            "[]",
        ),
        4: ("%t [%p] at %o: %k %s %h %T %S %K %R\\n\\x1f", "%%", "%", "\\", "\\q"),
        5: ("localhost:9092,[::1]:9093,PLAINTEXT://host", "host:99999", "²:1", ","),
    }
    return {
        f"{kind}-{number}": bytes([kind]) + text.encode()
        for kind, rows in texts.items()
        for number, text in enumerate(rows)
    }
