"""Records that were polled and not handed out yet, because they are asked for one by one.

Role: behind `for record in consumer` and `async for`; knows where each partition goes on when the rest is given back.
Thread: the consumer's, or the event loop's; no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from barnabas.client.cluster import Partition
from barnabas.records.kernel.fetched import Record

__all__ = ["ReadAhead", "places_of"]


def places_of(records: Iterable[Record]) -> dict[Partition, int]:
    """The first offset of each partition."""
    places: dict[Partition, int] = {}
    for record in records:
        places.setdefault((record.topic, record.partition), record.offset)
    return places


class ReadAhead:
    """See the file header."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque()

    def __len__(self) -> int:
        return len(self._records)

    def put(self, records: Iterable[Record]) -> None:
        self._records.extend(records)

    def next(self) -> Record | None:
        return self._records.popleft() if self._records else None

    def take(self, limit: int) -> list[Record]:
        """At most `limit` of them, in order."""
        return [self._records.popleft() for _ in range(min(limit, len(self._records)))]

    def first_offset(self, partition: Partition) -> int | None:
        """Of the next record of a partition; None when none is here."""
        return places_of(self._records).get(partition) if self._records else None

    def take_places(self) -> dict[Partition, int]:
        """Forget all of them: where each partition has to be read again."""
        places = places_of(self._records)
        self._records.clear()
        return places

    def __repr__(self) -> str:
        return f"<ReadAhead {len(self._records)}>"
