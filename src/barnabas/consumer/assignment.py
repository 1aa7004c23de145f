"""The partitions that a consumer reads, and where it is in each.

Role: positions, pauses, pending resets and what the brokers said of each partition's ends. `epoch` counts the changes that make data
on its way useless (assign, seek): whatever was asked for under an older one is dropped when it arrives.
Thread: the consumer's; no lock.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

from barnabas.client.cluster import Partition
from barnabas.errors import BarnabasError

__all__ = ["Assignment", "PartitionState", "checked_partition", "not_assigned"]

UNKNOWN = -1
_NO_END = 1 << 63


class PartitionState:
    """One assigned partition. `position` is the next offset that `poll` returns, `fetch_offset` the next to ask the broker for; it is not
    asked for offsets from `until` on."""

    __slots__ = (
        "backoff_until_ms",
        "epoch",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "paused",
        "position",
        "reset",
        "until",
    )

    def __init__(self, partition: Partition, reset: str | None) -> None:
        self.partition = partition
        self.position = UNKNOWN
        self.fetch_offset = UNKNOWN
        self.until = _NO_END
        self.reset = reset  # the strategy that has to find a position first
        self.paused = False
        self.epoch = 0
        self.backoff_until_ms = 0
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        self.log_start_offset = UNKNOWN

    @property
    def has_position(self) -> bool:
        return self.reset is None and self.position >= 0

    @property
    def is_read(self) -> bool:
        """Whether all that is wanted of it was fetched."""
        return self.fetch_offset >= self.until

    def seek(self, offset: int, until: int | None = None) -> None:
        """Go on from there, until an offset if there is one; data on its way is dropped."""
        self.position = self.fetch_offset = offset
        self.until = _NO_END if until is None else until
        self.reset = None
        self.epoch += 1

    def reset_by(self, strategy: str) -> None:
        """Find a new position by a strategy (earliest, latest, by_duration:...)."""
        self.reset = strategy
        self.position = self.fetch_offset = UNKNOWN
        self.epoch += 1

    def __repr__(self) -> str:
        topic, number = self.partition
        return f"<{topic}-{number} position={self.position} reset={self.reset} paused={self.paused}>"


def checked_partition(pair: Any) -> Partition:
    """TypeError for what is no partition."""
    match pair:
        case [str(topic), number] if topic and hasattr(number, "__index__"):
            return topic, operator.index(number)
    raise TypeError(f"a partition is (topic, number), for example ('orders', 0), not {pair!r}")


def not_assigned(partition: Partition) -> BarnabasError:
    return BarnabasError(f"{partition[0]}-{partition[1]} is not assigned to this consumer")


class Assignment:
    """See the file header."""

    def __init__(self) -> None:
        self._states: dict[Partition, PartitionState] = {}

    def assign(self, partitions: Iterable[Partition], reset: str) -> None:
        """Exactly these from now on; those that were assigned before keep their place."""
        before = self._states
        self._states = {
            partition: before.get(partition) or PartitionState(partition, reset)
            for partition in map(checked_partition, partitions)
        }
        for partition, state in before.items():
            if partition not in self._states:
                state.epoch += 1  # what is on its way for it belongs to nobody

    def get(self, partition: Partition) -> PartitionState | None:
        return self._states.get(partition)

    def __getitem__(self, partition: Partition) -> PartitionState:
        state = self._states.get(partition)
        if state is None:
            raise not_assigned(partition)
        return state

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    @property
    def partitions(self) -> list[Partition]:
        return list(self._states)

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self._states}

    def waiting_for_reset(self) -> list[PartitionState]:
        return [state for state in self._states.values() if state.reset is not None]

    def __repr__(self) -> str:
        return f"<Assignment {list(self._states.values())}>"
