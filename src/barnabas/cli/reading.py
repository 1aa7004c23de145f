"""Records of topics, from a place to an end: what `consume` and `cat -C` print.

Role: assigns, seeks, polls, and knows when to stop. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cli.contact import admin_settings, open_admin
from barnabas.cli.positions import FROM_BEGINNING, Start
from barnabas.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.cluster import Partition
    from barnabas.consumer import Consumer, Record

POLL_SECONDS = 1.0
POLL_RECORDS = 10_000


@dataclass(frozen=True)
class Plan:
    """What to read; None: no such limit."""

    topics: tuple[str, ...]
    partition: int | None = None
    start: Start = FROM_BEGINNING
    stop_at_end: bool = False
    stop_at_time: int | None = None
    most_records: int | None = None
    idle_seconds: float | None = None


def read(consumer: Consumer, plan: Plan, partitions: list[Partition]) -> Iterator[list[Record]]:
    """Records as they come, a list for each poll, until the plan's end."""
    consumer.assign(partitions)
    plan.start.apply(consumer, partitions)
    ends = _Ends(consumer, plan, partitions)
    left = plan.most_records
    last_came = time.monotonic()
    while left != 0 and not ends.reached():
        records = consumer.poll(_wait(plan, last_came), POLL_RECORDS if left is None else min(left, POLL_RECORDS))
        if records:
            last_came = time.monotonic()
        elif plan.idle_seconds is not None and time.monotonic() - last_came >= plan.idle_seconds:
            return
        records = ends.without_later(records)
        if left is not None:
            left -= len(records)
        if records:
            yield records


def _wait(plan: Plan, last_came: float) -> float:
    if plan.idle_seconds is None:
        return POLL_SECONDS
    return max(min(plan.idle_seconds - (time.monotonic() - last_came), POLL_SECONDS), 0.0)


def find_partitions(client: Mapping[str, object], plan: Plan) -> list[Partition]:
    """The partitions that the plan means. A consumer would wait for a topic that is not there, or even create it; a name that was
    mistyped is an error at once."""
    with open_admin(admin_settings(client)) as admin:
        topics = admin.describe_topics(plan.topics)
    found = [(name, info.partition) for name in plan.topics for info in topics[name].partitions]
    if plan.partition is None:
        return found
    wanted = [(name, plan.partition) for name in plan.topics]
    for name, number in set(wanted) - set(found):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has no partition {number}")
    return wanted


class _Ends:
    """The offsets at which to stop, as they were in the beginning; a partition that is there is paused."""

    def __init__(self, consumer: Consumer, plan: Plan, partitions: list[Partition]) -> None:
        self._consumer = consumer
        self._bounded = plan.stop_at_end or plan.stop_at_time is not None
        self._ends: dict[Partition, int] = consumer.end_offsets(partitions) if self._bounded else {}
        if plan.stop_at_time is not None:
            found = consumer.offsets_for_times(dict.fromkeys(partitions, plan.stop_at_time))
            self._ends |= {partition: place.offset for partition, place in found.items() if place is not None}
        self._left = list(self._ends)

    def reached(self) -> bool:
        """Whether all partitions are at their end."""
        if not self._bounded:
            return False
        for partition in list(self._left):
            if self._consumer.position(partition) >= self._ends[partition]:
                self._left.remove(partition)
                self._consumer.pause([partition])
        return not self._left

    def without_later(self, records: list[Record]) -> list[Record]:
        if not self._bounded:
            return records
        return [record for record in records if record.offset < self._ends[record.topic, record.partition]]
