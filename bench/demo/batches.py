"""The batches of a streaming query, gathered from what Spark reports of them while it runs.

Role: `BatchLog` keeps of each batch what the display shows and the proof needs: rows, time, the offsets where it ended and the watermark.
Thread: the demo's own; Spark's threads stand behind the calls. Lock: none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

KEPT_BY_SPARK = 50
"""How many reports Spark keeps (spark.sql.streaming.numRecentProgressUpdates): far more than batches end between two looks."""


class QueryFailed(Exception):
    """A query ended with an error."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch that is done."""

    number: int
    rows: int
    seconds: float
    ends: dict[int, int]
    """The offset after the last one that was read, of each partition."""
    watermark_ms: int
    """Windows that end here or before are closed by this batch; orders for them are dropped from the next one on."""
    groups_in_state: int


class BatchLog:
    """All batches of one query, from the first on."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self.batches: dict[int, Batch] = {}
        self.rows = 0

    @property
    def name(self) -> str:
        return str(self.query.name)

    @property
    def last(self) -> Batch | None:
        return self.batches[max(self.batches)] if self.batches else None

    def update(self) -> None:
        """Look what has been done since; raises when the query has failed."""
        error = self.query.exception()
        if error is not None:
            raise QueryFailed(f"the query {self.name} failed: {str(error).splitlines()[0]}")
        for report in self.query.recentProgress:
            # Spark reports idleness too, under the number of the batch that is to come: such a report has no addBatch.
            if report["batchId"] not in self.batches and "addBatch" in report["durationMs"]:
                batch = batch_of(report)
                self.batches[batch.number] = batch
                self.rows += batch.rows

    def in_order(self) -> list[Batch]:
        """Every batch from number 0 on; raises when one was never seen, for then nothing can be proved."""
        numbers = sorted(self.batches)
        if numbers != list(range(len(numbers))):
            raise QueryFailed(f"Spark reported only the batches {numbers} of {self.name}")
        return [self.batches[number] for number in numbers]


def batch_of(report: Any) -> Batch:
    """From a StreamingQueryProgress."""
    ends: dict[str, int] = next(iter(json.loads(report["sources"][0]["endOffset"]).values()))
    watermark = report["eventTime"].get("watermark")
    operators = report["stateOperators"]
    return Batch(
        number=report["batchId"],
        rows=report["numInputRows"],
        seconds=report["durationMs"]["triggerExecution"] / 1000,
        ends={int(partition): end for partition, end in ends.items()},
        watermark_ms=milliseconds(watermark) if watermark else 0,
        groups_in_state=operators[0]["numRowsTotal"] if operators else 0,
    )


def milliseconds(text: str) -> int:
    """Of a time as Spark writes it: 2026-11-16T02:31:20.123Z."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
