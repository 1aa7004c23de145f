"""The producer for asyncio: the same core, with outcomes as futures of the event loop.

Role: `send` appends at once when nothing has to be waited for; what may wait (a new topic, full memory, flush, close) runs in a
thread. There is no second implementation of anything.
Thread: one event loop; outcomes come from the I/O thread by `call_soon_threadsafe`. Lock: none of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.cluster import PartitionInfo
from barnabas.producer.producer import Producer
from barnabas.records.kernel.send_path import RecordFuture, RecordMetadata

if TYPE_CHECKING:
    import pyarrow

    from barnabas.producer.arrow import RecordRange

__all__ = ["AsyncProducer"]


class AsyncProducer:
    """A `Producer` to be awaited.

    async with AsyncProducer({"bootstrap.servers": "localhost:9092"}) as producer:
        metadata = await producer.send_and_wait("orders", b"value", key=b"key")
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._producer = Producer(config)

    async def send(self, topic: str, value: Any = None, **record: Any) -> asyncio.Future[RecordMetadata]:
        """Append a record (the names of `Producer.send`); the future has its outcome. Waits only for metadata and memory."""
        if self._producer.would_wait(topic):
            call = partial(self._producer.send, topic, value, **record)
            sent = await asyncio.get_running_loop().run_in_executor(None, call)
        else:
            sent = self._producer.send(topic, value, **record)
        return _in_loop(sent)

    async def send_and_wait(self, topic: str, value: Any = None, **record: Any) -> RecordMetadata:
        """Send a record and wait until it is written."""
        return await (await self.send(topic, value, **record))

    async def send_arrow(self, topic: str, table: pyarrow.Table | pyarrow.RecordBatch) -> list[RecordRange]:
        """As `Producer.send_arrow`, and wait until every row is written; rows that are on their way stay so when it is cancelled."""

        def send() -> list[RecordRange]:
            return self._producer.send_arrow(topic, table).result()

        return await asyncio.get_running_loop().run_in_executor(None, send)

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """As `Producer.partitions_for`."""
        return await asyncio.get_running_loop().run_in_executor(None, self._producer.partitions_for, topic)

    async def flush(self, timeout: float | None = None) -> int:
        """As `Producer.flush`."""
        return await asyncio.get_running_loop().run_in_executor(None, self._producer.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """As `Producer.close`."""
        await asyncio.get_running_loop().run_in_executor(None, self._producer.close, timeout)

    def metrics(self) -> dict[str, float]:
        """As `Producer.metrics`."""
        return self._producer.metrics()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncProducer {self._producer!r}>"


def _in_loop(sent: RecordFuture) -> asyncio.Future[RecordMetadata]:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[RecordMetadata] = loop.create_future()

    def settle() -> None:
        if outcome.cancelled():
            return
        error = sent.exception(0)
        if error is None:
            outcome.set_result(sent.result(0))
        else:
            outcome.set_exception(error)

    def tell(_sent: RecordFuture) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle)

    sent.add_done_callback(tell)
    return outcome
