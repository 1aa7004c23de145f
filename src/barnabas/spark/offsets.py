"""Offsets of many partitions, and the JSON in which users, Spark and its checkpoints write them.

Role: `{"topic":{"0":23,"1":-2}}` as Spark's own connector has it, in one canonical order (topics by name, partitions by number), because
Spark compares offsets as texts. Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "EARLIEST",
    "LATEST",
    "Partition",
    "PartitionOffsets",
    "SparkOffset",
    "from_spark",
    "name_of",
    "names_of",
    "parse_offsets",
    "parse_partitions",
    "to_spark",
]

EARLIEST, LATEST = -2, -1
_OFFSETS_FORM = 'must be JSON like {"orders":{"0":23,"1":-1},"returns":{"0":-2}}'
_PARTITIONS_FORM = 'must be JSON like {"orders":[0,1],"returns":[0]}'
_MAX_PARTITION = (1 << 31) - 1
_MAX_OFFSET = (1 << 63) - 1

Partition = tuple[str, int]
"""(topic, number)"""
PartitionOffsets = dict[Partition, int]
SparkOffset = dict[str, dict[str, int]]
"""What goes to and comes from Spark: topic -> number, as a text -> offset."""


def to_spark(offsets: Mapping[Partition, int]) -> SparkOffset:
    """In canonical order; json.dumps keeps it."""
    found: SparkOffset = {}
    for topic, number in sorted(offsets):
        found.setdefault(topic, {})[str(number)] = offsets[topic, number]
    return found


def from_spark(offset: SparkOffset) -> PartitionOffsets:
    """What a checkpoint holds, written by us or by Spark's own connector."""
    return _read(offset)


def parse_offsets(text: str) -> PartitionOffsets:
    """The offsets (or times) that a user wrote; ValueError says what is expected."""
    return _read(_json(text, _OFFSETS_FORM))


def parse_partitions(text: str) -> list[Partition]:
    """The partitions of the option `assign`; ValueError says what is expected."""
    found = _json(text, _PARTITIONS_FORM)
    if not isinstance(found, dict) or not all(isinstance(numbers, list) for numbers in found.values()):
        raise ValueError(_PARTITIONS_FORM)
    partitions = [(topic, _number(number, _PARTITIONS_FORM)) for topic, numbers in found.items() for number in numbers]
    if not partitions:
        raise ValueError(_PARTITIONS_FORM + "; it names no partition")
    return sorted(set(partitions))


def name_of(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def names_of(partitions: Iterable[Partition]) -> str:
    """As messages name them."""
    return ", ".join(map(name_of, sorted(partitions))) or "none"


def _json(text: str, form: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # the latter for a thousand brackets
        raise ValueError(form) from None


def _read(found: Any) -> PartitionOffsets:
    if not isinstance(found, dict) or not all(isinstance(numbers, dict) for numbers in found.values()):
        raise ValueError(_OFFSETS_FORM)
    offsets: PartitionOffsets = {}
    for topic, numbers in found.items():
        for number, offset in numbers.items():
            if not isinstance(offset, int) or isinstance(offset, bool) or not EARLIEST <= offset <= _MAX_OFFSET:
                raise ValueError(f"{_OFFSETS_FORM}; of {topic} {number} it says {offset!r}")
            offsets[topic, _number(number, _OFFSETS_FORM)] = offset
    return offsets


def _number(value: object, form: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_PARTITION:
        raise ValueError(f"{form}; {value!r} is not the number of a partition")
    return value
