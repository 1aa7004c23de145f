"""What the compressed batches of one request may become, all together, when their records are looked at.

Role: 100 kB on the wire can be 3 GB of zeros. The limit of a single batch (`decompressed_limit`) does not help against many of them, so
that a request brings an `Expansion` along, from which each of its batches takes.
Thread: that of the request; one object per request. Lock: none.
"""

from __future__ import annotations

from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import CorruptBatch
from barnabas.records.compression import ExpandsTooFar, decompress

UNLIMITED = 2**63 - 1


class ExpansionUsedUp(KafkaError):
    """The batches of a request expand further than its thread may follow. Nothing of this batch was written.

    The code is the one for which Java's producer splits the batch and sends the halves again, in other requests.
    """

    def __init__(self, granted: int) -> None:
        text = (
            f"the compressed batches of this request hold more than {granted} bytes; send fewer of them in one request"
        )
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, text)


class Expansion:
    """How many bytes may still be decompressed, and how many compressed again for topics with a codec of their own."""

    __slots__ = ("_granted", "compressible", "left")

    def __init__(self, granted: int, compressible: int = UNLIMITED) -> None:
        self._granted = self.left = granted
        self.compressible = compressible

    def decompress(self, codec: int, data: bytes, limit: int) -> bytes:
        """The plain records of a batch, at most `limit` bytes; ExpansionUsedUp when they are more than is left."""
        room = min(limit, self.left)
        if room <= 0:
            raise ExpansionUsedUp(self._granted)
        try:
            plain = decompress(codec, data, room)
        except ExpandsTooFar:
            if room < limit:
                raise ExpansionUsedUp(self._granted) from None
            self.left -= room
            raise
        except CorruptBatch:
            self.left -= room  # how far it came before it failed is not known
            raise
        self.left -= len(plain)
        return plain

    def take_for_compression(self, size: int) -> None:
        """Before records are compressed again; ExpansionUsedUp when that is too much for this thread."""
        self.compressible -= size
        if self.compressible < 0:
            raise ExpansionUsedUp(self._granted)

    def __repr__(self) -> str:
        return f"Expansion({self.left} of {self._granted} bytes left)"
