"""The four clients behind one shape: each can write a list of records to partition 0 of a topic, and read all of them back.

Reading is by assignment, without a consumer group. A writer returns what a reader must see. kcat cannot choose timestamps or
headers per record: its writer says so by the records that it returns, with the time of the call as a range.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition

with warnings.catch_warnings():
    # kafka-python reads its message schemas on import through a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_SECONDS = 30.0
BASE_TIME_MS = 1_700_000_000_000
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = BASE_TIME_MS


def sample_records() -> list[Record]:
    """Everything that a record may be: absent, empty and binary keys and values, repeated header names, a header without a value.

    The bulk in the middle is there so that the codecs have something to compress and more than one batch is possible.
    """
    bulk = [Record(b"key-%d" % n, b"value %d " % n * 20, (("n", b"%d" % n),), BASE_TIME_MS + n) for n in range(300)]
    edges = [
        Record(None, b"no key", (), BASE_TIME_MS + 1000),
        Record(b"no value", None, (), BASE_TIME_MS + 1001),
        Record(b"", b"", (("empty", b""),), BASE_TIME_MS + 1002),
        Record(bytes(range(256)), bytes(reversed(range(256))), (("none", None),), BASE_TIME_MS + 1003),
        Record("ключ".encode(), "значение".encode(), (("twice", b"1"), ("twice", b"2")), BASE_TIME_MS + 1004),
        Record(b"out of order in time", b"x" * 5000, (), BASE_TIME_MS - 5000),
    ]
    return bulk + edges


# -- confluent-kafka (librdkafka) ------------------------------------------------------------------------------------


def confluent_write(bootstrap: str, topic: str, codec: str) -> list[Record]:
    # The linger ends with `flush`. Without it a slow machine sends a small batch, which librdkafka leaves uncompressed.
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 2000})
    failed: list[object] = []
    for record in sample_records():
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=0,
            on_delivery=lambda error, message: failed.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert failed == []
    return sample_records()


def confluent_read(bootstrap: str, topic: str, count: int) -> list[Record]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    consumer = confluent_kafka.Consumer(settings)
    found: list[Record] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(found), timeout=1.0):
                assert message.error() is None, message.error()
                headers = tuple((name, value) for name, value in message.headers() or [])
                found.append(Record(message.key(), message.value(), headers, message.timestamp()[1]))
    finally:
        consumer.close()
    return found


# -- kafka-python ----------------------------------------------------------------------------------------------------


def kafka_python_write(bootstrap: str, topic: str, codec: str) -> list[Record]:
    """This client refuses a header without a value, so it gets none."""
    records = [replace(each, headers=tuple(h for h in each.headers if h[1] is not None)) for each in sample_records()]
    kind = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=kind, linger_ms=20)
    try:
        sent = [
            producer.send(topic, record.value, record.key, list(record.headers), 0, record.timestamp_ms)
            for record in records
        ]
        producer.flush(DEADLINE_SECONDS)
        assert [future.get(DEADLINE_SECONDS).offset for future in sent] == list(range(len(sent)))
    finally:
        producer.close()
    return records


def kafka_python_read(bootstrap: str, topic: str, count: int) -> list[Record]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
    found: list[Record] = []
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for messages in consumer.poll(timeout_ms=1000).values():
                found += [Record(m.key, m.value, tuple(m.headers), m.timestamp) for m in messages]
    finally:
        consumer.close()
    return found


# -- aiokafka --------------------------------------------------------------------------------------------------------


def aiokafka_write(bootstrap: str, topic: str, codec: str) -> list[Record]:
    async def write() -> list[int]:
        kind = None if codec == "none" else codec
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=kind, linger_ms=20)
        await producer.start()
        try:
            sent = [
                await producer.send(topic, record.value, record.key, 0, record.timestamp_ms, list(record.headers))
                for record in sample_records()
            ]
            return [(await future).offset for future in sent]
        finally:
            await producer.stop()

    offsets = asyncio.run(asyncio.wait_for(write(), DEADLINE_SECONDS))
    assert offsets == list(range(len(offsets)))
    return sample_records()


def aiokafka_read(bootstrap: str, topic: str, count: int) -> list[Record]:
    async def read() -> list[Record]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
        await consumer.start()
        found: list[Record] = []
        try:
            consumer.assign([AioTopicPartition(topic, 0)])
            consumer.seek(AioTopicPartition(topic, 0), 0)
            while len(found) < count:
                for messages in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [Record(m.key, m.value, tuple(m.headers), m.timestamp) for m in messages]
        finally:
            await consumer.stop()
        return found

    return asyncio.run(asyncio.wait_for(read(), DEADLINE_SECONDS))


# -- kcat ------------------------------------------------------------------------------------------------------------


def kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
    command = ["kcat", "-b", bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def kcat_write(bootstrap: str, topic: str, codec: str) -> list[Record]:
    """One header set for all, lines of key and value; -Z makes an empty value an absent one."""
    pairs = [(b"key-%d" % n, b"value %d " % n * 20) for n in range(300)]
    lines = b"".join(key + b"\t" + value + b"\n" for key, value in pairs) + b"tombstone\t\n"
    headers = ("-H", "source=kcat", "-H", "source=again")
    options = ("-Z", "-z", codec, "-X", "linger.ms=300", *headers)
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K", "\t", *options, stdin=lines)
    both = (("source", b"kcat"), ("source", b"again"))
    stamp = int(time.time() * 1000)
    return [Record(key, value or None, both, stamp) for key, value in [*pairs, (b"tombstone", None)]]


def kcat_read(bootstrap: str, topic: str, count: int) -> list[Record]:
    """Lengths come before contents in the output, so that binary contents can be taken apart; kcat ends at the end of the log."""
    layout = "%T %K %S %k%s%h\n"
    rest = kcat(
        bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-X", "check.crcs=true", "-f", layout
    )
    found = []
    while rest:
        stamp, key_size, value_size, rest = rest.split(b" ", 3)
        key, rest = _cut(rest, int(key_size))
        value, rest = _cut(rest, int(value_size))
        headers, _, rest = rest.partition(b"\n")
        found.append(Record(key, value, _kcat_headers(headers), int(stamp)))
    return found


def _cut(text: bytes, size: int) -> tuple[bytes | None, bytes]:
    return (None, text) if size < 0 else (text[:size], text[size:])


def _kcat_headers(text: bytes) -> Headers:
    pairs = [pair.partition(b"=") for pair in text.split(b",") if pair]
    return tuple((name.decode(), None if value == b"NULL" else value) for name, _, value in pairs)


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    write: Callable[[str, str, str], list[Record]]
    read: Callable[[str, str, int], list[Record]]
    sets_timestamps: bool = True


CLIENTS = (
    Client("confluent-kafka", confluent_write, confluent_read),
    Client("kafka-python", kafka_python_write, kafka_python_read),
    Client("aiokafka", aiokafka_write, aiokafka_read),
    Client("kcat", kcat_write, kcat_read, sets_timestamps=False),
)


def without_time(records: list[Record]) -> list[Record]:
    return [replace(record, timestamp_ms=0) for record in records]
