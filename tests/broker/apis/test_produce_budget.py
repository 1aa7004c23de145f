"""Produce: what one request may cost. Work is counted, not timed: bytes that are looked at on the thread of a processor."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cramjam
import pytest

from barnabas.broker.log.expansion import Expansion, SpareMemory
from barnabas.errors import ErrorCode
from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.batch import CorruptBatch, crc32c
from barnabas.records.compression import GZIP, LZ4, SNAPPY, ZSTD, decompress
from barnabas.testing import EmbeddedBroker
from tests import wire
from tests.broker.apis.test_fetch import fetch, parts
from tests.broker.apis.test_produce import outcomes
from tests.broker.data_broker import Asked, DataBroker, batch, wire_bytes
from tests.records.batches import NOW_MS, Batch, compress, varint
from tests.waiting import wait_until

LIGHT = 1_572_864
BOMB_SIZE = 15 * 1024 * 1024
ONE = batch([b"hello"])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataBroker]:
    with DataBroker(tmp_path / "data") as opened:
        yield opened


@cache
def bomb(codec: int, size: int = BOMB_SIZE) -> bytes:
    """A batch of one record of zeros."""
    body = b"\0\0\0" + varint(-1) + varint(size) + bytes(size) + b"\0"
    plain = varint(len(body)) + body
    records = bytes(cramjam.gzip.compress(plain, 6)) if codec == GZIP else compress(codec, plain)
    return compressed(codec, records)


def compressed(codec: int, records: bytes) -> bytes:
    tail = struct.pack(">hiqqqhii", codec, 0, NOW_MS, NOW_MS, -1, -1, -1, 1) + records
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def request(*batches: bytes | None, acks: int = 1) -> ProduceRequest:
    """One batch for each partition from 0 on."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=index, records=None if records is None else memoryview(records))
                    for index, records in enumerate(batches)
                ],
            )
        ],
    )


def stepped_back(broker: DataBroker, asked: Asked) -> int:
    """The work that a processor did before it left the request to a handler."""
    assert not broker.run_as_processor(asked)
    assert not asked.answers
    work: int = asked.progress.work
    return work


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_processor_does_not_unpack_large_batches(broker: DataBroker, codec: int) -> None:
    broker.create("t", 4, max_message_bytes="2000000")
    asked = broker.receive(request(*[bomb(codec)] * 4), 9)
    assert stepped_back(broker, asked) <= LIGHT
    assert broker.log("t").log_end_offset == 0
    broker.run(asked)
    assert outcomes(asked.answer) == [(0, 0)] * 4
    assert [broker.log("t", index).log_end_offset for index in range(4)] == [1] * 4


def test_a_handler_goes_on_where_the_processor_stopped(broker: DataBroker) -> None:
    broker.create("t", 40)
    batches = [bytes(Batch([b"x" * 50_000]).build())] * 40
    asked = broker.receive(request(*batches), 9)
    assert stepped_back(broker, asked) <= LIGHT + 70_000
    written = sum(broker.log("t", index).log_end_offset for index in range(40))
    assert 10 < written < 40
    broker.run(asked)
    assert outcomes(asked.answer) == [(0, 0)] * 40
    assert [broker.log("t", index).log_end_offset for index in range(40)] == [1] * 40


@pytest.mark.parametrize(("level", "written"), [("3", 8), ("19", 2)])
def test_what_the_broker_compresses_for_one_request_is_bounded(tmp_path: Path, level: str, written: int) -> None:
    """8 MiB of records in 16 batches; high levels of zstd count four times."""
    with DataBroker(tmp_path / "data", barnabas_produce_max_recompressed_bytes=4_300_000) as broker:
        broker.create("t", 16, compression_type="zstd", compression_zstd_level=level)
        asked = broker.receive(request(*[bytes(Batch([b"x" * (1 << 19)]).build())] * 16), 9)
        asked.heavy = True
        broker.run(asked)
    codes = [code for code, _ in outcomes(asked.answer)]
    assert codes == [0] * written + [ErrorCode.MESSAGE_TOO_LARGE] * (16 - written)


