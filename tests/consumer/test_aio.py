"""The consumer for asyncio: the core is tested in test_consumer.py, here what the event loop adds."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas import AsyncConsumer, Record
from barnabas.client.errors import ClientClosed, ForkedClient
from barnabas.errors import BarnabasError
from bench.brokers import BrokerProcess
from tests.consumer.conftest import Write

Work = Callable[[AsyncConsumer], Awaitable[None]]
Run = Callable[..., None]
DEADLINE_SECONDS = 20
COUNT = 600
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "retry.backoff.ms": 20, "reconnect.backoff.ms": 20}


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    """`run(work, **settings)`: `work(consumer)` in an event loop, within a deadline."""

    def run_work(work: Work, settings: dict[str, object] | None = None) -> None:
        async def within_deadline() -> None:
            given = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest", **(settings or {})}
            async with asyncio.timeout(DEADLINE_SECONDS), AsyncConsumer(given) as consumer:
                await work(consumer)

        asyncio.run(within_deadline())

    return run_work


def test_records_and_batches_can_be_awaited(run: Run, topic: str, write: Write) -> None:
    write([b"one", b"two"], timestamps=[1000, 2000])

    async def work(consumer: AsyncConsumer) -> None:
        await consumer.assign([(topic, 0)])
        assert consumer.assignment == [(topic, 0)]
        assert [record.value for record in await consumer.poll(timeout=None)] == [b"one", b"two"]
        assert await consumer.lag((topic, 0)) == 0
        assert await consumer.poll() == []
        await consumer.seek((topic, 0), 1)
        assert (await consumer.poll_arrow(timeout=None)).column("value").to_pylist() == [b"two"]
        await consumer.seek_to_time(1500)
        assert await consumer.position((topic, 0)) == 1
        await consumer.seek_to_beginning()
        assert await consumer.position((topic, 0)) == 0
        await consumer.seek_to_end()
        assert await consumer.position((topic, 0)) == 2
        assert (await consumer.metrics())["records-consumed-total"] == 3

    run(work)


def test_what_can_be_asked(run: Run, topic: str, write: Write) -> None:
    write([b"one", b"two"], timestamps=[1000, 2000])

    async def work(consumer: AsyncConsumer) -> None:
        place = (topic, 0)
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 2}
        found = (await consumer.offsets_for_times({place: 1001}))[place]
        assert found is not None
        assert found.offset == 1
        assert len(await consumer.partitions_for(topic)) == 2
        await consumer.assign([place])
        await consumer.pause([place])
        assert consumer.paused == [place]
        assert await consumer.poll(timeout=0.2) == []
        await consumer.resume([place])
        assert len(await consumer.poll(timeout=None)) == 2

    run(work)


def test_async_for_goes_on_where_it_was_left_whatever_comes_between(run: Run, topic: str, write: Write) -> None:
    write([b"%d" % number for number in range(1000)])

    async def work(consumer: AsyncConsumer) -> None:
        await consumer.assign([(topic, 0)])
        offsets = []
        async for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 10:
                break
        assert await consumer.position((topic, 0)) == 10
        assert await consumer.lag((topic, 0)) == 990
        offsets += [record.offset for record in await consumer.poll(timeout=None, max_records=5)]
        async for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 1000:
                break
        assert offsets == list(range(1000))

    run(work)


def test_what_says_what_is_read_needs_no_await(run: Run, topic: str, write: Write) -> None:
    """As with aiokafka; whoever awaits it waits until it is done."""
    write([b"%d" % number for number in range(10)], timestamps=[1000 + number for number in range(10)])
    place = (topic, 0)
    no_partition: Any = "orders"

    async def offset(consumer: AsyncConsumer) -> int:
        return (await anext(aiter(consumer))).offset

    async def work(consumer: AsyncConsumer) -> None:
        consumer.assign([place])
        assert consumer.assignment == [place]
        assert await offset(consumer) == 0
        consumer.seek(place, 7)
        assert await offset(consumer) == 7
        consumer.seek_to_time(1003)
        assert await offset(consumer) == 3
        consumer.seek_to_beginning([place])
        assert await offset(consumer) == 0
        consumer.seek_to_end()
        assert await consumer.position(place) == 10
        consumer.pause([place])
        consumer.seek(place, 0)
        assert await consumer.poll(timeout=0.2) == []
        consumer.resume([place])
        assert await offset(consumer) == 0
        for mistake, words in (
            (lambda: consumer.assign([no_partition]), "a partition is"),
            (lambda: consumer.seek((topic, 1), 0), "is not assigned"),
            (lambda: consumer.pause([(topic, 1)]), "is not assigned"),
            (lambda: consumer.seek(place, 1.5), "a whole number"),
            (lambda: consumer.seek_to_time(1.5), "whole milliseconds"),
        ):
            with pytest.raises((BarnabasError, TypeError), match=words):
                mistake()

    run(work)


def test_async_for_ends_when_nothing_came_for_the_time_that_was_set(run: Run, topic: str, write: Write) -> None:
    write([b"one"])

    async def work(consumer: AsyncConsumer) -> None:
        consumer.assign([(topic, 0)])
        assert [record.value async for record in consumer] == [b"one"]

    run(work, {"consumer.timeout.ms": 3000})


def test_a_loop_of_cancelled_polls_loses_nothing_and_fetches_nothing_twice(run: Run, topic: str, write: Write) -> None:
    """Cancelled at every point of its way: standing in line, waiting, with records found that nobody has taken."""
    write([b"%d" % number for number in range(COUNT)], **{"batch.num.messages": 20})

    async def work(consumer: AsyncConsumer) -> None:
        await consumer.assign([(topic, 0)])
        offsets: list[int] = []
        cancelled = 0
        patience = 0.0
        while len(offsets) < COUNT:
            arrow = len(offsets) >= COUNT // 2
            poll = consumer.poll_arrow(timeout=None, max_records=1) if arrow else consumer.poll(timeout=None)
            try:
                async with asyncio.timeout(patience):
                    found = await poll
            except TimeoutError:
                cancelled += 1
                patience = (patience + 0.0004) % 0.02
                continue
            patience = 0.0
            offsets += found.column("offset").to_pylist() if hasattr(found, "column") else [r.offset for r in found]
        assert offsets == list(range(COUNT))
        assert cancelled > 0
        assert (await consumer.metrics())["records-consumed-total"] == COUNT

    run(work, {"max.poll.records": 50, "max.partition.fetch.bytes": 2000})


async def cancelled_poll(consumer: AsyncConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that is cancelled when its records have been taken out of the consumer, and before anybody has got them."""
    poll = consumer._consumer.poll
    taken = threading.Event()

    def poll_until_something_comes(timeout: float, max_records: int | None = None) -> list[Record]:
        while not (found := poll(timeout, max_records)):
            pass
        taken.set()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(consumer._consumer, "poll", poll_until_something_comes)
        task = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.sleep(0)
        assert taken.wait(DEADLINE_SECONDS)  # the loop stands still, so that the task cannot get them
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_what_a_cancelled_poll_has_found_is_not_lost_whatever_comes_next(
    run: Run, topic: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write([b"%d" % number for number in range(10)])

    async def next_poll(consumer: AsyncConsumer) -> None:
        assert len(await consumer.poll(timeout=None, max_records=3)) == 3
        assert [record.offset for record in await consumer.poll(timeout=None)] == list(range(3, 10))

    async def another_form(consumer: AsyncConsumer) -> None:
        assert (await consumer.poll_arrow(timeout=None)).column("offset").to_pylist() == list(range(10))

    async def a_question(consumer: AsyncConsumer) -> None:
        assert await consumer.position((topic, 0)) == 0
        assert len(await consumer.poll(timeout=None)) == 10

    async def a_seek(consumer: AsyncConsumer) -> None:
        await consumer.seek((topic, 0), 8)
        assert [record.offset for record in await consumer.poll(timeout=None)] == [8, 9]

    for then in (next_poll, another_form, a_question, a_seek):

        async def work(consumer: AsyncConsumer, then: Work = then) -> None:
            await consumer.assign([(topic, 0)])
            await cancelled_poll(consumer, monkeypatch)
            await then(consumer)

        run(work)


def test_other_calls_pass_a_poll_that_waits(run: Run, topic: str, write: Write) -> None:
    write([b"one"])

    async def work(consumer: AsyncConsumer) -> None:
        await consumer.assign([(topic, 0)])
        await consumer.seek((topic, 0), 1)
        poll = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.sleep(0)
        await consumer.seek((topic, 0), 0)
        assert [record.value for record in await poll] == [b"one"]

    run(work)


def test_the_loop_is_free_while_a_poll_waits(run: Run, topic: str) -> None:
    async def work(consumer: AsyncConsumer) -> None:
        await consumer.assign([(topic, 0)])
        poll = asyncio.create_task(consumer.poll(timeout=1))
        turns = 0
        while not poll.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 10
        assert poll.result() == []

    run(work)


def test_close_ends_what_waits(run: Run, topic: str) -> None:
    async def iterate(consumer: AsyncConsumer) -> list[object]:
        return [record async for record in consumer]

    async def work(consumer: AsyncConsumer) -> None:
        await consumer.assign([(topic, 0)])
        poll = asyncio.create_task(consumer.poll(timeout=None))
        loop = asyncio.create_task(iterate(consumer))
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientClosed):
            await poll
        assert await loop == []
        await consumer.close()
        with pytest.raises(ClientClosed):
            await consumer.poll()
        assert [record async for record in consumer] == []

    run(work)


