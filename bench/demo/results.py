"""The topic of revenue, read by our consumer while the pipeline writes it.

Role: `Results` keeps the totals of the window that was closed last, for the display.
Thread: the demo's own. Lock: none.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from barnabas import Consumer

POLLS = 20
POLL_SECONDS = 0.05


class Results:
    """Closed by its owner."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"})
        self._consumer.assign([(topic, info.partition) for info in self._consumer.partitions_for(topic)])
        self._latest: dict[str, dict[str, Any]] = {}
        self._start = ""

    def update(self) -> tuple[dict[str, Any], ...]:
        """Take what has come; the totals of the latest window. Far too late orders open windows of the past, which are not it."""
        for _ in range(POLLS):
            records = self._consumer.poll(timeout=POLL_SECONDS)
            for record in records:
                self._take(json.loads(record.value, parse_float=Decimal))
            if not records:
                break
        return tuple(self._latest.values())

    def _take(self, total: dict[str, Any]) -> None:
        if total["start"] > self._start:
            self._start, self._latest = total["start"], {}
        if total["start"] == self._start:
            self._latest[total["category"]] = total

    def close(self) -> None:
        self._consumer.close()
