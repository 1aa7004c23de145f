"""What brokers say is wrong with topics, told in the log: once, and not before it has lasted.

Role: a topic that its first record makes is unknown for a moment, and its leader for another one; nobody wants to read of that at
each retry.
Thread: the I/O thread. Lock: none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas.errors import error_of
from barnabas.protocol.messages.metadata import MetadataResponseTopic

__all__ = ["TopicProblems"]

log = logging.getLogger(__name__)

PATIENCE_MS = 1000
"""How long a problem that may pass by itself is not spoken of."""
MAX_LOGGED_TOPICS = 10


class TopicProblems:
    """The topics that have an error now, since when, and whether it was told."""

    def __init__(self) -> None:
        self._since_ms: dict[str, tuple[int, int]] = {}  # topic -> error code, time
        self._told: set[str] = set()

    def note(self, topics: Iterable[MetadataResponseTopic], now_ms: int) -> None:
        """What a metadata answer says of some topics."""
        for topic in topics:
            name = topic.name or str(topic.topic_id)
            known = self._since_ms.get(name)
            if known is None or known[0] != topic.error_code:
                self._since_ms.pop(name, None)
                self._told.discard(name)
                if topic.error_code:
                    self._since_ms[name] = (topic.error_code, now_ms)
        self._tell(now_ms)

    def _tell(self, now_ms: int) -> None:
        due = {
            name: error_of(code).name
            for name, (code, since) in self._since_ms.items()
            if name not in self._told and (now_ms - since >= PATIENCE_MS or not error_of(code).retriable)
        }
        if due:
            self._told.update(due)
            shown = dict(list(due.items())[:MAX_LOGGED_TOPICS])
            log.warning("Metadata of %d topics is not available: %s", len(due), shown)