def test_close_does_not_wait_for_a_broker_that_is_away() -> None:
    async def work() -> float:
        async with AsyncConsumer(NOBODY) as consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await consumer.end_offsets([("orders", 0)], timeout=60)
            start = time.monotonic()
        return time.monotonic() - start

    assert asyncio.run(work()) < 10


def test_errors_come_to_the_caller(run: Run, topic: str) -> None:
    async def work(consumer: AsyncConsumer) -> None:
        with pytest.raises(BarnabasError):
            await consumer.seek((topic, 0), 5)
        with pytest.raises(ValueError, match="not negative"):
            await consumer.seek((topic, 0), -5)

    run(work)


def test_a_forked_child_is_refused(run: Run, topic: str, tmp_path: Path) -> None:
    """Its thread would be missing: without the refusal the child would wait for ever."""
    report = tmp_path / "report"

    async def in_child(consumer: AsyncConsumer) -> None:
        try:
            await consumer.poll(timeout=1)
        except ForkedClient as error:
            await consumer.close()
            report.write_text(str(error))

    async def work(consumer: AsyncConsumer) -> None:
        await consumer.assign([(topic, 0)])
        child = os.fork()
        if child == 0:
            try:
                in_child(consumer).send(None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert "was made before this process was forked" in report.read_text()
        assert await consumer.poll(timeout=0.1) == []

    run(work)
