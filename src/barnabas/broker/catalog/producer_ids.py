"""Producer ids: never the same twice, also after kill -9 (KIP-98, KIP-730).

Role: hands out ids from a block that was reserved on disk before its first id was given away. What is left of a block
at a crash is lost, which costs nothing: there are 2^63 ids.
Thread: any (InitProducerId runs on handlers). Lock: its own, held over the reservation once per thousand ids.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

PRODUCER_ID_BLOCK_SIZE = 1000


class ProducerIdBlocks:
    """Thread-safe. `reserve(count)` makes `count` ids ours on disk and returns the first."""

    __slots__ = ("_end", "_lock", "_next", "_reserve")

    def __init__(self, reserve: Callable[[int], int]) -> None:
        self._reserve = reserve
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0

    def next_producer_id(self) -> int:
        with self._lock:
            if self._next == self._end:
                self._next = self._reserve(PRODUCER_ID_BLOCK_SIZE)
                self._end = self._next + PRODUCER_ID_BLOCK_SIZE
            producer_id = self._next
            self._next = producer_id + 1
            return producer_id

    def __repr__(self) -> str:
        return f"ProducerIdBlocks(next={self._next}, block_end={self._end})"