def test_a_batch_expands_to_a_bounded_size_whatever_its_topic_allows(broker: DataBroker) -> None:
    broker.create("t", 1, max_message_bytes=str(2**31 - 1))
    asked = broker.receive(request(bomb(ZSTD, 140 << 20)), 9)
    asked.heavy = True
    tracemalloc.start()
    try:
        broker.run(asked)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [code for code, _ in outcomes(asked.answer)] == [ErrorCode.INVALID_RECORD]
    assert peak < 300 << 20


def test_an_ordinary_request_is_done_by_the_processor(broker: DataBroker) -> None:
    broker.create("t", 20)
    batches = [bytes(Batch([b"x" * 900] * 50, codec=number % 5).build()) for number in range(20)]
    asked = broker.receive(request(*batches), 9)
    assert broker.run_as_processor(asked)
    assert outcomes(asked.answer) == [(0, 0)] * 20


def test_a_request_of_many_partitions_is_left_to_a_handler(broker: DataBroker) -> None:
    """Also when none of them is written."""
    broker.create("t", 200)
    for records in (ONE, None):
        asked = broker.receive(request(*[records] * 200), 9)
        assert stepped_back(broker, asked) <= LIGHT + 20_000
        broker.run(asked)
        assert [partition.index for partition in asked.answer.responses[0].partition_responses] == list(range(200))
    assert {broker.log("t", index).log_end_offset for index in range(200)} == {1}


def test_naming_refused_records_is_work_too(broker: DataBroker) -> None:
    broker.create("t", 20, cleanup_policy="compact")
    records = bytes(Batch([b""] * 1500).build())
    asked = broker.receive(request(*[records] * 20), 9)
    assert stepped_back(broker, asked) <= 3 * LIGHT
    broker.run(asked)
    assert {code for code, _ in outcomes(asked.answer)} == {ErrorCode.INVALID_RECORD}


def test_records_are_compressed_again_by_a_handler(broker: DataBroker) -> None:
    broker.create("t", 2, compression_type="gzip")
    asked = broker.receive(request(batch([b"x" * 1000]), batch([b"x" * 500_000])), 9)
    stepped_back(broker, asked)
    assert broker.log("t", 0).log_end_offset == 1
    broker.run(asked)
    assert outcomes(asked.answer) == [(0, 0), (0, 0)]


def test_without_an_answer_a_handler_takes_over_as_well(broker: DataBroker) -> None:
    """RP-40."""
    broker.create("t", 2)
    asked = broker.receive(request(ONE, bomb(ZSTD), acks=0), 9)
    stepped_back(broker, asked)
    assert (asked.nothing, asked.closed) == (0, 0)
    broker.run(asked)
    assert (asked.nothing, asked.closed) == (1, 0)
    assert (broker.log("t", 0).log_end_offset, broker.log("t", 1).log_end_offset) == (1, 1)


def test_what_both_threads_wrote_is_waited_for(tmp_path: Path) -> None:
    """RP-41."""
    with DataBroker(tmp_path / "data", log_flush_acks_all="true") as broker:
        broker.create("t", 2)
        asked = broker.receive(request(ONE, bomb(ZSTD), acks=-1), 9)
        stepped_back(broker, asked)
        broker.run(asked)
        assert outcomes(asked.wait_for_answer()) == [(0, 0), (0, 0)]
        assert [broker.log("t", index).durable_offset for index in range(2)] == [1, 1]
        wait_until(lambda: broker.produce_purgatory.delayed == 0)


def test_beyond_the_cap_batches_are_too_large(tmp_path: Path) -> None:
    """What fits is written; Java's producer splits the others and sends them again."""
    cap = 3 * BOMB_SIZE
    with DataBroker(tmp_path / "data", barnabas_produce_max_expanded_bytes=str(cap)) as broker:
        broker.create("t", 200)
        asked = broker.receive(request(*[bomb(ZSTD)] * 199, ONE), 9)
        stepped_back(broker, asked)
        broker.run(asked)
        codes = [code for code, _ in outcomes(asked.answer)]
        assert codes == [0, 0, *[ErrorCode.MESSAGE_TOO_LARGE] * 197, 0]
        assert asked.progress.work <= cap + 200 * 20_000
        assert f"more than {cap} bytes" in asked.answer.responses[0].partition_responses[5].error_message


