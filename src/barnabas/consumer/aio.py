"""The consumer for asyncio: the same core, used from a thread of its own.

Role: each call runs in that thread, one after the other; there is no second implementation of anything. What a cancelled poll finds is
kept for the next poll; any other call gives it back first, so that no record is lost between two polls. Giving back means a seek,
and a seek means to fetch again: polls that are cancelled again and again would never get on by that alone.
Thread: one event loop, and one worker thread behind it. Lock: none; the worker's queue holds at most one call of each waiting task.

Whose turn it is: a poll waits in short turns, and every other call wakes a running one, so that `seek` beside a long `poll` is not kept
waiting. Polls do not wake each other: two of them would never rest.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from bisect import insort
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from barnabas.client.cluster import Partition, PartitionInfo
from barnabas.client.errors import ClientClosed, ForkedClient
from barnabas.client.offsets import OffsetAndTimestamp
from barnabas.client.times import milliseconds
from barnabas.consumer.assignment import checked_partition, not_assigned
from barnabas.consumer.consumer import FOR_EVER_SECONDS, Consumer, checked_offset
from barnabas.consumer.read_ahead import ReadAhead, places_of
from barnabas.records.kernel.fetched import Record

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AsyncConsumer"]

_TURN_SECONDS = 0.5
_THREAD_NAME = "barnabas-async-consumer"

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Form(Generic[Found]):
    """What polls give: a list of records, or an Arrow batch."""

    is_something: Callable[[Found], bool]
    places: Callable[[Found], dict[Partition, int]]
    """The first offset of each partition in it."""


@dataclass(frozen=True, slots=True)
class _Left:
    """A poll that runs, or has run, for a caller that was cancelled."""

    number: int
    """Polls are numbered in the order in which they run."""
    future: Future[Any]
    form: _Form[Any]

    def places(self) -> dict[Partition, int]:
        return {} if self.future.exception() else self.form.places(self.future.result())


class _OnItsWay(Awaitable[None]):
    """A call that the thread will make, awaited or not."""

    def __init__(self, call: Future[None]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self._call).__await__()


class AsyncConsumer:
    """A `Consumer` to be awaited, or to be iterated over.

        settings = {"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}
        async with AsyncConsumer(settings) as consumer:
            consumer.assign([("orders", 0)])
            async for record in consumer:
                print(record.offset, record.value)

    Every call may be cancelled (`asyncio.timeout`, `Task.cancel`) without losing records; where several tasks read with one consumer, what
    is given back by one may come twice to another. A call that asks the brokers something goes on
    in its thread until it is answered or its `timeout` is over, and later calls wait for that; `close` does not.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._consumer = Consumer(config)
        timeout_s = self._consumer.iteration_timeout_s
        self._iteration_timeout_s = timeout_s if timeout_s < FOR_EVER_SECONDS else None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD_NAME)
        self._ahead = ReadAhead()
        self._assigned: list[Partition] = []
        self._left: list[_Left] = []  # in the order of their numbers
        self._numbers = itertools.count()
        self._closing: Future[None] | None = None
        self._process = os.getpid()

    # ---------------------------------------------------------------- what to read

    def assign(self, partitions: Iterable[Partition]) -> Awaitable[None]:
        """As `Consumer.assign`. This and the other calls that say what is read need no `await`: whatever is called later sees them."""
        wanted = list(dict.fromkeys(map(checked_partition, partitions)))
        done = self._do(partial(self._consumer.assign, wanted))
        self._assigned = wanted
        return done

    @property
    def assignment(self) -> list[Partition]:
        """The partitions that are assigned."""
        return list(self._assigned)

    def pause(self, partitions: Iterable[Partition]) -> Awaitable[None]:
        """As `Consumer.pause`."""
        return self._do(partial(self._consumer.pause, self._these(partitions)))

    def resume(self, partitions: Iterable[Partition]) -> Awaitable[None]:
        """As `Consumer.resume`."""
        return self._do(partial(self._consumer.resume, self._these(partitions)))

    @property
    def paused(self) -> list[Partition]:
        """The partitions that are paused."""
        return self._consumer.paused

    # ---------------------------------------------------------------- where to read

    def seek(self, partition: Partition, offset: int) -> Awaitable[None]:
        """As `Consumer.seek`."""
        number = checked_offset(offset)
        (place,) = self._these([partition])
        return self._do(partial(self._consumer.seek, place, number))

    def seek_to_beginning(self, partitions: Iterable[Partition] | None = None) -> Awaitable[None]:
        """As `Consumer.seek_to_beginning`."""
        return self._do(partial(self._consumer.seek_to_beginning, self._these(partitions)))

    def seek_to_end(self, partitions: Iterable[Partition] | None = None) -> Awaitable[None]:
        """As `Consumer.seek_to_end`."""
        return self._do(partial(self._consumer.seek_to_end, self._these(partitions)))

    def seek_to_time(self, timestamp_ms: int, partitions: Iterable[Partition] | None = None) -> Awaitable[None]:
        """As `Consumer.seek_to_time`."""
        number = milliseconds("a time", timestamp_ms)
        return self._do(partial(self._consumer.seek_to_time, number, self._these(partitions)))

    def _these(self, partitions: Iterable[Partition] | None) -> list[Partition]:
        """Checked here, so that a mistake is seen where it is made, whether somebody awaits the call or not. None: all."""
        if partitions is None:
            return self._assigned
        these = [checked_partition(partition) for partition in partitions]
        for partition in these:
            if partition not in self._assigned:
                raise not_assigned(partition)
        return these

    async def position(self, partition: Partition, timeout: float | None = None) -> int:
        """As `Consumer.position`: the offset of the next record, also within an `async for`."""
        first = self._ahead.first_offset(partition)
        return first if first is not None else await self._ask(partial(self._consumer.position, partition, timeout))

    async def lag(self, partition: Partition) -> int | None:
        """As `Consumer.lag`, also within an `async for`."""
        return await self._ask(partial(self._lag, partition, self._ahead.first_offset(partition)))

    def _lag(self, partition: Partition, first_ahead: int | None) -> int | None:
        """In the thread: what was taken ahead is still to come."""
        lag = self._consumer.lag(partition)
        if lag is None or first_ahead is None:
            return lag
        return lag + self._consumer.position(partition) - first_ahead

    async def beginning_offsets(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[Partition, int]:
        """As `Consumer.beginning_offsets`."""
        return await self._ask(partial(self._consumer.beginning_offsets, list(partitions), timeout))

    async def end_offsets(self, partitions: Iterable[Partition], timeout: float | None = None) -> dict[Partition, int]:
        """As `Consumer.end_offsets`."""
        return await self._ask(partial(self._consumer.end_offsets, list(partitions), timeout))

    async def offsets_for_times(
        self, times: Mapping[Partition, int], timeout: float | None = None
    ) -> dict[Partition, OffsetAndTimestamp | None]:
        """As `Consumer.offsets_for_times`."""
        return await self._ask(partial(self._consumer.offsets_for_times, dict(times), timeout))

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """As `Consumer.partitions_for`."""
        return await self._ask(partial(self._consumer.partitions_for, topic, timeout))

    # ---------------------------------------------------------------- reading

    async def poll(self, timeout: float | None = 0.0, max_records: int | None = None) -> list[Record]:
        """As `Consumer.poll`; `timeout=None` waits until records come."""
        if not self._ahead:
            self._ahead.put(await self._poll(max_records, timeout))
        return self._ahead.take(len(self._ahead) if max_records is None else max_records)

    async def poll_arrow(self, timeout: float | None = 0.0, max_records: int | None = None) -> pa.RecordBatch:
        """As `Consumer.poll_arrow`; `timeout=None` waits until records come."""
        if self._ahead:
            self._give_back_ahead()
        return await self._in_turns(partial(self._consumer.poll_arrow, max_records=max_records), _BATCHES, timeout)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        try:
            while not self._ahead:
                self._ahead.put(await self._poll(None, self._iteration_timeout_s))
                if not self._ahead:
                    raise StopAsyncIteration
        except ClientClosed:
            raise StopAsyncIteration from None
        record = self._ahead.next()
        assert record is not None
        return record

    async def _poll(self, max_records: int | None, timeout: float | None) -> list[Record]:
        return await self._in_turns(partial(self._consumer.poll, max_records=max_records), _RECORDS, timeout)

    async def _in_turns(self, collect: Callable[[float], Found], form: _Form[Found], timeout: float | None) -> Found:
        """What `collect` finds within `timeout` seconds, or a cancelled call has found; between turns other calls have theirs."""
        end = time.monotonic() + timeout if timeout is not None else float("inf")
        while True:
            if self._left and self._left[0].form is form:
                poll = self._left.pop(0)
            else:
                self._give_back_left()
                turn = min(max(end - time.monotonic(), 0.0), _TURN_SECONDS)
                poll = _Left(next(self._numbers), self._submit(partial(collect, turn)), form)
            found: Found = await self._outcome(poll)
            if form.is_something(found) or time.monotonic() >= end:
                return found

    async def _outcome(self, poll: _Left) -> Any:
        """Of a poll in the thread; when its caller is cancelled the next one gets it."""
        try:
            return await asyncio.wrap_future(poll.future)
        except asyncio.CancelledError:
            if not poll.future.cancel() and self._closing is None:
                insort(self._left, poll, key=lambda left: left.number)
                self._consumer.wakeup()
            raise

    # ---------------------------------------------------------------- the thread

    def _do(self, call: Callable[[], None]) -> Awaitable[None]:
        """A call that changes what comes next; so what was taken ahead is given back before."""
        self._check_usable()
        self._give_back_ahead()
        return _OnItsWay(self._begin(call))

    async def _ask(self, call: Callable[[], Found]) -> Found:
        return await asyncio.wrap_future(self._begin(call))

    def _begin(self, call: Callable[[], Found]) -> Future[Found]:
        """A call that is no poll: a poll that waits lets it pass."""
        self._check_usable()
        self._give_back_left()
        self._consumer.wakeup()
        return self._submit(call)

    def _submit(self, call: Callable[[], Found]) -> Future[Found]:
        self._check_usable()
        return self._thread.submit(self._run, call)

    def _run(self, call: Callable[[], Found]) -> Found:
        """In the thread: calls that still stood in line when `close` came are not begun."""
        self._check_usable()
        return call()

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise ForkedClient("this consumer was made before this process was forked, and its thread is not here")
        if self._closing is not None:
            raise ClientClosed("this consumer is closed")

    def _give_back_ahead(self) -> None:
        """And what cancelled polls have found, which is behind it: of two seeks the last one counts."""
        self._give_back_left()
        if self._ahead and self._closing is None:
            self._submit(partial(self._go_back, self._ahead.take_places()))
        self._ahead.take_places()

    def _give_back_left(self) -> None:
        while self._left:
            left = self._left.pop()
            if self._closing is None:
                self._submit(partial(self._read_again, left))

    def _read_again(self, left: _Left) -> None:
        """In the thread, where it has run before."""
        self._go_back(left.places())

    def _go_back(self, places: dict[Partition, int]) -> None:
        """In the thread: read these again."""
        for partition, offset in places.items():
            self._consumer.seek(partition, offset)

    # ---------------------------------------------------------------- the rest

    async def metrics(self) -> dict[str, float]:
        """As `Consumer.metrics`."""
        return await self._ask(self._consumer.metrics)

    async def close(self) -> None:
        """Close the connections; calls that wait, in whatever task, get `ClientClosed`, and an `async for` ends. Twice does nothing."""
        if os.getpid() != self._process:
            return
        if self._closing is None:
            self._consumer.abandon_waits()
            self._closing = self._thread.submit(self._consumer.close)
            self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(self._closing))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncConsumer {self._consumer!r}>"


def _places_of_batch(batch: pa.RecordBatch) -> dict[Partition, int]:
    """The first offset of each partition."""
    places: dict[Partition, int] = {}
    columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    for topic, partition, offset in zip(*columns, strict=True):
        places.setdefault((topic, partition), offset)
    return places


_RECORDS: _Form[list[Record]] = _Form(bool, places_of)
_BATCHES: _Form[pa.RecordBatch] = _Form(lambda batch: bool(batch.num_rows), _places_of_batch)
