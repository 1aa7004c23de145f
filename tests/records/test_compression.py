"""Codecs with their limit, and the times of records inside a batch."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records import compression
from barnabas.records.batch import CorruptBatch, parse_header
from barnabas.records.compression import decompress
from barnabas.records.reader import read_varint
from tests.records.batches import NOW_MS, Batch, compress, record_times, varint

CODECS = [0, 1, 2, 3, 4]


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_compressed_comes_back(codec: int) -> None:
    data = bytes(range(256)) * 1000
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_refused_at_its_limit(codec: int) -> None:
    bomb = compress(codec, bytes(8 << 20))
    with pytest.raises(CorruptBatch):
        decompress(codec, bomb, 1 << 20)


@pytest.mark.parametrize("codec", CODECS[1:])
@given(data=st.binary(max_size=200))
def test_garbage_is_corrupt_and_nothing_else(codec: int, data: bytes) -> None:
    with contextlib.suppress(CorruptBatch):
        decompress(codec, data, 1 << 20)


def test_raw_snappy_without_the_java_framing_is_read() -> None:
    assert decompress(2, bytes(cramjam.snappy.compress_raw(b"abc" * 50)), 1000) == b"abc" * 50


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 100])
def test_a_snappy_block_that_claims_too_much_is_corrupt(length: int) -> None:
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", length) + b"xx"
    with pytest.raises(CorruptBatch, match="claims"):
        decompress(2, framed, 1 << 20)


def test_an_unknown_codec_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="unknown"):
        decompress(5, b"", 10)


@pytest.mark.parametrize("codec", CODECS)
def test_the_times_of_records_are_read(codec: int) -> None:
    times = [NOW_MS + 5, NOW_MS, NOW_MS + 70_000]
    data = Batch([b"a", b"b" * 1000, b"c"], timestamps=times, codec=codec, base_offset=100).build()
    assert list(record_times(data, parse_header(data))) == list(zip(times, [100, 101, 102], strict=True))


def test_log_append_time_is_the_time_of_every_record() -> None:
    data = Batch([b"a", b"b"], timestamps=[5, 6], attributes=0x08, changes={"max_timestamp": 99}).build()
    assert list(record_times(data, parse_header(data))) == [(99, 0), (99, 1)]


def test_a_record_that_claims_more_than_there_is_is_corrupt() -> None:
    data = Batch([b"a"], changes={"record_count": 5, "last_offset_delta": 4}).build()
    with pytest.raises(CorruptBatch):
        list(record_times(data, parse_header(data)))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_are_read_as_they_were_written(value: int) -> None:
    data = varint(value)
    assert read_varint(data, 0) == (value, len(data))


def test_an_endless_varint_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="ten bytes"):
        read_varint(b"\xff" * 20, 0)


LEVELS = [(1, -1), (1, 1), (1, 9), (2, None), (3, 1), (3, 9), (3, 17), (4, -131_072), (4, 3), (4, 22), (0, None)]
PLAIN = {
    "nothing": b"",
    "a byte": b"x",
    "text": b"the quick brown fox " * 8000,
    "noise": random.Random(1).randbytes(200_000),
    "one block": b"ab" * 32 * 1024,
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_what_we_compress_at_any_level_comes_back(codec: int, level: int | None, name: str) -> None:
    data = PLAIN[name]
    packed = compression.compress(codec, data, level)
    assert decompress(codec, packed, max(1, len(data))) == data


@pytest.mark.parametrize("name", PLAIN)
def test_other_libraries_read_what_we_compress(name: str) -> None:
    """The oracles are the libraries that kafka-python uses."""
    data = PLAIN[name]
    assert gzip.decompress(compression.compress(1, data)) == data
    assert lz4.frame.decompress(compression.compress(3, data)) == data
    assert zstandard.ZstdDecompressor().decompress(compression.compress(4, data), max_output_size=1 << 20) == data


def test_lz4_blocks_are_independent_and_have_no_checksums() -> None:
    info = lz4.frame.get_frame_info(compression.compress(3, PLAIN["text"]))
    assert (info["block_linked"], info["block_size"], info["block_checksum"], info["content_checksum"]) == (
        False,
        64 * 1024,
        False,
        False,
    )


def test_an_unknown_codec_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="unknown"):
        compression.compress(5, b"")
