"""rr and fetch never print a rate of errors: against a broker that refuses, closes or sends nonsense they fail and say why."""

from __future__ import annotations

import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench import generators
from bench.generators import GeneratorFailed

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (Debian package gcc)")


@contextmanager
def stub_broker(answer: Callable[[int, bytes], bytes]) -> Iterator[int]:
    """Answers every request on every connection by `answer(api_key, body)`; an empty answer closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                request = stream.read(int.from_bytes(size, "big"))
                body = answer(int.from_bytes(request[:2], "big"), request)
                if not body:
                    return
                connection.sendall(struct.pack(">i", len(body)) + body)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=_quietly(serve), args=(connection,)))
            threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [acceptor, *threads]:
            thread.join(10)


def _quietly(serve: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    def run(connection: socket.socket) -> None:
        try:
            serve(connection)
        except OSError:
            return  # the generator has gone, as it does at the end of its time

    return run


def produce_answer(error: int = 0) -> bytes:
    """Correlation id, one topic "t", one partition: index, error, base offset, append time, log start; throttle time."""
    return struct.pack(">iih1siihqqqi", 1, 1, 1, b"t", 1, 0, error, 0, -1, 0, 0)


def well_behaved(api_key: int, request: bytes) -> bytes:
    return struct.pack(">ihi", 7, 0, 0) if api_key == 18 else produce_answer()


def test_rr_counts_answers_beside_idle_connections_that_had_one_api_versions_each() -> None:
    asked: list[int] = []

    def answer(api_key: int, request: bytes) -> bytes:
        asked.append(api_key)
        return well_behaved(api_key, request)

    with stub_broker(answer) as port:
        seen = generators.rr(port, 2, 0.6, "t", idle=40)
    assert asked.count(18) == 40
    assert seen.per_second > 0
    assert seen.p50_us <= seen.p99_us


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (produce_answer(error=6), "error 6"),
        (b"", "closed by the broker"),
        (produce_answer()[:20], "odd size"),
    ],
    ids=["refused", "closed", "short"],
)
def test_rr_fails_when_a_record_is_not_taken(answer: bytes, complaint: str) -> None:
    with stub_broker(lambda api_key, request: answer) as port, pytest.raises(GeneratorFailed, match=complaint):
        generators.rr(port, 1, 0.6, "t")


def fetch_answer(error: int, records: bytes, high_watermark: int) -> bytes:
    """Correlation id, throttle time, topic "t", partition: index, error, high watermark, last stable offset, no aborted, records."""
    head = struct.pack(">iiih1siihqqii", 1, 0, 1, 1, b"t", 1, 0, error, high_watermark, high_watermark, 0, len(records))
    return head + records


def batch(base_offset: int, last_delta: int) -> bytes:
    """Only what fetch looks at: base offset, length, last offset delta."""
    return struct.pack(">qi", base_offset, 49) + bytes(11) + struct.pack(">i", last_delta) + bytes(34)


def test_fetch_begins_again_at_the_end_of_the_log_until_it_has_its_bytes() -> None:
    offsets: list[int] = []

    def answer(api_key: int, request: bytes) -> bytes:
        [offset] = struct.unpack(">q", request[-12:-4])
        offsets.append(offset)
        return fetch_answer(0, batch(offset, 9), high_watermark=20)

    with stub_broker(answer) as port:
        assert generators.fetch(port, 1, "t", 61 * 5) >= 0
    assert offsets == [0, 10, 0, 10, 0]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [(fetch_answer(1, b"", 0), "error 1 at offset 0"), (fetch_answer(0, b"", 0), "without records")],
    ids=["error", "empty"],
)
def test_fetch_fails_when_it_gets_no_records(answer: bytes, complaint: str) -> None:
    with stub_broker(lambda api_key, request: answer) as port, pytest.raises(GeneratorFailed, match=complaint):
        generators.fetch(port, 1, "t", 1000)
