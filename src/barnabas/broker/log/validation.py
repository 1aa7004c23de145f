"""Why a batch may not be appended: the checks of the append path in full, with their errors.

Role: `PartitionLog.append` compares a few numbers; whatever is unusual comes here and gets Kafka's error code and a text. Order and codes
are Kafka's (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.validateBatch).
Thread: any; pure functions. Lock: none.

Per-record work (the time of each record inside a batch, keys on compacted topics, recompression to the topic's `compression.type`)
is not done here yet: it needs the record kernel, and this is its place.
"""

from __future__ import annotations

from barnabas.broker.log.config import LOG_APPEND_TIME, LogConfig
from barnabas.broker.log.results import AppendOrigin
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import (
    CHECKED_HEADER,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_V2,
    MAX_CODEC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    crc32c,
)

_MAGIC_POSITION = 16


def check_unusual(records: Buffer, config: LogConfig, origin: AppendOrigin, guarded: bool = False) -> None:
    """Raise what is wrong with the header; return when it is unusual, but allowed. `guarded`: a transaction was verified."""
    header = _check_frame(records)
    client = origin == AppendOrigin.CLIENT
    if client and header.base_offset != 0:
        raise _invalid(f"the base offset of a batch must be 0, not {header.base_offset}")
    if client and header.size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if header.codec > MAX_CODEC:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec} is unknown")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(f"{header.record_count} records do not fit the last offset delta {header.last_offset_delta}")
    if client:
        _check_client_attributes(header, guarded)
    if header.size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {header.size} bytes, segment.bytes is {config.segment_bytes}",
        )


def _check_frame(records: Buffer) -> BatchHeader:
    """Exactly one batch of magic 2, whole."""
    if len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] != MAGIC_V2:
        raise _invalid(f"magic must be {MAGIC_V2}, not {records[_MAGIC_POSITION]}")
    if len(records) < HEADER_SIZE:
        raise _invalid(f"one whole record batch is required, {len(records)} bytes came")
    header = BatchHeader._make(HEADER.unpack_from(records))
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch length {header.batch_length} is too small")
    if header.size > len(records):
        raise _invalid(f"the batch claims {header.size} bytes, {len(records)} came")
    if header.size < len(records):
        raise _invalid(f"exactly one record batch is allowed; {len(records) - header.size} bytes follow it")
    return header


def _check_client_attributes(header: BatchHeader, guarded: bool) -> None:
    if header.control:
        raise _invalid("clients may not write control records")
    if header.log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(f"sequence {header.base_sequence} of producer {header.producer_id} is negative")
    if header.transactional and not guarded:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to a transaction")


def checked_header(header: BatchHeader, body: bytes, config: LogConfig, now_ms: int) -> tuple[tuple[int, ...], bytes]:
    """Header and body as they are to be written, for topics with LogAppendTime or a limit for old records."""
    if config.timestamp_type == LOG_APPEND_TIME:
        attributes = header.attributes | TIMESTAMP_TYPE_BIT
        fields = (attributes, header.last_offset_delta, header.base_timestamp, now_ms)
        body = CHECKED_HEADER.pack(*fields) + body[CHECKED_HEADER.size :]
        return header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc32c(body)), body
    first = header.base_timestamp
    too_old = first != NO_TIMESTAMP and now_ms - first > config.timestamp_before_max_ms
    if too_old or header.max_timestamp - now_ms > config.timestamp_after_max_ms:
        raise wrong_time(header, config, now_ms)
    return header, body


def wrong_time(header: BatchHeader, config: LogConfig, now_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamps {header.base_timestamp} to {header.max_timestamp} are not within [now - "
        f"{config.timestamp_before_max_ms}, now + {config.timestamp_after_max_ms}], now is {now_ms}",
    )


def corrupt(partition: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the checksum of a record batch for {partition} is wrong")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
