"""Exponential back-off with jitter, so that many clients of a broker that comes back do not come all at once.

Role: `initial * 2^attempts`, at most `maximum`, each time up to 20 % more or less (KIP-144, KIP-580).
Thread: any. Lock: none; only the random source has state, and it is safe.
"""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["ExponentialBackoff"]

JITTER = 0.2
_MAX_EXPONENT = 62


class ExponentialBackoff:
    """`random_source` gives numbers from 0 to 1; tests hand in their own."""

    __slots__ = ("_initial_ms", "_maximum_ms", "_random")

    def __init__(self, initial_ms: int, maximum_ms: int, random_source: Callable[[], float] = random.random) -> None:
        self._initial_ms = min(initial_ms, maximum_ms)
        self._maximum_ms = maximum_ms
        self._random = random_source

    def after(self, attempts: int) -> int:
        """Milliseconds to wait after `attempts` earlier failures. Without room to grow there is no jitter either, as in Kafka."""
        if self._initial_ms == self._maximum_ms:
            return self._initial_ms
        exact = min(self._initial_ms << min(attempts, _MAX_EXPONENT), self._maximum_ms)
        return min(round(exact * (1 - JITTER + 2 * JITTER * self._random())), self._maximum_ms)

    def __repr__(self) -> str:
        return f"ExponentialBackoff({self._initial_ms}, {self._maximum_ms})"