def test_corrupt_data_is_unpacked_once(broker: DataBroker) -> None:
    """Only who was given too little room gets more."""
    plain = bytes(range(256)) * 1000
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        damaged = bytearray(compress(codec, plain))
        damaged[len(damaged) // 2] ^= 0x55
        damaged[len(damaged) // 3] ^= 0x55
        expansion = Expansion(1 << 30)
        with pytest.raises(CorruptBatch):
            expansion.decompress(codec, bytes(damaged[: len(damaged) * 3 // 4]), BOMB_SIZE)
        assert expansion.done <= 64 * 1024 * (1 + 4 + 16), codec


def test_fifty_corrupt_batches_cost_no_more_than_they_are_long(broker: DataBroker) -> None:
    broker.create("t", 50)
    records = bytearray(gzip.compress(bytes(30_000)))
    records[-6] ^= 1  # the checksum: everything was unpacked when it is found out
    asked = broker.receive(request(*[compressed(GZIP, bytes(records))] * 50), 9)
    if not broker.run_as_processor(asked):
        assert asked.progress.work <= LIGHT + 2 * 65_536
        broker.run(asked)
    assert {code for code, _ in outcomes(asked.answer)} == {ErrorCode.INVALID_RECORD}


def test_very_many_small_blocks_of_snappy_are_refused() -> None:
    block = bytes(cramjam.snappy.compress_raw(b"x"))
    data = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 100_000
    with pytest.raises(CorruptBatch, match="larger than 16777216 bytes"):
        decompress(SNAPPY, data, 16 * 1024 * 1024)
    expansion = Expansion(LIGHT)
    few = data[: 16 + 7 * 1000]
    assert bytes(expansion.decompress(SNAPPY, few, BOMB_SIZE)) == b"x" * 1000


def test_the_batches_of_a_request_share_their_memory() -> None:
    expansion = Expansion(1 << 30)
    packed = bytes(cramjam.zstd.compress(bytes(BOMB_SIZE)))
    first = expansion.decompress(ZSTD, packed, 1 << 24)
    assert len(first) == BOMB_SIZE
    before = expansion.done
    second = expansion.decompress(ZSTD, packed, 1 << 24)
    assert second.obj is first.obj
    assert expansion.done - before == BOMB_SIZE  # in one go: what the first one needed is known


def test_a_request_that_waits_for_a_handler_keeps_no_memory(broker: DataBroker) -> None:
    """A thousand of them, of 600 bytes each, would keep a gigabyte."""
    broker.create("t", 2)
    small = bomb(ZSTD, 600_000)
    broker.run(broker.receive(request(bomb(ZSTD), bomb(ZSTD)), 9))  # the spare memory is there
    waiting = [broker.receive(request(small, bomb(ZSTD)), 9) for _ in range(100)]
    tracemalloc.start()
    try:
        for asked in waiting:
            assert stepped_back(broker, asked) > 600_000
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_spare_memory_is_bounded_and_the_largest_stays() -> None:
    spare = SpareMemory(most=2)
    for size in (10, 30, 20):
        spare.give_back(bytearray(size))
    assert [len(spare.borrow()) for _ in range(3)] == [30, 20, 0]


def test_a_partition_that_is_named_twice_is_written_once(broker: DataBroker) -> None:
    broker.create("t", 2)
    body = request(ONE, ONE)
    body.topic_data[0].partition_data += [PartitionProduceData(index=0, records=memoryview(ONE))] * 2
    body.topic_data.append(
        TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=memoryview(ONE))])
    )
    answer = broker.ask(body, 9)
    refused = (ErrorCode.INVALID_REQUEST, -1)
    assert outcomes(answer) == [(0, 0), (0, 0), refused, refused, refused]
    assert [broker.log("t", index).log_end_offset for index in range(2)] == [1, 1]
    assert answer.responses[0].partition_responses[2].error_message == "The request names this partition twice."


@pytest.mark.parametrize("acks", [1, 7])
def test_an_answer_of_errors_is_a_small_multiple_of_the_request(broker: DataBroker, acks: int) -> None:
    """An entry of the request takes six bytes, one of the answer 33: what is said beside that is bounded."""
    broker.create("t")
    body = request(*[None] * 30_000, acks=acks)
    sent = len(wire_bytes(body, 9))
    answer = broker.ask(body, 9)
    assert all(code for code, _ in outcomes(answer))
    partitions = answer.responses[0].partition_responses
    assert partitions[0].error_message
    assert partitions[-1].error_message is None
    assert len(wire_bytes(answer, 9)) < 6.5 * sent


def test_the_records_that_are_named_are_bounded_over_the_request(broker: DataBroker) -> None:
    broker.create("t", 30, cleanup_policy="compact")
    body = request(*[bytes(Batch([b""] * 1000).build())] * 30)
    sent = len(wire_bytes(body, 9))
    answer = broker.ask(body, 9)
    assert {code for code, _ in outcomes(answer)} == {ErrorCode.INVALID_RECORD}
    assert len(answer.responses[0].partition_responses[0].record_errors) > 500
    assert len(wire_bytes(answer, 9)) < 2 * sent


def test_a_heavy_request_goes_through_a_whole_broker() -> None:
    """Its bytes stay until the handler has them written, and the next request of the connection is answered after it."""
    filler = bytes(Batch([bytes([65 + number % 26]) * 700 for number in range(1000)]).build())
    with EmbeddedBroker(topics={"t": 40}) as broker, wire.connect(broker.port) as sock:
        body = wire_bytes(request(filler, *[bomb(ZSTD)] * 20, *[ONE] * 19), 7)
        sock.sendall(wire.request(wire.PRODUCE, 7, body, 1) + wire.produce("t", ONE, correlation=2))
        first, second = wire.read_frame(sock), wire.read_frame(sock)
        assert outcomes(decode_response(wire.PRODUCE, 7, first[4:])) == [(0, 0)] * 40
        assert wire.produce_result(second, "t") == (0, 1000)
        assert [record.value for record in broker.records("t", 0)][:1000] == [
            bytes([65 + number % 26]) * 700 for number in range(1000)
        ]
        assert broker.records("t", 39)[0].value == b"hello"


def test_a_heavy_fetch_that_waits_goes_through_a_whole_broker() -> None:
    light = {"barnabas.request.light.elements": 10}
    with (
        EmbeddedBroker(topics={"t": 40}, config=light) as broker,
        wire.connect(broker.port) as reader,
        wire.connect(broker.port) as writer,
    ):
        purgatory = broker.server.services.fetch_purgatory
        wanted = fetch(*[("t", index, 0) for index in range(40)], session_epoch=0)
        reader.sendall(wire.request(wire.FETCH, 7, wire_bytes(wanted, 7)))
        opened: Any = decode_response(wire.FETCH, 7, wire.read_frame(reader)[4:])
        session_id = opened.session_id
        assert session_id
        for number in range(1, 4):
            read = [] if number == 1 else [("t", number - 1, 1)]
            again = fetch(*read, session_id=session_id, session_epoch=number, max_wait_ms=30_000)
            reader.sendall(wire.request(wire.FETCH, 7, wire_bytes(again, 7)))
            wait_until(lambda: purgatory.size == 40)
            assert wire.produce_result(wire.ask(writer, wire.produce("t", ONE, partition=number)), "t") == (0, 0)
            answer = decode_response(wire.FETCH, 7, wire.read_frame(reader)[4:])
            assert [(part.partition_index, len(part.records)) for part in parts(answer)] == [(number, len(ONE))]
        wait_until(lambda: not purgatory.watchers)
