"""What fault tests of compaction share: questions over a plain connection, and a reader that goes over a partition again and again."""

from __future__ import annotations

import socket
import struct
import threading
import time

from barnabas.records.batch import iterate_batches
from tests import wire
from tests.broker.log.compacted import Record, records_of

OFFSET_OUT_OF_RANGE = 1
EARLIEST = -2


def earliest(sock: socket.socket, topic: str, partition: int = 0) -> int:
    """The first offset of a partition, by ListOffsets v1."""
    body = struct.pack(">ii", -1, 1) + wire.string(topic) + struct.pack(">iiq", 1, partition, EARLIEST)
    answer = wire.ask(sock, wire.request(wire.LIST_OFFSETS, 1, body))
    if not answer:
        raise ConnectionError("closed")
    error, _, offset = struct.unpack_from(">hqq", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    assert error == 0, f"ListOffsets answered {error}"
    return int(offset)


def fetch(sock: socket.socket, topic: str, offset: int) -> tuple[int, int, bytes]:
    """(error, high watermark, records) of partition 0."""
    answer = wire.ask(sock, wire.fetch(topic, offset, 100_000, wait_ms=20))
    if not answer:
        raise ConnectionError("closed")
    at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
    error, high_watermark, _, aborted = struct.unpack_from(">hqqi", answer, at)
    at += 22 + 16 * max(0, aborted)
    (size,) = struct.unpack_from(">i", answer, at)
    return error, high_watermark, answer[at + 4 : at + 4 + size]


class Rereader(threading.Thread):
    """Reads partition 0 from its start to its end until it is stopped, over restarts of the broker; notes what may not be."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__(name="rereader")
        self._port = port
        self._topic = topic
        self._stop_requested = threading.Event()
        self.wrong: list[str] = []
        self.out_of_range = 0
        self.rounds = 0
        self.records = 0
        self._seen: dict[int, Record] = {}

    def stop(self) -> None:
        self._stop_requested.set()
        self.join(30)

    def run(self) -> None:
        while not self._stop_requested.is_set():
            try:
                with wire.connect(self._port) as sock:
                    while not self._stop_requested.is_set():
                        self._read_all(sock)
                        self.rounds += 1
            except OSError:
                self._stop_requested.wait(0.02)  # the broker is away
            except Exception as error:
                self.wrong.append(repr(error))
                return

    def _read_all(self, sock: socket.socket) -> None:
        offset = earliest(sock, self._topic)
        while not self._stop_requested.is_set():
            error, end, data = fetch(sock, self._topic, offset)
            if error == OFFSET_OUT_OF_RANGE:
                self.out_of_range += 1
                return
            if error:
                self.wrong.append(f"error {error} at offset {offset}")
                return
            following = self._note(offset, data)
            if following == offset:
                return
            offset = following
            if offset >= end:
                return

    def _note(self, offset: int, data: bytes) -> int:
        for header, batch in iterate_batches(data):
            for record in records_of(header, bytes(batch)):
                self.records += 1
                known = self._seen.setdefault(record.offset, record)
                if known != record:
                    self.wrong.append(f"offset {record.offset} was {known} and is {record}")
            offset = max(offset, header.next_offset)
        return offset


class Probe(threading.Thread):
    """Asks ApiVersions again and again on one connection and notes how long each answer took, in milliseconds."""

    def __init__(self, port: int) -> None:
        super().__init__(name="probe")
        self._port = port
        self._stop_requested = threading.Event()
        self.latencies: list[float] = []

    def run(self) -> None:
        pace = threading.Event()
        with wire.connect(self._port, timeout=60) as sock:
            while not self._stop_requested.is_set():
                began = time.perf_counter()
                if not wire.ask(sock, wire.api_versions()):
                    self.latencies.append(1e9)
                    return
                self.latencies.append((time.perf_counter() - began) * 1000)
                pace.wait(0.005)

    def stop(self) -> float:
        """The p99 of everything so far."""
        self._stop_requested.set()
        self.join(60)
        return sorted(self.latencies)[int(len(self.latencies) * 0.99)]
