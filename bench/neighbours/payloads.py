"""The bytes of the bystander and of the hostile clients, built before anything is measured.

Role: whole frames, ready for a socket. Large requests are packed by hand: a million objects would take the time of the row.
Thread: any; pure functions, but for the time in the bystander's record. Lock: none.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import Any

import cramjam

from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec import encode_request_frame
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.schema import Message
from barnabas.records.batch import HEADER, HEADER_SIZE, crc32c
from barnabas.records.compression import GZIP, NONE, ZSTD

BYSTANDERS, WIDE, VERY_WIDE = "bystander", "wide", "very-wide"
WIDE_PARTITIONS, VERY_WIDE_PARTITIONS = 200, 5_000
MIB = 1 << 20
PRODUCE_VERSION, FETCH_VERSION = 7, 12
CLIENT = "hostile"
BROKER_ID, BROKER_RESOURCE = "1", 4


def frame(message: Message, version: int) -> bytes:
    parts: list[Any] = list(encode_request_frame(message, version, 1, CLIENT))
    return b"".join(parts)


# -- the bystander -----------------------------------------------------------------------------------------------------------------------


def probe_record() -> bytes:
    """A Produce of one record of 100 bytes."""
    return produce(BYSTANDERS, [batch(record(bytes(100)), 1)])


def probe_error(answer: bytes) -> int:
    """The error code in the answer: correlation id, topics, name, partitions, index, error."""
    return int(struct.unpack_from(">h", answer, 4 + 4 + 2 + len(BYSTANDERS) + 4 + 4)[0])


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 31))


# -- record batches ----------------------------------------------------------------------------------------------------------------------


def record(value: bytes | None, delta: int = 0) -> bytes:
    """A record without key and headers."""
    body = b"\x00\x00" + varint(delta) + b"\x01" + (b"\x01" if value is None else varint(len(value)) + value) + b"\x00"
    return varint(len(body)) + body


def batch(records: bytes, count: int, codec: int = NONE) -> bytes:
    """A batch around records that are compressed already."""
    now = int(time.time() * 1000)
    fields = (codec, count - 1, now, now, -1, -1, -1, count)
    packed = HEADER.pack(0, HEADER_SIZE - 12 + len(records), -1, 2, 0, *fields)
    crc = crc32c(packed[21:] + records)
    return HEADER.pack(0, HEADER_SIZE - 12 + len(records), -1, 2, crc, *fields) + records


def produce(topic: str, batches: Iterable[bytes]) -> bytes:
    """Each batch goes to a partition of its own."""
    data = [PartitionProduceData(index=index, records=memoryview(each)) for index, each in enumerate(batches)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)


def zstd_bombs() -> list[bytes]:
    """116 kB that hold 3 GB: 200 batches of 15 MiB of zeros each."""
    packed = bytes(cramjam.zstd.compress(record(bytes(15 * MIB)), 3))
    return [produce(WIDE, [batch(packed, 1, ZSTD)] * WIDE_PARTITIONS)]


def dense_records() -> list[bytes]:
    """A million records of nothing, in batches of just under a mebibyte."""
    count, partitions = 110_000, 9
    dense = batch(b"".join(record(None, delta) for delta in range(count)), count)
    return [produce(WIDE, [dense] * partitions)]


def corrupt_gzip() -> list[bytes]:
    """50 batches of 15 MiB each that turn out to be corrupt at their last byte only; their checksums are right."""
    packed = bytes(cramjam.gzip.compress(record(bytes(15 * MIB)), 6))
    broken = packed[:-8] + bytes([packed[-8] ^ 0xFF]) + packed[-7:]
    return [produce(WIDE, [batch(broken, 1, GZIP)] * 50)]


# -- requests that name many things ------------------------------------------------------------------------------------------------------


def fetch(partitions: int, session: int = 0, epoch: int = -1, topic: str = "none") -> bytes:
    """Fetch v12 of so many partitions of a topic; without partitions, what the session remembers."""
    entry = struct.Struct(">iiqiqib")
    topics = uvarint(1)
    if partitions:
        named = b"".join(entry.pack(index, -1, 0, -1, -1, MIB, 0) for index in range(partitions))
        topics = uvarint(2) + uvarint(len(topic) + 1) + topic.encode() + uvarint(partitions + 1) + named + b"\0"
    body = struct.pack(">iiiibii", -1, 0, 0, MIB, 0, session, epoch) + topics + uvarint(1) + uvarint(1) + b"\0"
    head = struct.pack(">hhih", ApiKey.FETCH, FETCH_VERSION, 1, len(CLIENT)) + CLIENT.encode() + b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def session_of(answer: bytes) -> int:
    """The session that the answer to a Fetch v12 gives: correlation id, tags, throttle time, error, session."""
    return int(struct.unpack_from(">i", answer, 4 + 1 + 4 + 2)[0]) if len(answer) >= 15 else 0


def endless_fetch() -> list[bytes]:
    """Fetch v4 that waits as long as it is allowed, for more than will ever be there, on the bystander's partition."""
    most = 2**31 - 1
    body = struct.pack(">iiiibi", -1, most, most, most, 0, 1) + struct.pack(">h", len(BYSTANDERS)) + BYSTANDERS.encode()
    body += struct.pack(">iiqi", 1, 0, 0, most)
    head = struct.pack(">hhih", ApiKey.FETCH, 4, 1, len(CLIENT)) + CLIENT.encode()
    return [struct.pack(">i", len(head) + len(body)) + head + body]


def announced_only() -> list[bytes]:
    """The beginning of a request of 90 MiB: its length and four bytes."""
    return [struct.pack(">i", 90 * MIB) + b"\0\0\0\1"]


def many_keys() -> list[bytes]:
    return [frame(FindCoordinatorRequest(coordinator_keys=[f"g{number}" for number in range(1_000_000)]), 4)]


def broker_again_and_again() -> list[bytes]:
    named = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name=BROKER_ID, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[named] * 150_000, include_synonyms=True, include_documentation=True)
    return [frame(request, 4)]


def topics_that_are_created() -> list[bytes]:
    """Each names another topic that does not exist yet."""
    wanted = [[MetadataRequestTopic(name=f"auto-{number}")] for number in range(100)]
    return [frame(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 5) for topics in wanted]
