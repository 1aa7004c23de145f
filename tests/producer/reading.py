"""Reading what a producer built with somebody else's reader: aiokafka's."""

from __future__ import annotations

from typing import Any

from aiokafka.record.memory_records import MemoryRecords


def read_batch(batch: bytes | memoryview) -> list[Any]:
    """The records of one batch, with `key`, `value`, `headers`, `timestamp` and `offset`; its checksum is right."""
    records = MemoryRecords(bytes(batch))
    found: list[Any] = []
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc()
        found.extend(one)
    return found
