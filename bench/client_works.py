"""One piece of a client's work, in a process of its own: `python -m bench.client_works WORK BOOTSTRAP TOPIC COUNT` prints one
figure.

Role: the same work for our producer and for its peers, so that `bench.clients` can set them side by side. Rates are records per
second from the first `send` to the last acknowledgement, latencies the 99th percentile in milliseconds, memory in megabytes. Main
thread, and what the clients start themselves.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

VALUE = b"x" * 100
SAME = {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "batch.size": 1_000_000}
"""What librdkafka does by itself; ours is given the same."""
ARROW_ROWS = 100_000
RATE = 10_000
MEMORY_VALUE = b"x" * 1000


def confluent(bootstrap: str, topic: str, count: int, callbacks: bool) -> float:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000, **SAME}
    )
    told: list[object] = []
    options: dict[str, Any] = {"on_delivery": lambda error, message: told.append(error)} if callbacks else {}
    start = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, VALUE, **options)
                break
            except BufferError:
                producer.poll(0.005)
        if callbacks and not number % 1000:
            producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - start
    if callbacks and (len(told) != count or any(told)):
        raise SystemExit(f"{len(told)} of {count} callbacks came")
    return count / seconds


def kafka_python(bootstrap: str, topic: str, count: int, callbacks: bool) -> float:
    import kafka

    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        batch_size=1_000_000,
        max_request_size=2_000_000,
    )
    told: list[object] = []
    start = time.perf_counter()
    for _ in range(count):
        future = producer.send(topic, VALUE)
        if callbacks:
            future.add_callback(told.append)
    producer.flush()
    seconds = time.perf_counter() - start
    producer.close()
    return count / seconds


def ours(bootstrap: str, topic: str, count: int, callbacks: bool) -> float:
    from barnabas.producer import Producer

    told: list[object] = []
    with Producer({"bootstrap.servers": bootstrap, **SAME}) as producer:
        start = time.perf_counter()
        if callbacks:
            for _ in range(count):
                producer.send(topic, VALUE, on_delivery=lambda error, metadata: told.append(error))
        else:
            for _ in range(count):
                producer.send(topic, VALUE)
        producer.flush()
        seconds = time.perf_counter() - start
    if callbacks and (len(told) != count or any(told)):
        raise SystemExit(f"{len(told)} of {count} callbacks came")
    return count / seconds


def ours_arrow(bootstrap: str, topic: str, count: int) -> float:
    import pyarrow

    from barnabas.producer import Producer

    table = pyarrow.table({"value": [VALUE] * ARROW_ROWS})
    with Producer({"bootstrap.servers": bootstrap, **SAME}) as producer:
        start = time.perf_counter()
        for first in range(0, count, ARROW_ROWS):
            producer.send_arrow(topic, table.slice(0, min(ARROW_ROWS, count - first)))
        producer.flush()
        seconds = time.perf_counter() - start
    return count / seconds


def paced(send: Callable[[float], None], count: int) -> None:
    """`RATE` records per second, each at its time."""
    start = time.perf_counter()
    for number in range(count):
        due = start + number / RATE
        while (now := time.perf_counter()) < due:
            if due - now > 0.0002:
                time.sleep(due - now - 0.0001)
        send(now)


def p99(latencies: list[float], count: int) -> float:
    if len(latencies) != count:
        raise SystemExit(f"{len(latencies)} of {count} callbacks came")
    return sorted(latencies)[int(count * 0.99)] * 1000


def confluent_latency(bootstrap: str, topic: str, count: int) -> float:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **SAME, "linger.ms": 0})
    latencies: list[float] = []
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            producer.poll(0.1)

    server = threading.Thread(target=serve)
    server.start()
    producer.produce(topic, VALUE)
    producer.flush()
    paced(
        lambda sent: producer.produce(
            topic, VALUE, on_delivery=lambda e, m: latencies.append(time.perf_counter() - sent)
        ),
        count,
    )
    producer.flush()
    over.set()
    server.join()
    return p99(latencies, count)


def ours_latency(bootstrap: str, topic: str, count: int) -> float:
    from barnabas.producer import Producer

    latencies: list[float] = []
    with Producer({"bootstrap.servers": bootstrap, **SAME, "linger.ms": 0}) as producer:
        producer.send(topic, VALUE).result(30)

        def send(sent: float) -> None:
            producer.send(topic, VALUE, on_delivery=lambda e, m: latencies.append(time.perf_counter() - sent))

        paced(send, count)
    return p99(latencies, count)


def ours_memory(bootstrap: str, topic: str, count: int) -> float:
    """Memory beyond `buffer.memory` while records are sent faster than the broker takes them."""
    import psutil

    from barnabas.producer import Producer

    buffer_memory = 64 * 1024 * 1024
    process = psutil.Process()
    highest = before = process.memory_info().rss
    with Producer({"bootstrap.servers": bootstrap, **SAME, "buffer.memory": buffer_memory}) as producer:
        for number in range(count):
            producer.send(topic, MEMORY_VALUE)
            if not number % 5000:
                highest = max(highest, process.memory_info().rss)
    highest = max(highest, process.memory_info().rss)
    return max(highest - before - buffer_memory, 0) / 1e6


WORKS: dict[str, Callable[[str, str, int], float]] = {
    "confluent": partial(confluent, callbacks=False),
    "confluent-callbacks": partial(confluent, callbacks=True),
    "confluent-latency": confluent_latency,
    "kafka-python": partial(kafka_python, callbacks=False),
    "kafka-python-callbacks": partial(kafka_python, callbacks=True),
    "ours": partial(ours, callbacks=False),
    "ours-callbacks": partial(ours, callbacks=True),
    "ours-arrow": ours_arrow,
    "ours-latency": ours_latency,
    "ours-memory": ours_memory,
}

if __name__ == "__main__":
    work, servers, name, number_of_records = sys.argv[1:]
    print(WORKS[work](servers, name, int(number_of_records)))
