"""Reading, the same for our consumer and for its peers: the rest of the works of `bench.client_works`.

Role: each reads a topic that holds `count` records of 100 bytes, from the beginning, with the client's own settings; librdkafka also with a
longer queue. The rate is counted from the first records that are handed out, without these, to the last: finding the topic and warming
up are left out alike. Each record is touched, or, where the client gives Arrow columns, each batch.
Main thread, and what the clients start themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

WAIT_SECONDS = 30.0
CHUNK = 10_000


def rate(chunks: Iterator[int], count: int) -> float:
    """Records per second behind the first chunk, of a reader that yields how many it got; it must get exactly `count`."""
    got = first = next(chunks)
    start = last = time.perf_counter()
    while got < count:
        got += next(chunks)
        last = time.perf_counter()
    if got != count or got == first:
        raise SystemExit(f"{got} records came, {count} were asked for, {first} of them at once")
    return (got - first) / (last - start)


def waited(read: Callable[[], int]) -> Iterator[int]:
    """What `read` returns, again and again; an error when it finds nothing for too long."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = read()
        if found:
            deadline = time.monotonic() + WAIT_SECONDS
            yield found
        elif time.monotonic() > deadline:
            raise SystemExit(f"nothing came for {WAIT_SECONDS:.0f} s")


def confluent_consume(bootstrap: str, topic: str, count: int) -> float:
    return _confluent(bootstrap, topic, count, {})


def confluent_consume_patiently(bootstrap: str, topic: str, count: int) -> float:
    """By default librdkafka pauses for a second whenever 100 000 records wait, which holds it below 250 000 per second here."""
    return _confluent(bootstrap, topic, count, {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 10})


def _confluent(bootstrap: str, topic: str, count: int, settings: dict[str, int]) -> float:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", **settings})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])

    def read() -> int:
        size = 0
        messages = consumer.consume(CHUNK, 1.0)
        for message in messages:
            if message.error() is not None:
                raise SystemExit(str(message.error()))
            size += len(message.value() or b"")
        return _counted(len(messages), size)

    try:
        return rate(waited(read), count)
    finally:
        consumer.close()


def kafka_python_poll(bootstrap: str, topic: str, count: int) -> float:
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)

    def read() -> int:
        records = consumer.poll(timeout_ms=1000, max_records=CHUNK).get(place, [])
        return _counted(len(records), sum(len(record.value) for record in records))

    try:
        return rate(waited(read), count)
    finally:
        consumer.close()


def ours_poll(bootstrap: str, topic: str, count: int) -> float:
    from barnabas.consumer import Consumer

    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(topic, 0)])

        def read() -> int:
            size = 0
            records = consumer.poll(1.0, max_records=CHUNK)
            for record in records:
                size += len(record.value)
            return _counted(len(records), size)

        return rate(waited(read), count)


def ours_poll_arrow(bootstrap: str, topic: str, count: int) -> float:
    import pyarrow.compute as pc

    from barnabas.consumer import Consumer

    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(topic, 0)])

        def read() -> int:
            batch = consumer.poll_arrow(1.0)
            size = pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
            return _counted(batch.num_rows, size)

        return rate(waited(read), count)


def _counted(rows: int, size: int) -> int:
    if size != rows * 100:
        raise SystemExit(f"{rows} records have {size} bytes of values")
    return rows
