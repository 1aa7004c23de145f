"""`Consumer`: reads assigned partitions, as records or as Arrow batches.

Role: the public face; positions (assignment.py, resets.py), fetching ahead (fetcher.py) and decoding (fetched_partition.py) are its parts.
There are no groups yet: `assign` says what to read. Where a group's membership will be, every turn begins in `_turn`.
Thread: one at a time; a second one gets an error. Only `wakeup` and `abandon_waits` may be called from others. There is no thread behind
the consumer's back: the network is served while a call runs, and the brokers' answers wait in the sockets meanwhile. Lock: none.
"""

from __future__ import annotations

import operator
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.blocking import BlockingClient, Deadline, SingleThread
from barnabas.client.cluster import Partition, PartitionInfo
from barnabas.client.errors import ClientClosed
from barnabas.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp, OffsetFinder
from barnabas.client.times import milliseconds
from barnabas.consumer.arrow import empty_batch, to_arrow
from barnabas.consumer.assignment import Assignment
from barnabas.consumer.config import consumer_config
from barnabas.consumer.delivery import Delivery, PartitionRun
from barnabas.consumer.fetcher import Fetcher
from barnabas.consumer.leaders import Leaders
from barnabas.consumer.read_ahead import ReadAhead
from barnabas.consumer.resets import PositionResets
from barnabas.errors import BarnabasError, ConfigError
from barnabas.records.kernel.fetched import Record

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "checked_offset"]

Deserializer = Callable[[str, bytes | None], Any]
FOR_EVER_SECONDS = 1e9


