"""What a network thread leaves to a handler although few bytes ask for it: scans, checksums, syncs, new segments, locks that are held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.broker.apis.list_offsets import weigh
from barnabas.broker.budget import Budget
from barnabas.broker.log.files import FileSystem
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.apis.test_fetch import fetch, offsets, parts
from tests.broker.apis.test_produce import outcomes, produce
from tests.broker.data_broker import Asked, DataBroker, batch
from tests.records.batches import Batch

ONE = batch([b"x"])
LARGE = bytes(Batch([b"x" * 1_000_000, b""]).build())
CHUNK = 1 << 20


class Work:
    """What the log asked of the system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes_read = self.reads = self.syncs = self.created = 0
        pread, sync, open_file = FileSystem.pread, FileSystem.sync, FileSystem.open

        def counted_pread(files: FileSystem, fd: int, length: int, position: int) -> bytes:
            self.bytes_read += length
            self.reads += 1
            return pread(files, fd, length, position)

        def counted_sync(files: FileSystem, fd: int) -> None:
            self.syncs += 1
            sync(files, fd)

        def counted_open(files: FileSystem, path: str, create: bool = False) -> Any:
            self.created += create
            return open_file(files, path, create)

        monkeypatch.setattr(FileSystem, "pread", counted_pread)
        monkeypatch.setattr(FileSystem, "sync", counted_sync)
        monkeypatch.setattr(FileSystem, "open", counted_open)

    def forget(self) -> None:
        self.bytes_read = self.syncs = self.created = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


@pytest.fixture
def broker(work: Work, tmp_path: Path) -> Iterator[DataBroker]:
    with DataBroker(tmp_path / "data") as opened:
        yield opened


def left(broker: DataBroker, body: Any, version: int) -> Asked:
    """A request that a network thread has begun and left to a handler, unanswered."""
    asked = broker.receive(body, version)
    assert not broker.run_as_processor(asked)
    assert not asked.answers
    return asked


# Fetch.


def test_an_index_has_entries_whatever_the_topic_asks_for(broker: DataBroker, work: Work) -> None:
    broker.create("t", 1, index_interval_bytes=str(2**31 - 1))
    for _ in range(5000):
        broker.log("t").append(memoryview(ONE))
    work.forget()
    asked = broker.receive(fetch(("t", 0, 4900)), 12)
    assert broker.run_as_processor(asked)
    assert offsets(parts(asked.answer)[0])[0] == 4900
    assert 0 < work.bytes_read < 150_000


def test_checksums_of_large_batches_are_compared_by_a_handler(broker: DataBroker, work: Work) -> None:
    broker.create("t", 10)
    for index in range(10):
        broker.log("t", index).append(memoryview(LARGE))
    work.forget()
    asked = left(broker, fetch(*[("t", index, 1) for index in range(10)], partition_max_bytes=1), 12)
    assert work.bytes_read < 3 * CHUNK
    broker.run(asked)
    assert [offsets(part) for part in parts(asked.answer)] == [[0]] + [[]] * 9


def test_a_session_goes_on_when_its_fetch_was_left_to_a_handler(broker: DataBroker) -> None:
    broker.create("t", 10)
    for index in range(10):
        broker.log("t", index).append(memoryview(LARGE))
    wanted = [("t", index, 1) for index in range(10)]
    session = broker.ask(fetch(("t", 0, 0), session_epoch=0), 12).session_id
    asked = left(broker, fetch(*wanted, session_id=session, session_epoch=1), 12)
    broker.run(asked)
    assert (asked.answer.error_code, asked.answer.session_id) == (0, session)
    assert len(parts(asked.answer)) == 10


def test_a_fetch_that_waits_for_more_looks_for_its_places_on_a_handler(broker: DataBroker, work: Work) -> None:
    """No byte is asked for, so that nothing is read before it waits."""
    broker.create("t", 10)
    for index in range(10):
        broker.log("t", index).append(memoryview(LARGE))
    work.forget()
    wanted = [("t", index, 1) for index in range(10)]
    body = fetch(*wanted, max_bytes=1 << 20, partition_max_bytes=0, min_bytes=1 << 30, max_wait_ms=1000)
    asked = left(broker, body, 12)
    assert work.bytes_read < 3 * CHUNK
    broker.run(asked)


