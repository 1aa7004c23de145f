"""Looking into a batch before it is written: its records one by one, and the form in which they are kept.

Role: what LogValidator is in Kafka. Every record must be whole and in its place; keys on compacted topics, timestamps within the
topic's limits, the header's largest timestamp true; LogAppendTime and the topic's `compression.type` change the batch. The loops over
records are the record kernel's; Python sees a record only to say why it is refused. ADR 9 says what this costs and why it is done.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

from barnabas.broker.log.config import LOG_APPEND_TIME, MAX_LONG, PRODUCER_CODEC, UNCOMPRESSED, LogConfig
from barnabas.broker.log.expansion import Expansion
from barnabas.broker.log.results import AppendOrigin, RecordError, RecordsRefused
from barnabas.broker.log.validation import check_size, check_unusual, corrupt, invalid
from barnabas.errors import ErrorCode
from barnabas.records.batch import (
    CHECKED_HEADER,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_V2,
    MAX_CODEC,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    CorruptBatch,
    crc32c,
)
from barnabas.records.compression import CODEC_NAMES, GZIP, LZ4, NONE, ZSTD, compress, decompress
from barnabas.records.kernel.record_layout import RecordFacts, UnfitRecords, check_records, unfit_records
from barnabas.records.reader import decompressed_limit

RECORDS_AT = HEADER_SIZE - PREFIX_SIZE
"""Where the records begin in the part of a batch that the checksum covers."""
MIN_LONG = -MAX_LONG - 1
SLOW_ZSTD_LEVEL = 13
SLOW_LEVEL_EFFORT = 4
_NO_HEADER = (0,) * 13


def look_into(
    records: memoryview,
    config: LogConfig,
    sender: tuple[AppendOrigin, bool],
    now_ms: int,
    partition: str,
    room: Expansion | None = None,
) -> tuple[BatchHeader, bytes]:
    """Header and checked part of what is to be written for a batch that the kernel did not find ordinary; KafkaError with the reason
    when it is refused. The sender: who appends, and whether a transaction was verified. `room`: what the batch may expand to, besides its
    topic's own limit."""
    size = len(records)
    header = BatchHeader._make(HEADER.unpack_from(records) if size >= HEADER_SIZE else _NO_HEADER)
    if (
        header.batch_length + LENGTH_OVERHEAD != size
        or header.magic != MAGIC_V2
        or not 0 <= header.attributes <= MAX_CODEC
        or header.last_offset_delta != header.record_count - 1
        or header.record_count <= 0
        or header.base_offset
        or size > min(config.max_message_bytes, config.segment_bytes)
        or header.producer_id >= 0 > header.base_sequence
    ):
        check_unusual(records, config, *sender)
    body = bytes(records[PREFIX_SIZE:])
    if crc32c(body) != header.crc:
        raise corrupt(partition)
    return validated(header, body, config, now_ms, partition, room)


def validated(
    header: BatchHeader, body: bytes, config: LogConfig, now_ms: int, partition: str, room: Expansion | None = None
) -> tuple[BatchHeader, bytes]:
    """Header and checked part of the batch that is to be written for one that came; KafkaError when its records may not be written."""
    try:
        data, start = _plain_records(header, body, config, room)
        facts = check_records(data, start, header.record_count)
    except CorruptBatch as error:
        raise invalid(str(error)) from error
    if _breaks_a_rule(header, facts, config, now_ms):
        _check_each(header, (data, start), config, now_ms, partition)
    attributes, newest = _stamp(header, facts, config, now_ms)
    codec = _codec_to_keep(header, config)
    if (attributes, newest, codec) == (header.attributes, header.max_timestamp, header.codec):
        return header, body
    if codec == header.codec:
        records = body[RECORDS_AT:]
    else:
        if room is not None:
            room.take_for_compression((len(data) - start) * _effort(codec, config))
        records = compress(codec, memoryview(data)[start:], _level(codec, config))
    kept = header._replace(attributes=attributes & ~CODEC_MASK | codec, max_timestamp=newest)
    return _rewritten(kept, body, records, config)


def _plain_records(header: BatchHeader, body: bytes, config: LogConfig, room: Expansion | None) -> tuple[Buffer, int]:
    """Bytes that hold the records, and where they begin."""
    if header.codec == NONE:
        return body, RECORDS_AT
    limit = decompressed_limit(config.max_message_bytes)
    records = memoryview(body)[RECORDS_AT:]
    if room is None:
        return decompress(header.codec, records, limit), 0
    return room.decompress(header.codec, records, limit), 0


