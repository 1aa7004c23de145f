"""What is looked at inside a batch before it is written, and the form in which batches are kept (Kafka's LogValidatorTest is the list)."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.frame  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.results import AppendOrigin, RecordsRefused
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import HEADER_SIZE, PREFIX, BatchHeader, crc32c
from barnabas.records.compression import CODEC_NAMES, compress, decompress
from barnabas.records.kernel.record_layout import MAX_UNFIT
from tests.broker.log.stores import Store, headers_of, region_bytes
from tests.records.batches import NOW_MS, Batch, batch, end_marker, record, record_times, sequenced, varint

CODECS = range(5)
COMPACT = ("compact",)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as made:
        yield made


def refused(store: Store, records: memoryview) -> KafkaError:
    end = store.log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        store.log.append(records)
    assert store.log.log_end_offset == end, "a refused batch must leave no trace"
    return caught.value


def named(error: KafkaError) -> list[int]:
    assert isinstance(error, RecordsRefused)
    return [each.number for each in error.record_errors]


def kept(store: Store, offset: int = 0) -> tuple[BatchHeader, bytes]:
    """The batch at an offset, its checksum verified, and its records in the clear."""
    result = store.log.read(offset, 1 << 24)
    header = headers_of(result)[0]
    return header, decompress(header.codec, region_bytes(result)[HEADER_SIZE : header.size], 1 << 25)


def holding(plain: bytes, count: int, codec: int = 0, **changes: int) -> memoryview:
    """A batch with a right checksum around records that may be anything."""
    head = Batch([b""] * count, attributes=codec, changes=changes).build()[:HEADER_SIZE]
    return sealed(bytes(head) + compress(codec, plain))


def sealed(data: bytes) -> memoryview:
    """The batch with length and checksum made right."""
    return memoryview(PREFIX.pack(0, len(data) - 12, -1, 2, crc32c(data[21:])) + data[21:])


GOOD = [record(number, b"value") for number in range(3)]
BAD_RECORDS = {
    "one too few": b"".join(GOOD[:2]),
    "one too many": b"".join([*GOOD, record(3, b"value")]),
    "a byte more": b"".join(GOOD) + b"\x00",
    "cut off": b"".join(GOOD)[:-1],
    "a length that lies": b"".join(GOOD[:2]) + varint(1000) + GOOD[2][1:],
    "a negative length": b"".join(GOOD[:2]) + varint(-5) + GOOD[2][1:],
    "a key longer than its record": b"".join(GOOD[:2])
    + varint(8)
    + b"\x00"
    + varint(0)
    + varint(2)
    + varint(99)
    + b"abcd",
    "an offset twice": b"".join([GOOD[0], GOOD[1], GOOD[1]]),
    "offsets with a gap": b"".join([GOOD[0], GOOD[1], record(5, b"value")]),
    "offsets backwards": b"".join([GOOD[2], GOOD[1], GOOD[0]]),
    "nothing": b"",
}


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
@pytest.mark.parametrize("case", BAD_RECORDS)
def test_records_that_are_not_what_the_header_says_are_refused(store: Store, case: str, codec: int) -> None:
    assert refused(store, holding(BAD_RECORDS[case], 3, codec)).code == ErrorCode.INVALID_RECORD
    store.log.append(holding(b"".join(GOOD), 3, codec))


SKIPPABLE = struct.pack("<II", 0x184D2A50, 8) + b"skipped!"
HALVES = b"".join(GOOD[:2]), GOOD[2]
WHOLE = b"".join(GOOD)
LARGE = b"".join(record(number, random.Random(number).randbytes(100_000)) for number in range(3))
SINGLE_BYTES = b"".join(b"\1\0\0\x80%c" % byte for byte in b"".join(record(number, bytes(99)) for number in range(3)))


def lz4_frame(plain: bytes, **options: object) -> bytes:
    return bytes(lz4.frame.compress(plain, **{"block_linked": False, **options}))


ODD_FRAMES = {
    "two gzip members": (1, gzip.compress(HALVES[0]) + gzip.compress(HALVES[1])),
    "an empty gzip member first": (1, gzip.compress(b"") + gzip.compress(WHOLE)),
    "an empty gzip member last": (1, gzip.compress(WHOLE) + gzip.compress(b"")),
    "two lz4 frames": (3, lz4_frame(HALVES[0]) + lz4_frame(HALVES[1])),
    "an empty lz4 frame first": (3, lz4_frame(b"") + lz4_frame(WHOLE)),
    "an empty lz4 frame last": (3, lz4_frame(WHOLE) + lz4_frame(b"")),
    "a skippable lz4 frame first": (3, SKIPPABLE + lz4_frame(WHOLE)),
    "a skippable lz4 frame last": (3, lz4_frame(WHOLE) + SKIPPABLE),
    "lz4 blocks that refer to earlier ones": (3, lz4_frame(LARGE, block_linked=True)),
    "an lz4 block for each byte": (3, bytes.fromhex("04224d18604082") + SINGLE_BYTES + bytes(4)),
}


@pytest.mark.parametrize("case", ODD_FRAMES)
def test_what_clients_cannot_read_in_one_go_is_refused(store: Store, case: str) -> None:
    """librdkafka aborts at an empty gzip member, loses what is behind the first one, and fails at lz4 frames again and again."""
    codec, data = ODD_FRAMES[case]
    head = Batch([b""] * 3, codec=codec).build()[:HEADER_SIZE]
    assert refused(store, sealed(bytes(head) + data)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "options", [{"content_checksum": True}, {"block_checksum": True}, {"store_size": False}], ids=str
)
def test_lz4_frames_of_every_kind_that_clients_read_are_accepted(store: Store, options: dict[str, bool]) -> None:
    head = Batch([b""] * 3, codec=3).build()[:HEADER_SIZE]
    data = lz4_frame(LARGE, block_size=lz4.frame.BLOCKSIZE_MAX64KB, **options)
    store.log.append(sealed(bytes(head) + data))


def test_gzip_with_a_long_file_name_is_accepted(store: Store) -> None:
    packed = io.BytesIO()
    with gzip.GzipFile("name" * 100, "wb", fileobj=packed) as file:
        file.write(WHOLE)
    head = Batch([b""] * 3, codec=1).build()[:HEADER_SIZE]
    store.log.append(sealed(bytes(head) + packed.getvalue()))


@pytest.mark.parametrize("codec", CODECS[1:], ids=CODEC_NAMES[1:])
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
def test_damaged_compression_is_never_acknowledged(store: Store, codec: int, data: st.DataObject) -> None:
    """Whatever is flipped inside the compressed records: refused, or what is kept can be read to the last record."""
    whole = bytearray(Batch([b"some value %d" % n for n in range(20)], codec=codec).build())
    position = data.draw(st.integers(HEADER_SIZE, len(whole) - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    end = store.log.log_end_offset
    with contextlib.suppress(KafkaError):
        store.log.append(sealed(bytes(whole)))
        result = store.log.read(end, 1 << 20)
        (header,) = headers_of(result)
        assert len(list(record_times(region_bytes(result), header))) == 20
    assert store.log.log_end_offset in (end, end + 20)


@pytest.mark.parametrize("codec", CODECS[1:], ids=CODEC_NAMES[1:])
def test_a_bomb_is_refused_before_it_takes_memory(store: Store, codec: int) -> None:
    assert refused(store, holding(bytes(17 << 20), 3, codec)).code == ErrorCode.INVALID_RECORD


# Keys.


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_a_compacted_topic_takes_only_records_with_keys(tmp_path: Path, codec: int) -> None:
    with Store(tmp_path, cleanup_policy=COMPACT) as store:
        store.log.append(Batch([b"a", b"b"], [b"k", b""], codec=codec).build())
        error = refused(store, Batch([b"a", b"b", b"c"], [b"k", None, None], codec=codec).build())
        assert error.code == ErrorCode.INVALID_RECORD
        assert named(error) == [1, 2]
        assert "Compacted topic cannot accept message without key in topic partition t-0" in error.message


def test_an_answer_names_at_most_so_many_records(tmp_path: Path) -> None:
    with Store(tmp_path, cleanup_policy=("compact", "delete")) as store:
        error = refused(store, batch(MAX_UNFIT + 500, size=1))
        assert named(error) == list(range(MAX_UNFIT))
        assert f"{MAX_UNFIT + 500} record errors in total" in error.message


# Timestamps.


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_each_record_is_held_to_the_limits_of_timestamps(tmp_path: Path, codec: int) -> None:
    with Store(tmp_path, timestamp_before_max_ms=1000, timestamp_after_max_ms=500) as store:
        limits = [NOW_MS - 1000, NOW_MS + 500, NOW_MS]
        store.log.append(Batch([b"v"] * 3, timestamps=limits, codec=codec).build())
        store.log.append(Batch([b"v"] * 2, timestamps=[-1, -1], codec=codec).build())
        wrong = [NOW_MS, NOW_MS - 1001, NOW_MS + 501, NOW_MS, -1]
        error = refused(store, Batch([b"v"] * 5, timestamps=wrong, codec=codec).build())
        assert (error.code, named(error)) == (ErrorCode.INVALID_TIMESTAMP, [1, 2])
        assert isinstance(error, RecordsRefused)
        assert error.record_errors[0].message == (
            f"Timestamp {NOW_MS - 1001} of message with offset 1 is out of range. "
            f"The timestamp should be within [{NOW_MS - 1000}, {NOW_MS + 500}]"
        )


def test_a_header_cannot_hide_a_timestamp(store: Store) -> None:
    late = Batch([b"v"] * 2, timestamps=[NOW_MS, NOW_MS + 3_600_001], changes={"max_timestamp": NOW_MS})
    assert named(refused(store, late.build())) == [1]


def test_missing_keys_and_wrong_timestamps_are_named_together(tmp_path: Path) -> None:
    with Store(tmp_path, cleanup_policy=COMPACT, timestamp_before_max_ms=1000) as store:
        times = [NOW_MS - 5000, NOW_MS, NOW_MS - 5000, NOW_MS]
        error = refused(store, Batch([b"v"] * 4, [None, None, b"k", b"k"], times).build())
        assert (error.code, named(error)) == (ErrorCode.INVALID_TIMESTAMP, [0, 1, 2])
        assert isinstance(error, RecordsRefused)
        assert error.record_errors[0].message.startswith("Compacted topic")


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
@pytest.mark.parametrize("claimed", [NOW_MS - 5, NOW_MS + 5000, -1])
def test_the_largest_timestamp_is_that_of_the_records_not_of_the_header(store: Store, codec: int, claimed: int) -> None:
    times = [NOW_MS, NOW_MS + 30, NOW_MS + 10]
    store.log.append(Batch([b"v"] * 3, timestamps=times, codec=codec, changes={"max_timestamp": claimed}).build())
    header, _ = kept(store)
    assert (header.max_timestamp, header.base_timestamp, header.log_append_time) == (NOW_MS + 30, NOW_MS, False)
    assert store.log.offset_for_timestamp(NOW_MS + 20).offset == 1


def test_a_timestamp_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path, timestamp_after_max_ms=2**63 - 1) as store:
        records = record(0, b"a") + record(1, b"b", timestamp_delta=100)
        changes = {"base_timestamp": 2**63 - 50, "max_timestamp": 2**63 - 50}
        assert refused(store, holding(records, 2, **changes)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_log_append_time_asks_for_no_timestamp_and_gives_its_own(tmp_path: Path, codec: int) -> None:
    with Store(tmp_path, timestamp_type="LogAppendTime", timestamp_before_max_ms=1000) as store:
        result = store.log.append(Batch([b"v"] * 3, timestamps=[5, 2**40, 7], codec=codec).build())
        header, _ = kept(store)
        assert result.append_time_ms == header.max_timestamp == NOW_MS
        assert (header.log_append_time, header.codec, header.base_timestamp) == (True, codec, 5)


def test_a_repeated_batch_is_answered_with_the_append_time_of_the_first(tmp_path: Path) -> None:
    with Store(tmp_path, timestamp_type="LogAppendTime") as store:
        store.log.append(sequenced(1, 0, 0))
        store.clock.advance(5)
        again = store.log.append(sequenced(1, 0, 0))
        assert (again.duplicate, again.append_time_ms) == (True, NOW_MS)
        store.log.update_config(LogConfig())
        assert store.log.append(sequenced(1, 0, 0)).append_time_ms == -1


# compression.type.


TARGETS = ["uncompressed", *CODEC_NAMES[1:]]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_batches_are_kept_with_the_codec_of_the_topic(
    tmp_path: Path, codec: int, target: str, timestamp_type: str
) -> None:
    with Store(tmp_path, compression_type=target, timestamp_type=timestamp_type) as store:
        values = [b"value %d " % number * 20 for number in range(50)]
        made = Batch(values, producer_id=7, producer_epoch=3, base_sequence=11, codec=codec)
        result = store.log.append(made.build())
        assert (result.base_offset, result.last_offset) == (0, 49)
        header, plain = kept(store)
        assert header.codec == TARGETS.index(target)
        assert plain == b"".join(record(number, value) for number, value in enumerate(values))
        assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (7, 3, 11, 50)
        assert header.size == store.log.size
        assert store.log.append(made.build()).duplicate
        if codec == header.codec and timestamp_type == "CreateTime":
            assert region_bytes(store.log.read(0, 1 << 20))[17:] == bytes(made.build())[17:], "kept as it came"


@pytest.mark.parametrize("target", CODEC_NAMES[1:])
def test_another_level_alone_is_no_reason_to_compress_again(tmp_path: Path, target: str) -> None:
    with Store(tmp_path, compression_type=target, gzip_level=1, lz4_level=1, zstd_level=1) as store:
        made = Batch([b"value" * 100] * 20, codec=CODEC_NAMES.index(target)).build()
        store.log.append(made)
        assert store.log.size == len(made)


def test_the_level_of_the_topic_is_used(tmp_path: Path) -> None:
    sizes = {}
    values = [b"%d some text that compresses %d" % (number, number * 7919) for number in range(2000)]
    for level in (1, 19):
        with Store(tmp_path / str(level), compression_type="zstd", zstd_level=level) as store:
            store.log.append(Batch(values).build())
            sizes[level] = store.log.size
    assert sizes[19] < sizes[1]


def test_the_size_counts_after_compressing_anew(tmp_path: Path) -> None:
    with Store(tmp_path, compression_type="uncompressed", max_message_bytes=2000) as store:
        small = Batch([b"v" * 5000], codec=4).build()
        assert len(small) < 200
        assert refused(store, small).code == ErrorCode.MESSAGE_TOO_LARGE
        store.log.update_config(LogConfig(compression_type="uncompressed", segment_bytes=3000))
        assert refused(store, small).code == ErrorCode.RECORD_LIST_TOO_LARGE
        store.log.update_config(LogConfig(compression_type="uncompressed"))
        store.log.append(small)


def test_a_new_codec_of_the_topic_holds_from_the_next_batch_on(store: Store) -> None:
    store.log.append(batch(3))
    store.log.update_config(LogConfig(compression_type="lz4"))
    store.log.append(batch(3))
    store.log.update_config(LogConfig())
    store.log.append(batch(3))
    assert [kept(store, offset)[0].codec for offset in (0, 3, 6)] == [0, 3, 0]


def test_control_batches_are_not_compressed(tmp_path: Path) -> None:
    with Store(tmp_path, compression_type="gzip") as store:
        store.log.append(end_marker(1, commit=True), origin=AppendOrigin.COORDINATOR)
        assert kept(store)[0].codec == 0


values = st.lists(
    st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=10), st.integers(-50, 50)), min_size=1
)


@given(
    rows=values,
    codec=st.sampled_from(CODECS),
    target=st.sampled_from(["producer", *TARGETS]),
    compacted=st.booleans(),
    limit=st.sampled_from([0, 10, 2**63 - 1]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_a_batch_is_kept_or_refused_as_a_plain_look_at_its_records_says(
    store: Store, rows: list[tuple[bytes, bytes | None, int]], codec: int, target: str, compacted: bool, limit: int
) -> None:
    policy: tuple[str, ...] = COMPACT if compacted else ("delete",)
    config: dict[str, Any] = {
        "compression_type": target,
        "timestamp_before_max_ms": limit,
        "timestamp_after_max_ms": limit,
    }
    store.log.update_config(LogConfig(cleanup_policy=policy, **config))
    times = [NOW_MS + row[2] for row in rows]
    made = Batch([row[0] for row in rows], [row[1] for row in rows], times, codec=codec).build()
    bad = {n for n, row in enumerate(rows) if (compacted and row[1] is None) or abs(row[2]) > limit}
    if bad:
        assert named(refused(store, made)) == sorted(bad)
        return
    first = store.log.append(made).base_offset
    header, plain = kept(store, first)
    assert (header.record_count, header.max_timestamp) == (len(rows), max(times))
    assert plain == b"".join(record(n, row[0], row[2] - rows[0][2], row[1]) for n, row in enumerate(rows))
