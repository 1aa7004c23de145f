"""`barnabas perf produce | consume`: how fast records go to a broker and come from it, with the flags of Kafka's perf tests.

Role: loops around our own producer and consumer, one row of figures at the end.
Thread: the main thread; latencies are noted by the producer's thread. Lock: none, list.append is the only thing both see.
"""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.client_options import client_command, format_option, key_value
from barnabas.cli.contact import complete_topics, reach
from barnabas.cli.progress import progress_bar
from barnabas.cli.reading import Plan, find_partitions
from barnabas.cli.tables import print_rows
from barnabas.cli.writing import Deliveries
from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.consumer import Consumer
    from barnabas.producer import Producer, RecordMetadata

MEGABYTE = 1024 * 1024
WORTH_A_BAR = 100_000
MOST_LATENCIES = 200_000
PAYLOADS = 256
MOST_PAYLOAD_BYTES = 16 * MEGABYTE
POLL_RECORDS = 10_000
PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}


@click.group("perf")
def command() -> None:
    """Measure how fast records are sent and read. The figures are those of client and broker together."""


# Produce


@command.command("produce", short_help="Send records and measure rate and latency.")
@click.argument("more", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-t", "--topic", required=True, shell_complete=complete_topics, help="Where the records go.")
@click.option("--num-records", type=click.IntRange(1), default=100_000, show_default=True, help="How many.")
@click.option(
    "--record-size", type=click.IntRange(0), default=100, show_default=True, help="Bytes of each value: random letters."
)
@click.option(
    "--throughput",
    type=float,
    default=-1,
    show_default=True,
    help="Records per second at most; -1: as fast as it goes.",
)
@format_option()
@client_command("producer", "--producer-props")
def produce(client: dict[str, object], more: tuple[str, ...], topic: str, form: str, **options: Any) -> None:
    """Send records and measure rate and latency, from the call of send to the acknowledgement.

    \b
    barnabas perf produce --topic speed --num-records 1000000 --record-size 100 --producer-props acks=all linger.ms=5
    """
    from barnabas.producer import Producer

    client.update(key_value(text) for text in more)
    total = options["num_records"]
    with Producer(client) as producer:
        reach(client)
        producer.partitions_for(topic)  # so that finding the broker is not measured
        load = Load(producer, topic, payloads(options["record_size"]))
        with progress_bar("sending", total, WORTH_A_BAR, in_bytes=False) as advance:
            seconds = load.run(total, options["throughput"], advance)
    print_rows([load.figures(total, options["record_size"], seconds)], form)
    if load.deliveries.failed:
        raise BarnabasError(
            f"{load.deliveries.failed} of {total} records were not delivered: {load.deliveries.first_error}"
        )


def payloads(size: int) -> list[bytes]:
    """Some values of random letters, in bounded memory; the same in every run."""
    chance = random.Random(0)
    count = max(min(PAYLOADS, MOST_PAYLOAD_BYTES // max(size, 1)), 1)
    return ["".join(chance.choices(string.ascii_uppercase, k=size)).encode() for _ in range(count)]


class Load:
    """Sends, and notes the latency of every record, or of every so-manieth when there are very many."""

    def __init__(self, producer: Producer, topic: str, values: list[bytes]) -> None:
        self._producer = producer
        self._topic = topic
        self._values = values
        self._latencies: list[float] = []
        self.deliveries = Deliveries()

    def run(self, total: int, throughput: float, advance: Callable[[int], None]) -> float:
        """The seconds from the first record to the last acknowledgement."""
        send, topic, values, counted = self._producer.send, self._topic, self._values, self.deliveries
        step = -(-total // MOST_LATENCIES)
        begin = time.perf_counter()
        for number in range(total):
            on_delivery = self._timed() if number % step == 0 else counted
            send(topic, values[number % len(values)], on_delivery=on_delivery)
            advance(1)
            if throughput > 0:
                wait = begin + (number + 1) / throughput - time.perf_counter()
                if wait > 0.001:
                    time.sleep(wait)
        self._producer.flush()
        return time.perf_counter() - begin

    def _timed(self) -> Callable[[BaseException | None, RecordMetadata | None], None]:
        begin, note, counted = time.perf_counter(), self._latencies.append, self.deliveries

        def done(error: BaseException | None, metadata: RecordMetadata | None) -> None:
            note(time.perf_counter() - begin)
            counted(error, metadata)

        return done

    def figures(self, total: int, size: int, seconds: float) -> dict[str, Any]:
        ordered = sorted(self._latencies)
        rate = total / seconds
        return {
            "records": total,
            "seconds": round(seconds, 3),
            "records_per_second": round(rate),
            "mb_per_second": round(rate * size / MEGABYTE, 2),
            "avg_ms": round(1000 * sum(ordered) / len(ordered), 2),
            **{name: round(1000 * ordered[int(part * (len(ordered) - 1))], 2) for name, part in PERCENTILES.items()},
            "max_ms": round(1000 * ordered[-1], 2),
        }


# Consume


@command.command("consume", short_help="Read records and measure the rate.")
@click.option("-t", "--topic", required=True, shell_complete=complete_topics, help="What to read, from its beginning.")
@click.option(
    "--messages", "--num-records", "total", type=click.IntRange(1), default=100_000, show_default=True, help="How many."
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Milliseconds without a record after which it gives up.",
)
@click.option("--arrow", is_flag=True, help="Read Arrow batches instead of records; needs pyarrow.")
@format_option()
@client_command("consumer", "--consumer-props")
def consume(client: dict[str, object], topic: str, total: int, form: str, **options: Any) -> None:
    """Read all partitions of a topic from the beginning and measure the rate. Fewer records than asked for: exit code 1.

    \b
    barnabas perf consume --topic speed --messages 1000000
    """
    from barnabas.consumer import Consumer

    partitions = find_partitions(client, Plan((topic,)))
    poll = poll_arrow if options["arrow"] else poll_records
    with Consumer({"auto.offset.reset": "earliest"} | client) as consumer:
        consumer.assign(partitions)
        with progress_bar("reading", total, WORTH_A_BAR, in_bytes=False) as advance:
            count, size, seconds = drain(
                lambda wait, most: poll(consumer, wait, most), total, options["timeout_ms"], advance
            )
    row = {
        "records": count,
        "seconds": round(seconds, 3),
        "records_per_second": round(count / seconds),
        "mb": round(size / MEGABYTE, 2),
        "mb_per_second": round(size / MEGABYTE / seconds, 2),
    }
    print_rows([row], form)
    if count < total:
        raise BarnabasError(f"only {count} of {total} records came; then none for {options['timeout_ms']} ms")


def poll_records(consumer: Consumer, wait: float, most: int) -> tuple[int, int]:
    """How many records came, and the bytes of their keys and values."""
    found = consumer.poll(wait, most)
    return len(found), sum(len(record.value or b"") + len(record.key or b"") for record in found)


def poll_arrow(consumer: Consumer, wait: float, most: int) -> tuple[int, int]:
    batch = consumer.poll_arrow(wait)
    data = [batch.column(name).buffers()[2] for name in ("key", "value")]
    return batch.num_rows, sum(buffer.size for buffer in data if buffer is not None)


def drain(
    poll: Callable[[float, int], tuple[int, int]], total: int, timeout_ms: int, advance: Callable[[int], None]
) -> tuple[int, int, float]:
    """Records, bytes, and the seconds up to the last record that came."""
    count = size = 0
    begin = last = time.perf_counter()
    while count < total:
        left = last + timeout_ms / 1000 - time.perf_counter()
        found, found_bytes = poll(max(left, 0.0), min(total - count, POLL_RECORDS))
        if found:
            last = time.perf_counter()
            count, size = count + found, size + found_bytes
            advance(found)
        elif left <= 0:
            break
    return count, size, max(last - begin, 1e-9)
