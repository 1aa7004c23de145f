"""`make demo`: starts a broker in a process of its own, writes and reads a million records with real clients, shows the rates and
where the request time went, and stops the broker. Every record that is read back is checked. One thread, about half a minute.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.brokers import OURS, BrokerFailed, BrokerProcess
from bench.time_breakdown import fetch_page, parse, table_of
from bench.workloads import create_topic

RECORDS = 1_000_000
PARTITIONS = 6
RECORD_BYTES = 100
STALL_SECONDS = 30.0
Advance = Callable[[int], None]


class DemoFailed(Exception):
    """A record is missing or not what was written."""


@dataclass(frozen=True, slots=True)
class Client:
    """One client: writes numbered records 0..n-1 of 100 bytes, reads them all back and returns the sum of the numbers."""

    name: str
    records: int
    partitions: int
    write: Callable[[str, str, int, Advance], None]
    read: Callable[[str, str, int, Advance], int]


@dataclass(frozen=True, slots=True)
class Result:
    client: Client
    write_seconds: float
    read_seconds: float


def record_value(number: int) -> bytes:
    return b"%0100d" % number


def confluent_write(bootstrap: str, topic: str, records: int, advance: Advance) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 500_000})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, record_value(number), partition=number % PARTITIONS)
                break
            except BufferError:  # the local queue is full: let the broker catch up
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
            advance(10_000)
    if producer.flush(STALL_SECONDS):
        raise DemoFailed("the broker did not take all records")


def confluent_read(bootstrap: str, topic: str, records: int, advance: Advance) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    seen, total, last = 0, 0, time.monotonic()
    try:
        while seen < records and time.monotonic() - last < STALL_SECONDS:
            messages = consumer.consume(10_000, timeout=0.5)
            if messages:
                total += sum(int(message.value() or b"-1") for message in messages)
                seen, last = seen + len(messages), time.monotonic()
                advance(len(messages))
    finally:
        consumer.close()
    return total


def kafka_python_write(bootstrap: str, topic: str, records: int, advance: Advance) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    for number in range(records):
        producer.send(topic, record_value(number), partition=0)
        if number % 1000 == 0:
            advance(1000)
    producer.flush(STALL_SECONDS)
    producer.close()


def kafka_python_read(bootstrap: str, topic: str, records: int, advance: Advance) -> int:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    consumer.assign([PythonTopicPartition(topic, 0)])
    consumer.seek(PythonTopicPartition(topic, 0), 0)
    seen, total, deadline = 0, 0, time.monotonic() + STALL_SECONDS
    while seen < records and time.monotonic() < deadline:
        for messages in consumer.poll(timeout_ms=500, max_records=5000).values():
            total += sum(int(message.value) for message in messages)
            seen += len(messages)
            advance(len(messages))
    consumer.close()
    return total


def aiokafka_write(bootstrap: str, topic: str, records: int, advance: Advance) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
        await producer.start()
        for number in range(records):
            await producer.send(topic, record_value(number), partition=0)
            if number % 1000 == 0:
                advance(1000)
        await producer.flush()
        await producer.stop()

    asyncio.run(asyncio.wait_for(write(), STALL_SECONDS))


def aiokafka_read(bootstrap: str, topic: str, records: int, advance: Advance) -> int:
    async def read() -> int:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        await consumer.start()
        consumer.assign([AioTopicPartition(topic, 0)])
        consumer.seek(AioTopicPartition(topic, 0), 0)
        seen = total = 0
        while seen < records:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                total += sum(int(message.value or b"-1") for message in messages)
                seen += len(messages)
                advance(len(messages))
        await consumer.stop()
        return total

    return asyncio.run(asyncio.wait_for(read(), STALL_SECONDS))


def kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
    command = ["kcat", "-b", bootstrap, "-q", *arguments]
    return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, timeout=STALL_SECONDS, check=True).stdout


def kcat_write(bootstrap: str, topic: str, records: int, advance: Advance) -> None:
    lines = b"".join(record_value(number) + b"\n" for number in range(records))
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-X", "linger.ms=5", stdin=lines)
    advance(records)


def kcat_read(bootstrap: str, topic: str, records: int, advance: Advance) -> int:
    output = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e")
    advance(records)
    return sum(map(int, output.split()))


CLIENTS = (
    Client("confluent-kafka", RECORDS, PARTITIONS, confluent_write, confluent_read),
    Client("aiokafka", 100_000, 1, aiokafka_write, aiokafka_read),
    Client("kafka-python", 50_000, 1, kafka_python_write, kafka_python_read),
    Client("kcat", 200_000, 1, kcat_write, kcat_read),
)


def run_client(client: Client, broker: BrokerProcess, progress: Progress) -> Result:
    topic = create_topic(broker.bootstrap, f"demo-{client.name}", client.partitions)
    times = []
    for verb, work in (("writes", client.write), ("reads", client.read)):
        task = progress.add_task(f"{client.name} {verb}", total=client.records)
        began = time.monotonic()
        total = work(broker.bootstrap, topic, client.records, lambda count, task=task: progress.advance(task, count))  # type: ignore[misc]
        times.append(time.monotonic() - began)
        progress.update(task, completed=client.records)
        if verb == "reads" and total != client.records * (client.records - 1) // 2:
            raise DemoFailed(f"{client.name} did not read back what it had written")
    return Result(client, *times)


def rates_of(results: list[Result]) -> Table:
    table = Table(
        title="Rates, records of 100 bytes, every one read back and checked", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("client")
    for name in ("records", "written /s", "MB/s", "read /s", "MB/s"):
        table.add_column(name, justify="right")
    for result in results:
        count = result.client.records
        cells = [f"{count:,}"]
        for seconds in (result.write_seconds, result.read_seconds):
            cells += [f"{count / seconds:,.0f}", f"{count * RECORD_BYTES / seconds / 1e6:.1f}"]
        table.add_row(result.client.name, *(cell.replace(",", " ") for cell in cells))
    return table


def show(console: Console) -> None:
    with BrokerProcess(OURS) as broker:
        memory = broker.resident_bytes() / 1e6
        console.print(
            f"broker at {broker.bootstrap}, answering after {broker.started_in:.2f} s, {memory:.0f} MB of memory\n"
        )
        columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            present = [client for client in CLIENTS if client.name != "kcat" or shutil.which("kcat")]
            results = [run_client(client, broker, progress) for client in present]
        console.print()
        console.print(rates_of(results))
        console.print(table_of(parse(fetch_page(broker.metrics_url)), console.width))
        console.print(
            "[dim]The waiting of FetchConsumer is the long poll of a reader that has caught up with the writers.[/]\n"
        )
        memory, code = broker.resident_bytes() / 1e6, broker.stop()
        console.print(f"broker stopped with exit code {code}; {memory:.0f} MB of memory after the load")
        if code:
            raise DemoFailed(f"the broker ended with exit code {code}:\n{broker.log_tail()}")


def main() -> int:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    signal.signal(
        signal.SIGTERM, lambda number, frame: sys.exit(128 + number)
    )  # so that the block above stops the broker
    began = time.monotonic()
    console.print("[bold]Barnabas[/]: a Kafka broker, four clients that do not know it is not Kafka's own\n")
    try:
        show(console)
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    except (BrokerFailed, DemoFailed, KafkaException, TimeoutError, subprocess.SubprocessError) as error:
        console.print(f"[red]the demo failed:[/] {error}", markup=True)
        return 1
    console.print(f"[dim]{time.monotonic() - began:.0f} seconds in all[/]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
