"""Offsets as users and Spark's checkpoints write them: JSON of topics, partitions and numbers.

Input: a byte for what it is, UTF-8 text.
"""

from __future__ import annotations

import json

from barnabas.spark.offsets import from_spark, names_of, parse_offsets, parse_partitions, to_spark
from tests.fuzz.target import Reader, must, outcome


def run(data: bytes) -> None:
    reader = Reader(data)
    kind, text = reader.byte() % 2, reader.rest().decode("utf-8", "replace")
    if kind:
        partitions = outcome((ValueError,), parse_partitions, text).value
        if partitions is not None:
            names_of(partitions)
        return
    offsets = outcome((ValueError,), parse_offsets, text).value
    if offsets is not None:
        written = to_spark(offsets)
        must(from_spark(written) == offsets, f"{offsets} is written as {written}")
        again = json.dumps(to_spark(parse_offsets(json.dumps(written))))
        must(json.dumps(written) == again, f"{written} is written again as {again}")


def seeds() -> dict[str, bytes]:
    texts = (
        '{"orders":{"0":23,"1":-1},"returns":{"0":-2}}',
        '{"orders":{"2147483647":9223372036854775807}}',
        "{}",
        '{"":{}}',
        '{"a":{"0":1.5}}',
        '{"a":{"00":1,"0":2}}',
        '{"a":{"0":true}}',
        "[" * 20 + "]" * 20,
    )
    lists = ('{"orders":[0,1],"returns":[0]}', '{"a":["0",0]}', '{"a":[]}', '{"a":[-1]}')
    found = {f"offsets-{number}": b"\0" + text.encode() for number, text in enumerate(texts)}
    return found | {f"partitions-{number}": b"\1" + text.encode() for number, text in enumerate(lists)}
