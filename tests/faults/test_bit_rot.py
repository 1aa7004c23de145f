"""Row 7 of faults.md: a bit flips in an old segment, in the header of a batch or in its records. The client finds it, says where, and can
go on behind it; nobody else notices."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from barnabas.consumer import Consumer as OurConsumer
from barnabas.errors import ErrorCode
from barnabas.errors import KafkaError as OurKafkaError
from barnabas.records.batch import HEADER_SIZE, iterate_batches
from bench.brokers import OURS, BrokerProcess
from tests.faults.conftest import Report
from tests.live_broker import fresh_topic

RECORDS = 2000
BAD_MESSAGE = (KafkaError._BAD_MSG, KafkaError._NOT_IMPLEMENTED, KafkaError.INVALID_MSG)
"""librdkafka's words for a wrong checksum or length, for a batch of a format that it does not know, and for what the broker says."""


def fill(broker: BrokerProcess, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "batch.num.messages": 20})
    for number in range(RECORDS):
        for partition in range(partitions):
            producer.produce(topic, f"{number:08d}".encode() * 10, partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def flip_a_bit(segment: Path, dice: random.Random) -> tuple[int, int]:
    """Flip one bit of a batch, in its header or its records; its first offset and the one after it. Base offset and leader epoch are not
    covered by the checksum: no client can see that they are wrong."""
    data = bytearray(segment.read_bytes())
    batches = []
    position = 0
    for header, view in iterate_batches(bytes(data)):
        batches.append((position, len(view), header.base_offset, header.next_offset))
        position += len(view)
    position, size, first, following = dice.choice(batches)
    covered = [*range(8, 12), *range(16, HEADER_SIZE)]
    at = dice.choice(covered) if dice.random() < 0.7 else dice.randrange(HEADER_SIZE, size)
    data[position + at] ^= 1 << dice.randrange(8)
    print(f"byte {at} of the batch at {position}, offsets {first} to {following - 1}")
    with segment.open("r+b") as file:
        file.write(data)
    return first, following


def read(
    broker: BrokerProcess, topic: str, partition: int, skip_to: int | None
) -> tuple[list[int], list[tuple[int, int]]]:
    """(offsets that were read, (partition, offset) of errors); after an error the consumer goes on at `skip_to`."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "check.crcs": True,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    offsets: list[int] = []
    errors: list[tuple[int, int]] = []
    while True:
        message = consumer.poll(20)
        assert message is not None, f"nothing came after {offsets[-1:]}"
        error = message.error()
        if error is None:
            offsets.append(message.offset() or 0)
        elif error.code() == KafkaError._PARTITION_EOF:
            break
        else:
            # librdkafka may go on reading at an offset that it took from the damaged bytes before it is told to skip
            if error.code() != KafkaError._AUTO_OFFSET_RESET or not errors:
                assert error.code() in BAD_MESSAGE, error
                errors.append((message.partition() or 0, message.offset() or 0))
            assert skip_to is not None
            consumer.assign([TopicPartition(topic, partition, skip_to)])
    consumer.close()
    return offsets, errors


def named_place(error: OurKafkaError, topic: str) -> tuple[int, int]:
    """(partition, offset) that an error of our consumer names."""
    assert error.code is ErrorCode.CORRUPT_MESSAGE, error
    place = re.search(rf"offset (\d+) of {topic}-0|{topic}-0 at offset (\d+)", str(error))
    assert place is not None, error
    return 0, int(place[1] or place[2])


def read_with_ours(
    broker: BrokerProcess, topic: str, skip_to: int, columns: bool
) -> tuple[list[int], list[tuple[int, int]]]:
    """The same with our own consumer, record by record or in columns."""
    offsets: list[int] = []
    errors: list[tuple[int, int]] = []
    deadline = time.monotonic() + 20
    with OurConsumer({"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(topic, 0)])
        while consumer.position((topic, 0)) < RECORDS:
            assert time.monotonic() < deadline, f"nothing came after {offsets[-1:]} and {errors}"
            try:
                if columns:
                    offsets += consumer.poll_arrow(1).column("offset").to_pylist()
                else:
                    offsets += [record.offset for record in consumer.poll(1)]
            except OurKafkaError as error:
                errors.append(named_place(error, topic))
                consumer.seek((topic, 0), skip_to)
    return offsets, errors


def verified(broker: BrokerProcess, topic: str) -> list[tuple[str, int]]:
    """(partition, offset) of every damage that the offline tool finds in a topic, beside the running broker."""
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "log",
        "verify",
        "--format",
        "json",
        str(broker.place.directory / "data"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    partitions = json.loads(done.stdout)["partitions"]
    findings = [finding for each in partitions for finding in each["findings"] if finding["severity"] == "damage"]
    return [(each["partition"], each["offset"]) for each in findings if each["partition"].startswith(topic)]


@pytest.mark.timeout(600)
def test_row_7_bit_rot_in_an_old_segment(full: bool, report: Report) -> None:
    rounds = 40 if full else 4
    dice = random.Random(7)
    with BrokerProcess(OURS, {"log.segment.bytes": "32768"}) as broker:
        for _ in range(rounds):
            topic = fresh_topic(broker, 2)
            fill(broker, topic, 2)
            segments = sorted((broker.place.directory / "data" / f"{topic}-0").glob("*.log"))
            assert len(segments) > 3
            first, following = flip_a_bit(dice.choice(segments[:-1]), dice)
            offsets, errors = read(broker, topic, 0, following)
            assert errors == [(0, first)]
            assert offsets == [*range(first), *range(following, RECORDS)], "everything but the damaged batch"
            for columns in (False, True):
                assert read_with_ours(broker, topic, following, columns) == (offsets, errors), "our own consumer"
            assert read(broker, topic, 1, None) == (list(range(RECORDS)), []), "the other partition is as it was"
            assert verified(broker, topic) == [(f"{topic}-0", first)]
        assert broker.stop() == 0
    report(
        7, f"{rounds} flipped bits: each named with its place by the client and by `log verify`, all other records read"
    )
