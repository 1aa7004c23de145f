"""Row 7 of faults.md: a bit flips in an old segment. The client finds it, says where, and can go on behind it; nobody else notices."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from barnabas.records.batch import HEADER_SIZE, iterate_batches
from bench.brokers import BrokerProcess
from tests.faults.conftest import Report
from tests.live_broker import fresh_topic, live_broker

RECORDS = 2000
BAD_MESSAGE = KafkaError._BAD_MSG


def fill(broker: BrokerProcess, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "batch.num.messages": 20})
    for number in range(RECORDS):
        for partition in range(partitions):
            producer.produce(topic, f"{number:08d}".encode() * 10, partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def flip_a_bit(segment: Path, dice: random.Random) -> tuple[int, int]:
    """Flip one bit in the records of a batch; its first offset and the one after it."""
    data = bytearray(segment.read_bytes())
    batches = []
    position = 0
    for header, view in iterate_batches(bytes(data)):
        batches.append((position, len(view), header.base_offset, header.next_offset))
        position += len(view)
    position, size, first, following = dice.choice(batches)
    data[position + dice.randrange(HEADER_SIZE, size)] ^= 1 << dice.randrange(8)
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
                assert error.code() == BAD_MESSAGE, error
                errors.append((message.partition() or 0, message.offset() or 0))
            assert skip_to is not None
            consumer.assign([TopicPartition(topic, partition, skip_to)])
    consumer.close()
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
    rounds = 20 if full else 3
    dice = random.Random(7)
    with live_broker({"log.segment.bytes": "32768"}) as broker:
        for _ in range(rounds):
            topic = fresh_topic(broker, 2)
            fill(broker, topic, 2)
            segments = sorted((broker.place.directory / "data" / f"{topic}-0").glob("*.log"))
            assert len(segments) > 3
            first, following = flip_a_bit(dice.choice(segments[:-1]), dice)
            offsets, errors = read(broker, topic, 0, following)
            assert errors == [(0, first)]
            assert offsets == [*range(first), *range(following, RECORDS)], "everything but the damaged batch"
            assert read(broker, topic, 1, None) == (list(range(RECORDS)), []), "the other partition is as it was"
            assert verified(broker, topic) == [(f"{topic}-0", first)]
    report(
        7, f"{rounds} flipped bits: each named with its place by the client and by `log verify`, all other records read"
    )