class Consumer:
    """Reads records of assigned partitions.

        with Consumer({"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([("orders", 0)])
            for record in consumer:
                print(record.offset, record.value)

    `for record in consumer` waits for the next record without an end, unless `consumer.timeout.ms` sets one; `poll` gives lists and returns
    in time. Both go on where the other one stopped.

    Settings have Kafka's names; `key.deserializer` and `value.deserializer` are functions of (topic, bytes or None).
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        given = dict(config)
        self._deserialize_key = _callable(given, "key.deserializer")
        self._deserialize_value = _callable(given, "value.deserializer")
        self._config = consumer_config(given)
        self._max_records: int = self._config["max.poll.records"]
        self._default_timeout_s: float = self._config["default.api.timeout.ms"] / 1000
        self._owner = SingleThread("consumer")
        self._client = BlockingClient(self._config, auto_create=self._config["allow.auto.create.topics"])
        self._assignment = Assignment()
        self._finder = OffsetFinder(self._client, self._config["isolation.level"] == "read_committed")
        leaders = Leaders(self._client)
        self._resets = PositionResets(self._client, self._assignment, leaders, self._finder)
        self._fetcher = Fetcher(self._client, self._assignment, leaders)
        self._delivery = Delivery(self._fetcher)
        self._ahead = ReadAhead()
        timeout_ms: int = self._config["consumer.timeout.ms"]
        self.iteration_timeout_s = FOR_EVER_SECONDS if timeout_ms < 0 else timeout_ms / 1000
        self._woken = threading.Event()
        self._closed = False
        self._consumed = 0

    # ---------------------------------------------------------------- what to read

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions from now on; those that stay keep their place.

        consumer.assign([("orders", 0), ("orders", 1)])
        """
        with self._owner:
            self._ensure_open()
            self._give_back_ahead()
            self._assignment.assign(partitions, self._config["auto.offset.reset"])
            self._client.metadata.set_topics(self._assignment.topics)

    @property
    def assignment(self) -> list[Partition]:
        """The partitions that are assigned."""
        return self._assignment.partitions

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Return nothing of these until `resume`; what was fetched of them is kept."""
        with self._owner:
            self._give_back_ahead()
            for partition in partitions:
                self._assignment[partition].paused = True

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Read these again after `pause`."""
        with self._owner:
            for partition in partitions:
                self._assignment[partition].paused = False

    @property
    def paused(self) -> list[Partition]:
        """The partitions that are paused."""
        return [state.partition for state in self._assignment if state.paused]

    # ---------------------------------------------------------------- where to read

    def seek(self, partition: Partition, offset: int, until: int | None = None) -> None:
        """Go on at this offset of an assigned partition. With `until`, the broker is not asked for anything from that offset
        on, up to the next seek; what an answer holds behind it is returned all the same.

        consumer.seek(("orders", 0), 42)
        """
        number = checked_offset(offset)
        with self._owner:
            self._give_back_ahead()
            self._assignment[partition].seek(number, until)

    def seek_to_beginning(self, partitions: Iterable[Partition] | None = None) -> None:
        """Go on at the oldest record; None: of all assigned partitions."""
        self._seek_by("earliest", partitions)

    def seek_to_end(self, partitions: Iterable[Partition] | None = None) -> None:
        """Go on behind the newest record; None: of all assigned partitions."""
        self._seek_by("latest", partitions)

    def seek_to_time(self, timestamp_ms: int, partitions: Iterable[Partition] | None = None) -> None:
        """Go on at the first record at or after a time (milliseconds since 1970), or behind the newest when none is that young."""
        self._seek_by(f"time:{milliseconds('a time', timestamp_ms)}", partitions)

    def _seek_by(self, strategy: str, partitions: Iterable[Partition] | None) -> None:
        with self._owner:
            self._give_back_ahead()
            for partition in self._assignment.partitions if partitions is None else partitions:
                self._assignment[partition].reset_by(strategy)

    def position(self, partition: Partition, timeout: float | None = None) -> int:
        """The offset of the next record that `poll` returns, or the `for` loop."""
        with self._owner:
            state = self._assignment[partition]
            if (first := self._ahead.first_offset(partition)) is not None:
                return first
            deadline = self._deadline(timeout)

            def known() -> bool:
                self._turn()
                self._resets.raise_error()
                return state.has_position

            self._client.wait_until(known, deadline, f"the position of {partition[0]}-{partition[1]}")
            return state.position

    def lag(self, partition: Partition) -> int | None:
        """How many offsets are left to the end of the partition, as the last fetch knew it; None before the first."""
        state = self._assignment[partition]
        committed = self._config["isolation.level"] == "read_committed"
        end = state.last_stable_offset if committed else state.high_watermark
        if end < 0 or not state.has_position:
            return None
        first = self._ahead.first_offset(partition)
        return max(end - (state.position if first is None else first), 0)

    def beginning_offsets(self, partitions: Iterable[Partition], timeout: float | None = None) -> dict[Partition, int]:
        """The offset of the oldest record of each partition, assigned or not."""
        return self._ends(partitions, EARLIEST, timeout)

    def end_offsets(self, partitions: Iterable[Partition], timeout: float | None = None) -> dict[Partition, int]:
        """The offset behind the newest record of each partition, assigned or not; with read_committed, the last stable one."""
        return self._ends(partitions, LATEST, timeout)

    def _ends(self, partitions: Iterable[Partition], which: int, timeout: float | None) -> dict[Partition, int]:
        with self._owner:
            self._ensure_open()
            found = self._finder.find(dict.fromkeys(partitions, which), self._deadline(timeout))
            return {partition: place.offset for partition, place in found.items()}

    def offsets_for_times(
        self, times: Mapping[Partition, int], timeout: float | None = None
    ) -> dict[Partition, OffsetAndTimestamp | None]:
        """The first record at or after a time (milliseconds since 1970) of each partition; None when there is none."""
        for time in times.values():
            milliseconds("a time", time)
        with self._owner:
            self._ensure_open()
            found = self._finder.find(times, self._deadline(timeout))
            return {partition: place if place.offset >= 0 else None for partition, place in found.items()}

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic and their leaders."""
        with self._owner:
            self._ensure_open()
            return self._client.topics([topic], self._deadline(timeout)).partitions_for(topic)

    def topic_id(self, topic: str, timeout: float | None = None) -> uuid.UUID | None:
        """The id of a topic: one that is deleted and made anew has another. None where the broker is too old to have any."""
        with self._owner:
            self._ensure_open()
            return self._client.topics([topic], self._deadline(timeout)).topic_id(topic)

    # ---------------------------------------------------------------- reading

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """The next records, at most `max.poll.records`; waits up to `timeout` seconds for the first. Empty when none came."""
        limit = self._max_records if max_records is None else max_records
        if self._ahead:
            with self._owner:
                return self._ahead.take(limit)
        return self._poll(timeout, limit)

    def _poll(self, timeout: float, limit: int) -> list[Record]:
        with self._owner:
            self._fetcher.for_columns = False
            found: list[Record] = self._await(lambda: self._delivery.records(limit), timeout) or []
            self._consumed += len(found)
        if self._deserialize_key is None and self._deserialize_value is None:
            return found
        return [self._deserialized(record) for record in found]

    def poll_arrow(self, timeout: float = 0.0, max_records: int | None = None) -> pa.RecordBatch:
        """The next records as one Arrow batch, straight from the wire: whole Kafka batches, as many as are there.

        About `max_records` of them when given; a Kafka batch is not cut. Keys and values are bytes; deserializers are not called.
        """
        with self._owner:
            self._give_back_ahead()
            self._fetcher.for_columns = True
            parts: list[PartitionRun] | None = self._await(lambda: self._delivery.runs(max_records), timeout)
            if not parts:
                return empty_batch()
            batch = to_arrow(parts)
            self._consumed += batch.num_rows
            return batch

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        """The next record. The end: after `consumer.timeout.ms` without one, after `wakeup`, and when the consumer is closed."""
        if not self._ahead:
            try:
                self._ahead.put(self._poll(self.iteration_timeout_s, self._max_records))
            except ClientClosed:
                raise StopIteration from None
        record = self._ahead.next()
        if record is None:
            raise StopIteration
        return record

    def _give_back_ahead(self) -> None:
        """What the `for` loop has not handed out yet is read again."""
        for partition, offset in self._ahead.take_places().items():
            state = self._assignment.get(partition)
            if state is not None:
                state.seek(offset)

    def _await(self, collect: Callable[[], Any], timeout: float) -> Any:
        """What `collect` finds, as soon as it finds something; the next fetches are on their way when it returns."""
        self._ensure_open()
        if not self._assignment:
            raise BarnabasError(
                "nothing is assigned to this consumer: call assign([(topic, partition)]) before it reads"
            )
        deadline = self._deadline(timeout)
        last = False
        while True:
            found = collect()
            self._turn()
            if found:
                return found  # an error comes with the next call: these records would be lost with it
            self._resets.raise_error()
            if last:
                return found
            self._client.poll(0 if self._fetcher.has_data else deadline.left_ms)
            last = (
                deadline.over or self._woken.is_set()
            )  # then one look more, so that polls that do not wait get on too
            self._woken.clear()

    def _turn(self) -> None:
        """What has to go on while the consumer is used: finding positions, fetching ahead."""
        if self._assignment.waiting_for_reset():
            self._resets.run()
        self._fetcher.send_fetches()

    def _deserialized(self, record: Record) -> Record:
        key, value = record.key, record.value
        if self._deserialize_key is not None:
            key = self._deserialize_key(record.topic, key)
        if self._deserialize_value is not None:
            value = self._deserialize_value(record.topic, value)
        return record.with_key_and_value(key, value)

    # ---------------------------------------------------------------- the rest

    def wakeup(self) -> None:
        """From any thread: let a waiting `poll` return at once with what is there."""
        self._woken.set()
        self._client.network.wakeup()

    def abandon_waits(self) -> None:
        """From any thread, before `close`: whatever waits in this consumer ends at once, with `ClientClosed` unless it is a `poll`."""
        self._woken.set()
        self._client.abandon_waits()

    def metrics(self) -> dict[str, float]:
        """Counters since the start, by Kafka's names where it has them."""
        fetches = self._fetcher.fetches
        return {
            "records-consumed-total": self._consumed,
            "bytes-consumed-total": self._fetcher.bytes_fetched,
            "fetch-total": fetches,
            "fetch-latency-avg": self._fetcher.fetch_time_ms / fetches if fetches else 0.0,
            "records-lag-max": max((self.lag(state.partition) or 0 for state in self._assignment), default=0),
        }

    def close(self) -> None:
        """Close the connections; a second time does nothing, nor does a forked child, whose connections are the parent's."""
        if self._owner.is_forked:
            return
        with self._owner:
            self._ahead.take_places()
            if not self._closed:
                self._closed = True
                try:
                    self._fetcher.close_sessions()
                finally:
                    self._client.close()

    def _deadline(self, timeout: float | None) -> Deadline:
        return self._client.deadline(self._default_timeout_s if timeout is None else timeout)

    def _ensure_open(self) -> None:
        if self._closed:
            raise ClientClosed("this consumer is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Consumer {self._config['client.id']!r} {self._assignment!r}>"


def checked_offset(offset: object) -> int:
    """TypeError or ValueError for what is no offset."""
    try:
        number = operator.index(offset)  # type: ignore[arg-type]  # what is no whole number is a TypeError
    except TypeError:
        raise TypeError(f"an offset is a whole number, not {offset!r}") from None
    if number < 0:
        raise ValueError(f"an offset is not negative: {number}")
    return number


def _callable(given: dict[str, object], name: str) -> Deserializer | None:
    """A setting that is a function and no text."""
    value = given.pop(name, None)
    if value is not None and not callable(value):
        raise ConfigError(name, value, "must be a function of (topic, bytes or None)")
    return value
