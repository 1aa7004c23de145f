"""Every value of a history as a small number, with what is known of it in columns: a million of them fit into some 200 MB.

Role: the memory of the checker. Thread: one. Lock: none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from tests.history.values import Value

UNSENT, OK, INFO, FAILED, ABORTED = range(5)
READ, READ_COMMITTED = 1, 2
NOWHERE = -1
SEQ_BITS = 64
CRC_BITS = 32


class ValueTable:
    """Columns by the number of the value: what became of its send, who read it, where it is, and the line of its send."""

    def __init__(self) -> None:
        self._producers: dict[str, int] = {}
        self._numbers: dict[int, int] = {}
        self.packed: list[int] = []
        self.state = bytearray()
        self.reads = bytearray()
        self.partition = array("i")
        self.offset = array("q")
        self.line = array("q")

    def __len__(self) -> int:
        return len(self.packed)

    def number(self, value: Sequence[str | int]) -> int:
        """The number of this [producer, seq, crc], a new one if it was not seen before."""
        producer, seq, crc = value
        index = self._producers.setdefault(str(producer), len(self._producers))
        # One integer instead of a tuple, which would double the memory; its order is producer, then seq.
        packed = ((index << SEQ_BITS) | int(seq)) << CRC_BITS | int(crc)
        number = self._numbers.get(packed)
        if number is None:
            number = self._numbers[packed] = len(self.packed)
            self.packed.append(packed)
            self.state.append(UNSENT)
            self.reads.append(0)
            self.partition.append(NOWHERE)
            self.offset.append(NOWHERE)
            self.line.append(NOWHERE)
        return number

    def value(self, number: int) -> Value:
        packed = self.packed[number]
        names = list(self._producers)
        seq = packed >> CRC_BITS & ((1 << SEQ_BITS) - 1)
        return Value(names[packed >> (SEQ_BITS + CRC_BITS)], seq, packed & ((1 << CRC_BITS) - 1))

    def producer(self, number: int) -> int:
        return self.packed[number] >> (SEQ_BITS + CRC_BITS)

    def in_send_order(self) -> Iterator[int]:
        """The numbers of all values, producer by producer, each in the order of its sends."""
        return iter(sorted(range(len(self.packed)), key=self.packed.__getitem__))
