"""One piece of a client's work, in a process of its own: `python -m bench.client_works WORK BOOTSTRAP TOPIC COUNT` prints one
figure.

Role: the same work for our clients and for their peers, so that `bench.clients` can set them side by side; reading is in
`client_reads.py`. Rates are records per second from the first `send` to the last acknowledgement, latencies the 99th percentile in
milliseconds, memory in megabytes. Main thread, and what the clients start themselves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench.client_reads import (
    confluent_consume,
    confluent_consume_patiently,
    kafka_python_poll,
    ours_poll,
    ours_poll_arrow,
)

VALUE = b"x" * 100
SAME = {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "batch.size": 1_000_000}
"""What librdkafka does by itself; ours is given the same, so that both send the same batches."""
DEFAULTS = {"acks": "all", "enable.idempotence": True}
"""As each client is when nobody says anything else."""
ARROW_ROWS = 100_000
RATE = 10_000
MEMORY_VALUE = b"x" * 1000


def confluent(
    bootstrap: str, topic: str, count: int, callbacks: bool = False, settings: Mapping[str, Any] = SAME
) -> float:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000, **settings}
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


def ours(bootstrap: str, topic: str, count: int, callbacks: bool = False, settings: Mapping[str, Any] = SAME) -> float:
    from barnabas.producer import Producer

    told: list[object] = []
    with Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
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


def paced(send: Callable[[float], None], wait: Callable[[float], object], count: int) -> None:
    """`RATE` records per second, each at its time, with what the client does best between two: `wait` for so many seconds.

    A record's time begins when it is due, so that a client that cannot keep up does not look faster for it.
    """
    start = time.perf_counter()
    number = 0
    while number < count:
        due = start + number / RATE
        left = due - time.perf_counter()
        if left > 0:
            wait(left)
        else:
            send(due)
            number += 1


def p99(latencies: list[float], count: int) -> float:
    if len(latencies) != count:
        raise SystemExit(f"{len(latencies)} of {count} callbacks came")
    return sorted(latencies)[int(count * 0.99)] * 1000


def confluent_latency(bootstrap: str, topic: str, count: int) -> float:
    """As its documentation has it: `poll` after each record and while there is nothing to send, on the thread that sends. A second
    thread that polls would need the GIL for each callback and get it late from one that is busy."""
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, **SAME, "linger.ms": 0, "socket.nagle.disable": True}
    )
    latencies: list[float] = []
    producer.produce(topic, VALUE)
    producer.flush()

    def send(due: float) -> None:
        producer.produce(topic, VALUE, on_delivery=lambda e, m: latencies.append(time.perf_counter() - due))
        producer.poll(0)

    paced(send, producer.poll, count)
    producer.flush()
    return p99(latencies, count)


def ours_latency(bootstrap: str, topic: str, count: int) -> float:
    from barnabas.producer import Producer

    latencies: list[float] = []
    with Producer({"bootstrap.servers": bootstrap, **SAME, "linger.ms": 0}) as producer:
        producer.send(topic, VALUE).result(30)

        def send(due: float) -> None:
            producer.send(topic, VALUE, on_delivery=lambda e, m: latencies.append(time.perf_counter() - due))

        paced(send, time.sleep, count)
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
    "confluent": confluent,
    "confluent-callbacks": partial(confluent, callbacks=True),
    "confluent-defaults": partial(confluent, settings=DEFAULTS),
    "confluent-latency": confluent_latency,
    "confluent-read": confluent_consume,
    "confluent-long-queue": confluent_consume_patiently,
    "kafka-python": partial(kafka_python, callbacks=False),
    "kafka-python-callbacks": partial(kafka_python, callbacks=True),
    "kafka-python-read": kafka_python_poll,
    "ours": ours,
    "ours-arrow": ours_arrow,
    "ours-callbacks": partial(ours, callbacks=True),
    "ours-defaults": partial(ours, settings=DEFAULTS),
    "ours-latency": ours_latency,
    "ours-memory": ours_memory,
    "ours-poll": ours_poll,
    "ours-poll-arrow": ours_poll_arrow,
}

if __name__ == "__main__":
    work, servers, name, number_of_records = sys.argv[1:]
    print(WORKS[work](servers, name, int(number_of_records)))