# The rules for records.


def _breaks_a_rule(header: BatchHeader, facts: RecordFacts, config: LogConfig, now_ms: int) -> bool:
    """Whether a record may have to be refused. In doubt yes: a record without a timestamp looks old here."""
    if config.compacted and facts.first_without_key >= 0:
        return True
    if config.timestamp_type == LOG_APPEND_TIME:
        return False
    oldest = header.base_timestamp + facts.min_timestamp_delta
    newest = header.base_timestamp + facts.max_timestamp_delta
    return newest - now_ms > config.timestamp_after_max_ms or now_ms - oldest > config.timestamp_before_max_ms


def _check_each(
    header: BatchHeader, records: tuple[Buffer, int], config: LogConfig, now_ms: int, partition: str
) -> None:
    """Name the records that break a rule, with Kafka's texts."""
    base = header.base_timestamp
    earliest, latest = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
    times = _within_long(earliest - base), _within_long(latest - base), _within_long(NO_TIMESTAMP - base)
    if config.timestamp_type == LOG_APPEND_TIME:
        times = (MIN_LONG, MAX_LONG, 0)
    unfit = unfit_records(*records, header.record_count, config.compacted, times)
    if not unfit.first:
        return
    errors = []
    for at in range(0, len(unfit.first), 3):
        number, timestamp_delta, key_length = unfit.first[at], unfit.first[at + 1], unfit.first[at + 2]
        if config.compacted and key_length < 0:
            text = f"Compacted topic cannot accept message without key in topic partition {partition}"
        else:
            text = (
                f"Timestamp {base + timestamp_delta} of message with offset {number} is out of range. "
                f"The timestamp should be within [{earliest}, {latest}]"
            )
        errors.append(RecordError(number, text))
    raise _refused(tuple(errors), unfit)


def _within_long(number: int) -> int:
    return max(MIN_LONG, min(MAX_LONG, number))


def _refused(named: tuple[RecordError, ...], unfit: UnfitRecords) -> RecordsRefused:
    if unfit.wrong_times:
        return RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", named
        )
    shown = ", ".join(f"RecordError(batchIndex={error.number}, message='{error.message}')" for error in named[:3])
    return RecordsRefused(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {unfit.without_key} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        named,
    )


# The form in which records are kept.


def _stamp(header: BatchHeader, facts: RecordFacts, config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Attributes and largest timestamp: the broker's clock for LogAppendTime, else what the records have, whatever the header says."""
    if config.timestamp_type == LOG_APPEND_TIME:
        return header.attributes | TIMESTAMP_TYPE_BIT, now_ms
    newest = header.base_timestamp + facts.max_timestamp_delta
    if newest > MAX_LONG:
        raise invalid(f"the timestamp {newest} does not fit into 64 bits")
    return header.attributes, max(NO_TIMESTAMP, newest)


def _codec_to_keep(header: BatchHeader, config: LogConfig) -> int:
    wanted = config.compression_type
    if wanted == PRODUCER_CODEC or (header.control and header.codec == NONE):
        return header.codec
    return NONE if wanted == UNCOMPRESSED else CODEC_NAMES.index(wanted)


def _level(codec: int, config: LogConfig) -> int | None:
    return {GZIP: config.gzip_level, LZ4: config.lz4_level, ZSTD: config.zstd_level}.get(codec)


def _effort(codec: int, config: LogConfig) -> int:
    """How often its bytes a batch counts: the highest levels of zstd take much longer than all others (2 MB/s)."""
    return SLOW_LEVEL_EFFORT if codec == ZSTD and config.zstd_level >= SLOW_ZSTD_LEVEL else 1


def _rewritten(header: BatchHeader, body: bytes, records: bytes, config: LogConfig) -> tuple[BatchHeader, bytes]:
    """A batch with some fields of its header changed and with these records; its size may be another."""
    fields = (header.attributes, header.last_offset_delta, header.base_timestamp, header.max_timestamp)
    body = CHECKED_HEADER.pack(*fields) + body[CHECKED_HEADER.size : RECORDS_AT] + records
    header = header._replace(batch_length=len(body) + PREFIX_SIZE - LENGTH_OVERHEAD, crc=crc32c(body))
    check_size(header.size, config)
    return header, body
