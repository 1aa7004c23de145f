"""What brokers say is wrong with topics, told in the log: now and then, and not before it has lasted.

Role: a topic that its first record makes is unknown for a moment, and its leader for another one; nobody wants to read of that at
each retry. What lasts is said again, so that whoever wonders why nothing comes finds it in the newest lines.
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
REPEAT_MS = 30_000
MAX_LOGGED_TOPICS = 10


class TopicProblems:
    """The topics that have an error now, since when, and when it was last told."""

    def __init__(self) -> None:
        self._since_ms: dict[str, tuple[int, int]] = {}  # topic -> error code, time
        self._told_ms: dict[str, int] = {}

    def note(self, topics: Iterable[MetadataResponseTopic], now_ms: int) -> None:
        """What a metadata answer says of some topics."""
        for topic in topics:
            name = topic.name or str(topic.topic_id)
            known = self._since_ms.get(name)
            if known is None or known[0] != topic.error_code:
                self._since_ms.pop(name, None)
                self._told_ms.pop(name, None)
                if topic.error_code:
                    self._since_ms[name] = (topic.error_code, now_ms)
        self._tell(now_ms)

    def _tell(self, now_ms: int) -> None:
        due = {
            name: error_of(code).name
            for name, (code, since) in self._since_ms.items()
            if self._is_due(name, now_ms) and (now_ms - since >= PATIENCE_MS or not error_of(code).retriable)
        }
        if due:
            self._told_ms.update(dict.fromkeys(due, now_ms))
            shown = ", ".join(f"{name} ({code})" for name, code in list(due.items())[:MAX_LOGGED_TOPICS])
            more = f" and {len(due) - MAX_LOGGED_TOPICS} more" if len(due) > MAX_LOGGED_TOPICS else ""
            log.warning("The brokers have no metadata of these topics: %s%s; asking again", shown, more)

    def _is_due(self, name: str, now_ms: int) -> bool:
        told_ms = self._told_ms.get(name)
        return told_ms is None or now_ms - told_ms >= REPEAT_MS
