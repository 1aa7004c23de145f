"""Where reading begins: kcat's and Kafka's words for an offset.

Role: `parse_start("beginning" | "end" | N | -N | "s@TIME")`, and `Start.apply` to a consumer. Thread: any. Lock: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from barnabas.client.cluster import Partition
    from barnabas.consumer import Consumer

BEGINNING, END, OFFSET, LAST, TIME = "beginning", "end", "offset", "last", "time"
_WORDS = {
    "beginning": BEGINNING,
    "earliest": BEGINNING,
    "smallest": BEGINNING,
    "end": END,
    "latest": END,
    "largest": END,
}


@dataclass(frozen=True)
class Start:
    """One way to begin, the same for all partitions; `value` is an offset, a count or a time in milliseconds."""

    kind: str
    value: int = 0

    def apply(self, consumer: Consumer, partitions: list[Partition]) -> None:
        """Let the consumer, which has these partitions, begin there."""
        if self.kind == BEGINNING:
            consumer.seek_to_beginning()
        elif self.kind == END:
            consumer.seek_to_end()
        elif self.kind == TIME:
            consumer.seek_to_time(self.value)
        elif self.kind == OFFSET:
            for partition in partitions:
                consumer.seek(partition, self.value)
        else:
            first, behind = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
            for partition in partitions:
                consumer.seek(partition, max(behind[partition] - self.value, first[partition]))


FROM_BEGINNING = Start(BEGINNING)


def parse_start(text: str) -> Start:
    """Click's error when the text means nothing."""
    if text in _WORDS:
        return Start(_WORDS[text])
    if text == "stored":
        raise click.UsageError("offset 'stored' needs a consumer group, and there are none yet")
    if text.startswith("s@"):
        return Start(TIME, milliseconds(text[2:]))
    try:
        number = int(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is no offset: beginning, end, a number, -number or s@milliseconds") from None
    return Start(OFFSET, number) if number >= 0 else Start(LAST, -number)


def milliseconds(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise click.UsageError(f"{text!r} is no time: milliseconds since 1970")
    return int(text)
