"""Batches of a log that were damaged on the disk, and what a reader must see of the others."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from barnabas.broker.log.partition_log import PartitionLog
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import HEADER_SIZE, CorruptBatch, iterate_batches, parse_header
from tests.broker.log.stores import Store, region_bytes
from tests.records.batches import NOW_MS, batch, sequenced

BASE_OFFSET = range(8)
LEADER_EPOCH = range(12, 16)
"""Not covered by the checksum."""


class Written(NamedTuple):
    """One batch, as it was appended."""

    path: Path
    position: int
    data: bytes
    first: int
    following: int


def written(log: PartitionLog) -> list[Written]:
    found = []
    for segment in log.segments:
        path, position = Path(segment.path), 0
        for header, data in iterate_batches(path.read_bytes()):
            found.append(Written(path, position, bytes(data), header.base_offset, header.next_offset))
            position += header.size
    return found


def fill(store: Store, rng: random.Random, batches: int) -> list[Written]:
    sequence = 0
    for number in range(batches):
        if rng.random() < 0.3:
            count = rng.randint(1, 3)
            store.log.append(sequenced(7, 0, sequence, count))
            sequence += count
        else:
            store.log.append(batch(rng.randint(1, 4), rng.randint(0, 120), NOW_MS + number))
        if rng.random() < 0.3:
            store.log.flush()
    store.note_recovery_point()
    return written(store.log)


def change(victim: Written, at: int, data: bytes) -> None:
    with victim.path.open("r+b") as file:
        file.seek(victim.position + at)
        file.write(data)


def flip_a_bit(victim: Written, rng: random.Random) -> None:
    at = rng.choice([at for at in range(len(victim.data)) if at not in LEADER_EPOCH and at not in BASE_OFFSET])
    change(victim, at, bytes([victim.data[at] ^ 1 << rng.randrange(8)]))


def flip_a_bit_of_the_header(victim: Written, rng: random.Random) -> None:
    at = rng.choice([at for at in range(HEADER_SIZE) if at not in LEADER_EPOCH and at not in BASE_OFFSET])
    change(victim, at, bytes([victim.data[at] ^ 1 << rng.randrange(8)]))


def flip_a_bit_of_the_base_offset(victim: Written, rng: random.Random) -> None:
    at = rng.choice(BASE_OFFSET)
    change(victim, at, bytes([victim.data[at] ^ 1 << rng.randrange(8)]))


def zeros(victim: Written, rng: random.Random) -> None:
    change(victim, 0, bytes(rng.choice([HEADER_SIZE, len(victim.data)])))


def noise(victim: Written, rng: random.Random) -> None:
    change(victim, 0, rng.randbytes(rng.randint(17, len(victim.data))))


def wrong_length(victim: Written, rng: random.Random) -> None:
    change(victim, 8, rng.choice([0, 49, 50, len(victim.data), 1000, 2**31 - 1, 2**32 - 1]).to_bytes(4))


Damage = Callable[[Written, random.Random], None]

DAMAGES: tuple[Damage, ...] = (
    flip_a_bit,
    flip_a_bit_of_the_header,
    flip_a_bit_of_the_base_offset,
    zeros,
    noise,
    wrong_length,
)


def check_reads(log: PartitionLog, truth: list[Written], damaged: set[int]) -> None:
    """Every offset of a good batch leads to it; every other one to an error, or to bytes whose checksum is wrong."""
    for number, each in enumerate(truth):
        for offset in range(each.first, each.following):
            if number not in damaged:
                assert region_bytes(log.read(offset, len(each.data)))[: len(each.data)] == each.data, offset
            else:
                assert is_refused(log, offset), f"offset {offset} was in a damaged batch"


def is_refused(log: PartitionLog, offset: int) -> bool:
    try:
        data = region_bytes(log.read(offset, 1))
    except KafkaError as error:
        return error.code == ErrorCode.CORRUPT_MESSAGE
    try:
        list(iterate_batches(data))
    except CorruptBatch:
        return True
    return False


STOPS = ("running", "clean", "killed")
"""When the damage happens: while the broker runs, after it stopped in order, after it was killed."""


def damage_and_read(path: Path, damage: Damage, stop: str, seed: int) -> None:
    """One log, one damaged batch: every other one is read, the log goes on where it ended, and so it is after the next stop."""
    rng = random.Random(f"{damage.__name__} {stop} {seed}")
    interval = rng.choice([0, 300, 4096])
    store = Store(path, segment_bytes=rng.choice([1500, 100_000]), index_interval_bytes=interval)
    truth = fill(store, rng, 25)
    end = truth[-1].following
    if stop != "running":
        store.close() if stop == "clean" else store.abandon()
    # The base offset of the last batch can be anything when nobody knows where the log ended.
    last_too = stop == "clean" or (stop == "killed" and damage is not flip_a_bit_of_the_base_offset)
    number = rng.randrange(len(truth) - (not last_too))
    damage(truth[number], rng)
    if stop != "running":
        store.open()
    assert store.log.log_end_offset == end, f"seed {seed}"
    check_reads(store.log, truth, {number})
    assert store.log.append(batch(1)).base_offset == end
    assert parse_header(region_bytes(store.log.read(end, 1))).base_offset == end
    store.close()
    store.open()
    assert store.log.log_end_offset == end + 1
    check_reads(store.log, truth, {number})
    store.close()
