"""How well the records of a topic compress, as a running estimate (PP-11).

Role: tells how many plain bytes fit into a batch of `batch.size` bytes. The estimate rises fast and falls slowly, as Kafka's does:
a batch that comes out too large costs more than one that has room left.
Thread: any. Lock: its own, for a few byte codes.
"""

from __future__ import annotations

import threading

__all__ = ["CompressionRatios"]

FALL = 0.005
RISE = 0.05
SAFETY = 1.05


class CompressionRatios:
    """The estimates of one producer by topic; its codec is always the same."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ratios: dict[str, float] = {}

    def estimate(self, topic: str) -> float:
        return self._ratios.get(topic, 1.0)

    def update(self, topic: str, observed: float) -> float:
        """A batch came out at `observed` times its plain size; the new estimate."""
        with self._lock:
            now = self._ratios.get(topic, 1.0)
            now = max(now + RISE, observed) if observed > now else max(now - FALL, observed)
            self._ratios[topic] = now
            return now

    def reset(self, topic: str, ratio: float) -> None:
        """Start again from `ratio`: the broker found a batch too large."""
        with self._lock:
            self._ratios[topic] = ratio

    def plain_limit(self, topic: str, batch_size: int) -> int:
        """How many plain bytes will probably fit into `batch_size` compressed ones."""
        return int(batch_size / (self.estimate(topic) * SAFETY))