def test_who_appends_does_not_read_much_for_who_waits(broker: DataBroker) -> None:
    """A wide fetch that waits for the ends of logs whose places are not remembered."""
    broker.create("t", 200)
    logs = [broker.log("t", index) for index in range(200)]
    for each in logs:
        each.append(memoryview(ONE))
    waiting = broker.receive(fetch(*[("t", index, 1) for index in range(200)], max_wait_ms=10_000), 12)
    assert broker.run_as_processor(waiting)
    waiting.local_done_ns = 1
    for each in logs[1:]:
        each.append(memoryview(ONE))
        each._reader._forget()
    produced = broker.receive(produce(("t", 0, ONE)), 9)
    assert broker.run_as_processor(produced)
    assert outcomes(produced.answer) == [(0, 1)]
    assert not waiting.answers
    assert cast(Any, waiting.request_channel.take(0)) is waiting
    broker.run(waiting)
    assert [offsets(part) for part in parts(waiting.answer)] == [[1]] * 200


# Produce.


def test_a_batch_that_must_be_flushed_is_written_by_a_handler(broker: DataBroker, work: Work) -> None:
    broker.create("t", 3, flush_messages="1")
    broker.create("other", 1)
    work.forget()
    asked = left(broker, produce(("other", 0, ONE), ("t", 0, ONE), ("t", 1, ONE)), 9)
    assert work.syncs == 0
    assert (broker.log("other").log_end_offset, broker.log("t").log_end_offset) == (1, 0)
    broker.run(asked)
    assert outcomes(asked.answer) == [(0, 0)] * 3
    assert [broker.log("t", index).durable_offset for index in range(3)] == [1, 1, 0]


def test_a_batch_before_the_flush_is_due_is_written_at_once(broker: DataBroker, work: Work) -> None:
    broker.create("t", 1, flush_messages="3")
    work.forget()
    for _ in range(2):
        assert broker.run_as_processor(broker.receive(produce(("t", 0, ONE)), 9))
    left(broker, produce(("t", 0, ONE)), 9)
    assert work.syncs == 0


@pytest.mark.parametrize("cause", ["size", "time"])
def test_a_new_segment_is_begun_by_a_handler(broker: DataBroker, work: Work, cause: str) -> None:
    broker.create("t", 1, segment_bytes="1048576", segment_ms="1000")
    first, second = (LARGE, LARGE) if cause == "size" else (ONE, _later(60_000))
    assert broker.run_as_processor(broker.receive(produce(("t", 0, first)), 9))
    work.forget()
    asked = left(broker, produce(("t", 0, second)), 9)
    assert work.created == 0
    broker.run(asked)
    assert outcomes(asked.answer) == [(0, broker.log("t").log_end_offset - (2 if cause == "size" else 1))]
    assert broker.log("t").segment_count == 2


def _later(milliseconds: int) -> bytes:
    return bytes(Batch([b"x"], timestamp=Batch([b"x"]).timestamp + milliseconds).build())


def test_a_network_thread_does_not_wait_for_a_log_that_is_busy(broker: DataBroker) -> None:
    broker.create("t", 1)
    with broker.log("t")._lock:
        asked = left(broker, produce(("t", 0, ONE)), 9)
    broker.run(asked)
    assert outcomes(asked.answer) == [(0, 0)]


# ListOffsets.


def test_a_look_up_by_time_is_heavy(broker: DataBroker) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=1)
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    assert weigh(body, broker.services) > Budget().light_elements


def test_a_look_up_by_time_goes_over_batches_of_one_time_in_large_steps(broker: DataBroker, work: Work) -> None:
    """The time index has no entry to begin at; the headers are looked at by the kernel, which lets go of the GIL."""
    broker.create("t", 1)
    log = broker.log("t")
    for _ in range(15_000):
        log.append(memoryview(ONE))
    log.append(memoryview(_later(60_000)))
    work.reads = 0
    assert log.offset_for_timestamp(Batch([b"x"]).timestamp + 1).offset == 15_000
    assert work.reads < 40
