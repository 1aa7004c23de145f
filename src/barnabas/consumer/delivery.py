"""Handing out what was fetched: records one by one, or runs of whole batches.

Role: goes through the fetches in the order in which they came, a partition at a time, and moves the positions. An error that stands
behind records that can be returned waits until these are handed out. Thread: the consumer's; no lock.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.cluster import Partition
from barnabas.consumer.fetched_partition import FetchedPartition
from barnabas.consumer.fetcher import Fetcher
from barnabas.errors import KafkaError
from barnabas.records.kernel.fetched import Record
from barnabas.records.kernel.runs import Run

__all__ = ["Delivery", "PartitionRun"]

MAX_BATCH_BYTES = 1 << 30  # of one call; Arrow's binary columns end at 2 GiB
_NO_LIMIT = 1 << 62


class PartitionRun(NamedTuple):
    """Measured batches and where they are from."""

    partition: Partition
    run: Run


class Delivery:
    """See the file header."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._current: FetchedPartition | None = None

    def records(self, limit: int) -> list[Record]:
        """At most `limit` records."""
        found: list[Record] = []
        while len(found) < limit:
            try:
                current = self._wanted()
                if current is None:
                    break
                records = current.take_records(limit - len(found))
            except KafkaError:
                if found:
                    break  # it comes again with the next call
                raise
            self._took(current, bool(records))
            found += records
        return found

    def runs(self, max_records: int | None) -> list[PartitionRun]:
        """Whole batches until there are about `max_records`, or no more is there."""
        parts: list[PartitionRun] = []
        rows = size = 0
        limit = _NO_LIMIT if max_records is None else max_records
        while rows < limit and size < MAX_BATCH_BYTES:
            try:
                current = self._wanted()
                if current is None:
                    break
                run = current.take_run(limit - rows)
            except KafkaError:
                if parts:
                    break
                raise
            self._took(current, run is not None)
            if run is not None:
                parts.append(PartitionRun(current.state.partition, run))
                rows += run.sizes.rows
                size += run.stop - run.start
        return parts

    def _wanted(self) -> FetchedPartition | None:
        """The fetch to go on with: the last one, unless its partition was moved or paused meanwhile."""
        current = self._current
        if current is not None and not current.is_stale and not current.state.paused:
            return current
        self._current = None
        if current is not None and not current.is_stale:
            self._fetcher.put_back(current)
        self._current = self._fetcher.next_fetched()
        if self._current is not None:
            self._fetcher.send_fetches()  # the broker works on the next while this is decoded
        return self._current

    def _took(self, current: FetchedPartition, something: bool) -> None:
        current.state.position = current.position
        if not something:
            self._current = None  # all of it was handed out
