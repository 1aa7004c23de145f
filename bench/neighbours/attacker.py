"""The process of the hostile client: `python -m bench.neighbours.attacker ROW PORT SIDE_PORT`.

Role: builds the bytes of the row, says that it is ready, attacks when it is told to, and prints its tally. It gives way to the broker
and the bystander (`nice`), so that what the bystander suffers is the broker's doing and not a want of cores.
Thread: the main one, and those of the attack. Lock: none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from barnabas.errors import ErrorCode, MalformedRequest
from barnabas.protocol.api import APIS
from barnabas.protocol.codec import decode_response
from barnabas.protocol.header import parse_response_header
from barnabas.protocol.schema import Message
from bench.neighbours.attacks import Target
from bench.neighbours.children import serve
from bench.neighbours.rows import Row, row_named

NICENESS = 10


def attack(row: Row, target: Target, seconds: float) -> dict[str, Any]:
    tally = row.attack.run(target, seconds)
    return {**tally.as_dict(), "refusals": refusals(row, tally.kept)}


def refusals(row: Row, answer: bytes) -> str:
    """The error codes of an answer, if it holds nothing else, by name."""
    if row.asked is None or not answer:
        return ""
    key, version = row.asked
    _, offset = parse_response_header(answer, APIS[key].response_header_version(version))
    with suppress(MalformedRequest):
        codes = set(error_codes(decode_response(key, version, answer, offset)))
        if codes - {0}:
            return ", ".join(name_of(code) for code in sorted(codes - {0})[:3])
    return ""


def error_codes(message: Message) -> Iterator[int]:
    for field in message.schema.fields:
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Message):
                    yield from error_codes(element)
        elif isinstance(value, Message):
            yield from error_codes(value)


def name_of(code: int) -> str:
    return next((each.name for each in ErrorCode if each.value == code), f"error {code}")


def main(arguments: list[str]) -> None:
    os.nice(NICENESS)
    row, target = row_named(arguments[0]), Target(int(arguments[1]), int(arguments[2]))
    row.attack.prepare(target)
    serve(lambda seconds: attack(row, target, seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
