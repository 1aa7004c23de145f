"""Why a batch may not be appended: the checks of its header in full, with their errors.

Role: `PartitionLog.append` compares a few numbers; whatever is unusual comes here and gets Kafka's error code and a text. Order and codes
are Kafka's (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.validateBatch). The records themselves are
looked at in record_validation.py.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.results import AppendOrigin
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_V2,
    MAX_CODEC,
    BatchHeader,
    Buffer,
)

_MAGIC_POSITION = 16


def check_unusual(records: Buffer, config: LogConfig, origin: AppendOrigin, guarded: bool = False) -> None:
    """Raise what is wrong with the header; return when it is unusual, but allowed. `guarded`: a transaction was verified."""
    header = _check_frame(records)
    client = origin == AppendOrigin.CLIENT
    if client and header.base_offset != 0:
        raise invalid(f"the base offset of a batch must be 0, not {header.base_offset}")
    if client:
        _check_message_size(header.size, config)
    if header.codec > MAX_CODEC:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec} is unknown")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise invalid(f"{header.record_count} records do not fit the last offset delta {header.last_offset_delta}")
    if client:
        _check_client_attributes(header, guarded)
    _check_segment_size(header.size, config)


def check_size(size: int, config: LogConfig) -> None:
    """The size of a batch that was compressed anew."""
    _check_message_size(size, config)
    _check_segment_size(size, config)


def _check_message_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}"
        )


def _check_segment_size(size: int, config: LogConfig) -> None:
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"the batch has {size} bytes, segment.bytes is {config.segment_bytes}"
        )


def _check_frame(records: Buffer) -> BatchHeader:
    """Exactly one batch of magic 2, whole."""
    if len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] != MAGIC_V2:
        raise invalid(f"magic must be {MAGIC_V2}, not {records[_MAGIC_POSITION]}")
    if len(records) < HEADER_SIZE:
        raise invalid(f"one whole record batch is required, {len(records)} bytes came")
    header = BatchHeader._make(HEADER.unpack_from(records))
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch length {header.batch_length} is too small")
    if header.size > len(records):
        raise invalid(f"the batch claims {header.size} bytes, {len(records)} came")
    if header.size < len(records):
        raise invalid(f"exactly one record batch is allowed; {len(records) - header.size} bytes follow it")
    return header


def _check_client_attributes(header: BatchHeader, guarded: bool) -> None:
    if header.control:
        raise invalid("clients may not write control records")
    if header.log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise invalid(f"sequence {header.base_sequence} of producer {header.producer_id} is negative")
    if header.transactional and not guarded:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to a transaction")


def corrupt(partition: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the checksum of a record batch for {partition} is wrong")


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
