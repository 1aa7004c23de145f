"""What the broker does with a producer's batch: the kernel's check and the long way, plain and compiled. Both forms have one verdict, a
batch that is ordinary is also good the long way, and what is accepted can be read by consumers.

Input: a byte for the topic's settings and what is repaired, a batch.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from barnabas.broker.log import record_validation
from barnabas.broker.log.config import LOG_APPEND_TIME, LogConfig
from barnabas.broker.log.expansion import Expansion
from barnabas.broker.log.record_validation import look_into
from barnabas.broker.log.results import AppendOrigin
from barnabas.errors import KafkaError
from barnabas.records.batch import HEADER_SIZE, PREFIX, BatchHeader, CorruptBatch, crc32c
from barnabas.records.compression import NONE, decompress
from barnabas.records.control import parse_end_marker
from barnabas.records.kernel import fetched, record_layout
from tests.fuzz.target import KernelUsers, Outcome, Reader, compiled_kernel, must, outcome
from tests.fuzz.target_records import lengths_of, repaired, sample_batches
from tests.records.batches import NOW_MS

MAX_LENGTH = 2048
PLAIN = replace(LogConfig(), max_message_bytes=100_000)
CONFIGS = (
    PLAIN,
    replace(PLAIN, cleanup_policy=("compact",)),
    replace(PLAIN, timestamp_type=LOG_APPEND_TIME),
    replace(PLAIN, compression_type="gzip"),
    replace(PLAIN, compression_type="uncompressed"),
    replace(PLAIN, timestamp_before_max_ms=1000, timestamp_after_max_ms=1000),
    replace(PLAIN, max_message_bytes=200),
    replace(PLAIN, segment_bytes=300),
)
_ROOM = 1 << 20

_users = KernelUsers(record_validation)
_kernel = compiled_kernel()


def run(data: bytes) -> None:
    reader = Reader(data)
    choice = reader.byte()
    config, records = CONFIGS[choice & 7], repaired(reader.rest(), choice >> 3)
    sender = (AppendOrigin.CLIENT if choice >> 5 & 1 else AppendOrigin.COORDINATOR, bool(choice >> 6 & 1))
    ordinary = record_layout.check_batch(records, config.max_message_bytes)
    if _kernel is not None:
        other = _kernel.record_layout.check_batch(records, config.max_message_bytes)
        must(ordinary == other, f"the plain kernel finds {ordinary} ordinary, the compiled one {other}")
    found = _verdict(records, config, sender)
    if _users.both:
        with _users.compiled():
            other = _verdict(records, config, sender)
        must(found == other, f"the plain verdict is {found}, the compiled one {other}")
    if ordinary is not None and config is PLAIN:
        must(found.value is not None, f"an ordinary batch is refused the long way: {found}")
    if found.value is not None:
        _check_readable(*found.value)


def _verdict(records: bytes, config: LogConfig, sender: tuple[AppendOrigin, bool]) -> Outcome:
    view = memoryview(records)
    return outcome((KafkaError,), look_into, view, config, sender, NOW_MS, "fuzz-0", Expansion(_ROOM, _ROOM))


def _check_readable(header: BatchHeader, body: bytes) -> None:
    """What was accepted: its own length and checksum, and its records for every consumer."""
    must(header.size == len(body) + PREFIX.size, f"a batch of {len(body)} bytes is said to have {header.size}")
    must(crc32c(body) == header.crc, "an accepted batch has a wrong checksum")
    must(struct.unpack_from(">h", body) == (header.attributes,), "the attributes are not those of the batch")
    records = body[HEADER_SIZE - PREFIX.size :]
    plain = records if header.codec == NONE else decompress(header.codec, records, 1 << 24)
    header = header._replace(base_offset=0)  # the log sets it
    must(
        min(lengths_of(plain, header.record_count)) >= -1,
        "a length below -1 was accepted, which librdkafka cannot read",
    )
    for form in (fetched, _kernel.fetched if _kernel is not None else fetched):
        rows = form.batch_records(plain, 0, header, "fuzz", 0, 0)
        must(len(rows) == header.record_count, f"{len(rows)} records of {header.record_count} can be read")
        times = [row.timestamp for row in rows]
        must(
            header.max_timestamp >= max(times) or header.log_append_time, f"{max(times)} is later than the header says"
        )
    if header.control:
        outcome((CorruptBatch,), parse_end_marker, header, records)


def seeds() -> dict[str, bytes]:
    return {
        f"{name}-{config}": bytes([0x20 | config | 0x18]) + data
        for name, data in sample_batches().items()
        for config in (0, 1, 3)
    } | {f"marker-{name}": bytes([0x18]) + sample_batches()[name] for name in ("commit", "abort")}
