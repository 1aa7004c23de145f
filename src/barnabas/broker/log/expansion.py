"""How much work the batches of one request may make, all together: what is compressed must be decompressed to be looked at.

Role: 100 kB on the wire can be 3 GB of zeros. The limit of a single batch (`decompressed_limit`) does not help against many of them, so
that a request brings an `Expansion` along, from which each of its batches takes. All of them are decompressed into the same memory, which
the next request gets: memory that is new to the process costs more than the decompression, and malloc would keep some for each thread.
Thread: that of the request; one object for each request. Lock: `SpareMemory._lock`, a leaf.
"""

from __future__ import annotations

import mmap
import threading

from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import Buffer
from barnabas.records.compression import GROWTH, ExpandsTooFar, decompress_into, first_guess

UNLIMITED = 2**63 - 1
KEPT_MEMORY = 16 * 1024 * 1024
"""More than this is not kept from one batch to the next."""


class ExpansionUsedUp(KafkaError):
    """The batches of a request are more work than its thread may do. Nothing of this batch was written.

    The code is the one for which Java's producer splits the batch and sends the halves again, in other requests.
    """

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, text)


class SpareMemory:
    """Memory that requests have given back. Thread-safe."""

    __slots__ = ("_lock", "_most", "_spare")

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._spare: list[bytearray] = []  # the smallest first

    def borrow(self) -> bytearray:
        """The largest piece, or nothing."""
        with self._lock:
            return self._spare.pop() if self._spare else bytearray()

    def give_back(self, memory: bytearray) -> None:
        with self._lock:
            self._spare.append(memory)
            self._spare.sort(key=len)
            if len(self._spare) > self._most:
                del self._spare[0]

    def __repr__(self) -> str:
        return f"SpareMemory({[len(memory) for memory in self._spare]})"


_NOTHING = bytearray()
_spare = SpareMemory(most=2)


class Expansion:
    """How many bytes may still be decompressed, and how many compressed again for topics with a codec of their own. `done`: how many bytes
    were decompressed."""

    __slots__ = ("_guess", "_memory", "compressible", "done", "granted")

    def __init__(self, granted: int, compressible: int = UNLIMITED) -> None:
        self.granted = granted
        self.compressible = compressible
        self.done = 0
        self._memory = _NOTHING
        self._guess = 0  # what the batches before needed

    def decompress(self, codec: int, data: Buffer, limit: int) -> memoryview:
        """The plain records of a batch, at most `limit` bytes, until the next call; ExpansionUsedUp when they are more than is left."""
        room = min(limit, max(self._guess, first_guess(codec, data)))
        while room <= self.granted - self.done:
            target = memoryview(self._memory_of(room))[:room]
            self.done += room  # how far it comes before it fails is not known
            try:
                written = decompress_into(codec, data, target)
            except ExpandsTooFar:
                if room >= limit:
                    raise
                room = self._guess = min(limit, room * GROWTH)
            else:
                self.done -= room - written
                return target[:written]
        raise ExpansionUsedUp(
            f"the compressed batches of this request hold more than {self.granted} bytes; send fewer of them in one request"
        )

    def _memory_of(self, size: int) -> bytearray | mmap.mmap:
        if size <= len(self._memory):
            return self._memory
        if size > KEPT_MEMORY:
            return mmap.mmap(-1, size)  # a bytearray would be filled with zeros, while all threads wait
        memory = bytearray() if self._memory else _spare.borrow()
        self._memory = memory = memory if size <= len(memory) else bytearray(size)
        return memory

    def give_back(self) -> None:
        """The thread of the request stops; what was decompressed is not used any more."""
        if self._memory:
            memory, self._memory = self._memory, _NOTHING
            _spare.give_back(memory)

    def take_for_compression(self, size: int) -> None:
        """Before records are compressed again; ExpansionUsedUp when that is too much for this thread."""
        if size > self.compressible:
            raise ExpansionUsedUp(
                "the batches of this request that must be compressed as their topic wants it are too large; send smaller or fewer ones "
                "in a request, or use the topic's compression type"
            )
        self.compressible -= size

    def __repr__(self) -> str:
        return f"Expansion({self.done} of {self.granted} bytes)"
