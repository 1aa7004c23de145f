"""What `make bench-log` measures: one function per group of rows. Each does our work and the bare work beside it, in turn.

The log runs in this process where only its own speed matters (append, recovery, look-ups) and in a broker of its own where the network
takes part (fetch, start, memory). Runs on the main thread; only the flusher runs beside it.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import google_crc32c

from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.flusher import Flusher
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.recovery import LoadRequest, load_log
from barnabas.broker.log.waiters import DurableCallback
from barnabas.clock import SystemClock
from barnabas.errors import ErrorCode
from barnabas.records.batch import HEADER, HEADER_SIZE, crc32c
from barnabas.records.kernel import checksum
from bench import generators
from bench.brokers import HOST, OURS, BrokerProcess, free_port
from bench.workloads import MEGABYTE, WorkFailed, create_topic, record_count

MIB = 1 << 20
GIB = 1 << 30
CHUNK = MIB
BATCH = 16 * 1024
BATCHES_PER_MIB = MIB // BATCH
SLICES = 16
PARTITIONS = 1000
LOOK_UPS = 200
SEEDS_APART = 7919  # a prime, so that look-ups jump about
TOPIC_ID = uuid.UUID(int=1)
START_MS = 1_700_000_000_000
WAIT_SECONDS = 60.0
FETCH_TURNS = 5


@dataclass(slots=True)
class LogSession:
    """One round. `record(row, ours, bare)` takes the figures; bare is None for rows with an absolute bound."""

    directory: Path
    wanted: frozenset[str]
    scale: float
    record: Callable[[str, float, float | None], None]
    step: Callable[[str], None]

    def count(self, full: int, least: int = 1) -> int:
        return max(least, int(full * self.scale))


# Batches and logs.


def varint(value: int) -> bytes:
    number, out = value << 1, bytearray()
    while number > 0x7F:
        out.append(0x80 | number & 0x7F)
        number >>= 7
    out.append(number)
    return bytes(out)


def make_batch(size: int, timestamp: int) -> bytes:
    """A batch of `size` bytes with one record, as a producer without idempotence sends it."""
    room = size - HEADER_SIZE - 5  # attributes, both deltas, no key, no headers
    value = bytes(room - 2 * len(varint(room)))
    body = b"\x00\x00\x00\x01" + varint(len(value)) + value + b"\x00"
    records = varint(len(body)) + body
    fields = (0, 0, timestamp, timestamp, -1, -1, -1, 1)
    packed = HEADER.pack(0, HEADER_SIZE - 12 + len(records), -1, 2, 0, *fields)
    crc = crc32c(packed[21:] + records)
    return HEADER.pack(0, HEADER_SIZE - 12 + len(records), -1, 2, crc, *fields) + records


@contextmanager
def open_log(
    path: Path, files: FileSystem | None = None, threads: bool = False
) -> Iterator[tuple[LogManager, PartitionLog]]:
    """A manager in this process with the partition `bench-0`."""
    settings = LogManagerSettings((str(path),), defaults=LogConfig(segment_bytes=2 * GIB - 1))
    manager = LogManager(settings, SystemClock(), files)
    manager.startup(threads=threads)
    try:
        yield manager, manager.create("bench", 0, TOPIC_ID)
    finally:
        manager.shutdown()


def fill(log: PartitionLog, batch_bytes: int, total: int, distinct_times: bool = False) -> int:
    """Append batches up to a size; how many. With `distinct_times` each has a timestamp of its own."""
    batch = memoryview(make_batch(batch_bytes, START_MS))
    count = total // len(batch)
    for number in range(count):
        log.append(memoryview(make_batch(batch_bytes, START_MS + number)) if distinct_times else batch)
    return count


# Append.


def append(session: LogSession) -> None:
    """Ours: 64 appends, each with its check and its own write, then the disk: by the thread that appended, as a processor with the
    short cut does it (append-1), or by the flusher, which every batch asks and which begins before the last is written (append-64).
    Bare: the same bytes with as many fdatasyncs as ours needed, once gathered into one writev per fdatasync and once with one writev
    per batch. The faster of the two counts: which one it is depends on the machine (one large write took six times as long as 64 small
    ones on a virtual machine, and half as long at other times). The time of an fdatasync drifts as much, so the three take turns in
    slices, in another order each time.
    """
    total = session.count(SLICES * 16, SLICES)
    for name, asks in (("append-1", 1), ("append-64", BATCHES_PER_MIB)):
        if name in session.wanted:
            session.step(name)
            ours, *bare = _take_turns(session.directory / name, total // SLICES, asks)
            session.record(name, total * MIB / ours / MEGABYTE, total * MIB / min(bare) / MEGABYTE)


def _take_turns(path: Path, mebibytes: int, asks: int) -> list[float]:
    """Seconds of all slices: ours, one writev per flush, one writev per batch."""
    seconds = [0.0, 0.0, 0.0]
    groups = 1
    with (
        open_log(path, threads=True) as (manager, log),
        _bare_file(path / "one") as one,
        _bare_file(path / "many") as many,
    ):
        for turn in range(SLICES + 1):
            before = manager.flush_stats.count
            for lane in (turn % 3, (turn + 1) % 3, (turn + 2) % 3):
                began = time.perf_counter()
                if lane == 0:
                    _append_durably(manager.flusher if asks == 1 else None, log, mebibytes, asks)
                else:
                    _write_durably((one, many)[lane - 1], mebibytes, groups, at_once=lane == 1)
                if turn:  # the first is the warm-up
                    seconds[lane] += time.perf_counter() - began
            groups = max(1, round((manager.flush_stats.count - before) / mebibytes))
    return seconds


@contextmanager
def _bare_file(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        yield fd
    finally:
        os.close(fd)


def _append_durably(committer: Flusher | None, log: PartitionLog, mebibytes: int, asks: int) -> None:
    """So many MiB, each acknowledged before the next begins; `asks` of its 64 batches ask to be told. With a committer this thread
    flushes for itself."""
    batch = memoryview(make_batch(BATCH, START_MS))
    if committer is not None:
        committer.join()
    for _ in range(mebibytes):
        told, done = _acknowledgements(asks)
        for number in range(BATCHES_PER_MIB):
            last = log.append(batch).last_offset
            if number >= BATCHES_PER_MIB - asks:
                log.on_durable(last + 1, told)
        if committer is not None and committer.wanted:
            committer.commit()
        if not done.wait(WAIT_SECONDS):
            raise WorkFailed(f"a flush took more than {WAIT_SECONDS:.0f} s, or failed")


def _acknowledgements(wanted: int) -> tuple[DurableCallback, threading.Event]:
    """What a batch calls when it is on disk, and what is set when all have. A semaphore takes
    five times as long: 70 to 110 µs more per MiB, of the two milliseconds that are measured."""
    durable: list[ErrorCode] = []
    done = threading.Event()

    def told(error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            durable.append(error)
            if len(durable) >= wanted:
                done.set()

    return told, done


def _write_durably(fd: int, mebibytes: int, groups: int, at_once: bool) -> None:
    """The same bytes: per MiB `groups` times an fdatasync after its batches were written, in one writev or one by one."""
    batch = make_batch(BATCH, START_MS)
    sizes = [BATCHES_PER_MIB // groups + (number < BATCHES_PER_MIB % groups) for number in range(groups)]
    for _ in range(mebibytes):
        for count in sizes:
            for pieces in [[batch] * count] if at_once else [[batch]] * count:
                if os.writev(fd, pieces) != len(pieces) * len(batch):
                    raise WorkFailed("a short write")
            os.fdatasync(fd)


# Fetch.


def fetch(session: LogSession) -> None:
    """Our broker and the bare server give the same file to the same reader, in turns: how fast memory is copied changes from second to
    second on a shared machine, up to twofold."""
    size = session.count(512, 32) * MIB
    with BrokerProcess(OURS, {"log.segment.bytes": str(2 * GIB - 1)}, session.directory) as broker:
        segment = _fill_behind(broker, size)
        with sendfile_server(segment) as port:
            reads = {"fetch-hot": (4 * size, _warm), "fetch-cold": (size, _drop)}
            for name, (count, prepare) in reads.items():
                if name in session.wanted:
                    session.step(name)
                    turns = [
                        [_fetch_once(server, count, segment, prepare) for server in (broker.place.port, port)]
                        for _ in range(FETCH_TURNS)
                    ]
                    ours, bare = (median(rates) for rates in zip(*turns, strict=True))
                    session.record(name, ours, bare)


def _fill_behind(broker: BrokerProcess, size: int) -> Path:
    """Stop the broker, write a log in its place and start it again; the segment."""
    create_topic(broker.bootstrap, "fetched", 1)
    broker.stop()
    settings = LogManagerSettings(
        (str(broker.place.directory / "data"),), defaults=LogConfig(segment_bytes=2 * GIB - 1)
    )
    manager = LogManager(settings, SystemClock())
    manager.startup(threads=False)
    log = manager.get("fetched", 0)
    if log is None:
        raise WorkFailed("the topic that was created has no log")
    written = fill(log, BATCH, size)
    manager.shutdown()
    broker.start()
    held = record_count(broker.bootstrap, "fetched", 1)
    if held != written:
        raise WorkFailed(f"the broker holds {held} of {written} records")
    return broker.place.directory / "data" / "fetched-0" / f"{0:020d}.log"


def _fetch_once(port: int, count: int, segment: Path, prepare: Callable[[Path], None]) -> float:
    prepare(segment)
    return generators.fetch(port, 1, "fetched", count)


def _warm(segment: Path) -> None:
    with segment.open("rb") as file:
        while file.read(CHUNK):
            pass


def _drop(segment: Path) -> None:
    """Out of the page cache: written pages first, because only clean ones can go."""
    fd = os.open(segment, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


@contextmanager
def sendfile_server(segment: Path) -> Iterator[int]:
    """The bare server as a child process; its port."""
    port = free_port()
    command = [str(generators.build("sendfile")), str(port), str(segment)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        if server.stdout.readline() != b"ready\n":
            raise WorkFailed(f"the sendfile server at {HOST}:{port} did not start")
        try:
            yield port
        finally:
            server.terminate()


# Recovery.


def recover(session: LogSession) -> None:
    """Ours: a log that was not stopped in order and nothing of which is known to be on disk. Bare: its file by chunks, one checksum
    each, by google_crc32c or by our kernel, whichever is faster here."""
    for name, size in (("recover-16k", BATCH), ("recover-1k", 1024), ("recover-110", 110)):
        if name not in session.wanted:
            continue
        session.step(f"{name}: filling")
        path = session.directory / name
        with open_log(path) as (_, log):
            count = fill(log, size, session.count(256, 16) * MIB // (4 if size < 1024 else 1))
        segment = path / "bench-0" / f"{0:020d}.log"
        total = segment.stat().st_size
        session.step(name)
        _warm(segment)
        bare = min(_read_and_sum(segment, sums) for sums in (_sum_by_google, _sum_by_kernel) for _ in range(3))
        ours = min(_recover_once(path / "bench-0", count) for _ in range(3))
        session.record(name, total / ours / MEGABYTE, total / bare / MEGABYTE)


def _read_and_sum(segment: Path, sums: Callable[[bytes], int]) -> float:
    began = time.perf_counter()
    position = 0
    with segment.open("rb", buffering=0) as file:
        while chunk := os.pread(file.fileno(), CHUNK, position):
            sums(chunk)
            position += len(chunk)
    return time.perf_counter() - began


def _sum_by_google(chunk: bytes) -> int:
    value: int = google_crc32c.value(chunk)
    return value


def _sum_by_kernel(chunk: bytes) -> int:
    value: int = checksum.crc32c(chunk, 0, len(chunk))
    return value


def _recover_once(directory: Path, records: int) -> float:
    request = LoadRequest(str(directory), "bench-0", LogConfig(), 0, 0, False, START_MS)
    began = time.perf_counter()
    loaded = load_log(FileSystem(), request)
    took = time.perf_counter() - began
    if loaded.end != records:
        raise WorkFailed(f"recovery found {loaded.end} of {records} records")
    return took


# Start.


def start(session: LogSession) -> None:
    """From the spawn of the process to its first answer, with a record in each partition."""
    partitions = session.count(PARTITIONS)
    with BrokerProcess(OURS, {}, session.directory) as broker:
        session.step(f"start-1000: creating {partitions} partitions")
        create_topic(broker.bootstrap, "many", partitions)
        broker.stop()
        manager = LogManager(LogManagerSettings((str(broker.place.directory / "data"),)), SystemClock())
        manager.startup(threads=False)
        batch = memoryview(make_batch(1000, START_MS))
        for each in manager.logs():
            each.append(batch)
        manager.shutdown()
        session.step("start-1000")
        times = []
        for _ in range(4):
            broker.start()
            times.append(broker.started_in)
            broker.stop()
    session.record("start-1000", min(times[1:]), None)


# Look-ups.


class CountingFiles(FileSystem):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def pread(self, fd: int, length: int, position: int) -> bytes:
        data = os.pread(fd, length, position)
        self.read_bytes += len(data)
        return data


def look_up(session: LogSession) -> None:
    """The most that any of many look-ups reads, all over a log of one segment; each in a log that has just been opened, so that no
    cached window of an index helps it."""
    size = session.count(1024, 64) * MIB
    path = session.directory / "look-up"
    session.step("look-up: filling")
    with open_log(path) as (_, log):
        count = fill(log, BATCH, size, distinct_times=True)
    places = [number * SEEDS_APART % count for number in range(LOOK_UPS)]
    if "look-up-offset" in session.wanted:
        session.step("look-up-offset")
        session.record("look-up-offset", _worst(path, places, _find_offset), None)
    if "look-up-time" in session.wanted:
        session.step("look-up-time")
        session.record("look-up-time", _worst(path, places, _find_time), None)


def _worst(path: Path, places: Sequence[int], find: Callable[[PartitionLog, int], int]) -> float:
    files = CountingFiles()
    worst = 0
    with open_log(path, files) as (_, log):
        for place in places:
            for segment in log.segments:
                segment.release()
                segment.max_time = (-1, segment.base_offset)
            before = files.read_bytes
            found = find(log, place)
            worst = max(worst, files.read_bytes - before)
            if found != place:
                raise WorkFailed(f"looked for {place} and found {found}")
    return float(worst)


def _find_offset(log: PartitionLog, offset: int) -> int:
    """A read begins at the batch that holds the offset: its first bytes say which it is. They are not part of the look-up."""
    region = log.read(offset, 1).records
    if isinstance(region, bytes):
        raise WorkFailed(f"nothing at offset {offset}")
    return int.from_bytes(os.pread(region.file.fileno(), 8, region.position), "big")


def _find_time(log: PartitionLog, number: int) -> int:
    return log.offset_for_timestamp(START_MS + number).offset


# Memory.


def memory(session: LogSession) -> None:
    """Resident memory of a broker that was started on a log of a size and has served the same reads: 256 MiB from its beginning, again
    and again when it is smaller."""
    small, large = 64 * MIB, session.count(1024, 128) * MIB
    figures = []
    for size in (small, large):
        session.step(f"memory: {size // MIB} MiB of log")
        with BrokerProcess(OURS, {"log.segment.bytes": str(2 * GIB - 1)}, session.directory) as broker:
            _fill_behind(broker, size)
            generators.fetch(broker.place.port, 1, "fetched", 256 * MIB)
            figures.append(broker.resident_bytes() / MEGABYTE)
    session.step(f"memory: {figures[0]:.1f} MB and {figures[1]:.1f} MB")
    session.record("memory", figures[1] / figures[0], None)


WORKLOADS: dict[str, Callable[[LogSession], None]] = {
    "append": append,
    "fetch": fetch,
    "recover": recover,
    "start": start,
    "look-up": look_up,
    "memory": memory,
}
