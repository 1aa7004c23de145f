"""The keys of a log's dirty part and their newest offsets, in bounded memory (Kafka's SkimpyOffsetMap).

Role: owns the table that records/kernel/compaction.py fills and asks; as large as the dirty part can need, at most as large as allowed.
Thread: one cleaner's. Lock: none.
"""

from __future__ import annotations

import os
from array import array

from barnabas.records.kernel.compaction import SEED_SIZE, SLOT_SIZE, Kept, newest_records, note_keys, offset_of

SMALLEST_MEMORY = 3 * SLOT_SIZE
_ROOMY = 2
"""Slots per key while memory lasts: look-ups in a half-empty table end soon."""


class OffsetMap:
    """Key -> newest offset, up to `latest_offset`."""

    __slots__ = ("_most", "_seed", "entries", "latest_offset", "slots", "table")

    def __init__(self, memory: int, load_factor: float, most_keys: int) -> None:
        """`memory` bounds the table; of its slots `load_factor` may be used. `most_keys` is what will come at most."""
        wanted = max(SMALLEST_MEMORY, min(memory, SLOT_SIZE * (_ROOMY * most_keys + 3)))
        self.slots = _prime_up_to(wanted // SLOT_SIZE)
        self.table = bytearray(self.slots * SLOT_SIZE)
        self._most = max(1, min(self.slots - 1, int(self.slots * load_factor)))
        self._seed = os.urandom(SEED_SIZE)
        self.entries = 0
        self.latest_offset = -1

    def add(self, records: bytes, spans: array[int], base_offset: int, first_offset: int) -> bool:
        """Note the keys of a batch; False when the map is full, and then everything up to `latest_offset` is noted."""
        room = self._most - self.entries
        new, missed = note_keys(self.table, self._seed, room, records, spans, (base_offset, first_offset))
        self.entries += new
        if missed >= 0:
            self.latest_offset = missed - 1
        return missed < 0

    def newest(self, records: bytes, spans: array[int], base_offset: int, keep_tombstones: bool) -> Kept:
        """Which records of a batch stay."""
        offsets = (base_offset, self.latest_offset)
        return newest_records(self.table, self._seed, records, spans, offsets, keep_tombstones)

    def get(self, key: bytes) -> int:
        """The newest offset of a key, or -1."""
        return offset_of(self.table, self._seed, key)

    @property
    def utilization(self) -> float:
        """Used share of what may be used."""
        return self.entries / self._most

    def __repr__(self) -> str:
        return f"OffsetMap({self.entries} keys in {self.slots} slots, up to {self.latest_offset})"


def _prime_up_to(number: int) -> int:
    """The largest prime that is not above a number of at least 3."""
    while not _is_prime(number):
        number -= 1
    return number


def _is_prime(number: int) -> bool:
    return number == 2 or (number % 2 == 1 and all(number % divisor for divisor in range(3, int(number**0.5) + 1, 2)))
