"""Lines of files to a topic, in memory that `buffer.memory` bounds, and one line.

Role: reads, parses, sends, counts what was delivered; used by `produce` and `cat -P`.
Thread: the main thread reads and sends; the producer's thread counts. Lock: none, each number has one writer.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import click

from barnabas.cli.contact import reach
from barnabas.cli.progress import progress_bar
from barnabas.cli.record_lines import Headers, Parser
from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.producer import Producer, RecordMetadata

LONG_WORK_BYTES = 16 * 1024 * 1024
DEFAULT_REQUEST_SIZE = 1_048_576
LINE_TO_RECORD = 4
"""A record can be written down in more bytes than it has: hexadecimal doubles it, and JSON has names."""
CHUNK_BYTES = 65_536
INTERRUPTED_SECONDS = 5.0


def largest_line(client: Mapping[str, object]) -> int:
    """The longest line that could become a record that the client sends."""
    with contextlib.suppress(ValueError):  # the producer says what is wrong with the setting
        return LINE_TO_RECORD * max(int(str(client.get("max.request.size", DEFAULT_REQUEST_SIZE))), 1)
    return LINE_TO_RECORD * DEFAULT_REQUEST_SIZE


@dataclass(frozen=True)
class Destination:
    """Where the records go, and what is the same for all of them."""

    topic: str
    parse: Parser
    partition: int | None = None
    headers: Headers | None = None
    line_end: bytes | None = b"\n"
    """None: a file is one record."""
    largest_line: int = LINE_TO_RECORD * DEFAULT_REQUEST_SIZE


class LineTooLong(BarnabasError):
    """A line that no request can carry; it was not read to its end."""


class Deliveries:
    """Counts answers; called by the producer's thread."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.first_error: BaseException | None = None

    def __call__(self, error: BaseException | None, metadata: RecordMetadata | None) -> None:
        if error is None:
            self.delivered += 1
            return
        if self.first_error is None:
            self.first_error = error
        self.failed += 1


def write_files(client: dict[str, object], files: Sequence[str], where: Destination) -> int:
    """Send all lines of the files (standard input without any); how many. Raises when one was not delivered."""
    from barnabas.producer import Producer

    deliveries = Deliveries()
    producer = Producer(client)
    try:
        reach(client)
        for file in files or ("-",):
            _write_file(producer, file, where, deliveries)
            if deliveries.failed:
                break
        producer.close()
    except BaseException:
        # Also Ctrl-C: what was read is given a little time, then it is failed and counted.
        producer.close(INTERRUPTED_SECONDS)
        raise
    if deliveries.failed:
        total = deliveries.delivered + deliveries.failed
        raise BarnabasError(f"{deliveries.failed} of {total} records were not delivered: {deliveries.first_error}")
    return deliveries.delivered


def _write_file(producer: Producer, file: str, where: Destination, deliveries: Deliveries) -> None:
    name = "standard input" if file == "-" else file
    number = 0
    with click.open_file(file, "rb") as stream, progress_bar(name, _size(stream), LONG_WORK_BYTES) as advance:
        try:
            for line in lines(stream, where.line_end, where.largest_line):
                number += 1
                _send(producer, where, line, deliveries)
                advance(len(line) + 1)
                if deliveries.failed:
                    return
        except LineTooLong as error:
            raise BarnabasError(f"{name}, line {number + 1}: {error}") from error
        except BarnabasError as error:
            raise BarnabasError(f"{name}, line {number}: {error}") from error


def _send(producer: Producer, where: Destination, line: bytes, deliveries: Deliveries) -> None:
    value, key, headers, timestamp = where.parse(line)
    if where.headers:
        headers = [*where.headers, *(headers or ())]
    producer.send(where.topic, value, key, headers, where.partition, timestamp, deliveries)


def lines(stream: IO[bytes], end: bytes | None, largest: int) -> Iterator[bytes]:
    """Lines without their end; one that never ends is refused before it fills the memory."""
    if end is None:
        yield _whole(stream, largest)
        return
    if end != b"\n":
        yield from _pieces(stream, end, largest)
        return
    read = stream.readline
    while line := read(largest):
        if line[-1:] == b"\n":
            yield line[:-1]
        elif len(line) >= largest:
            raise LineTooLong(f"it has more than {largest} bytes, which max.request.size rules out")
        else:
            yield line


def _whole(stream: IO[bytes], largest: int) -> bytes:
    data = stream.read(largest)
    if len(data) >= largest:
        raise LineTooLong(f"it has more than {largest} bytes, which max.request.size rules out")
    return data


def _pieces(stream: IO[bytes], end: bytes, largest: int) -> Iterator[bytes]:
    """As `lines`, for another end than the new line."""
    rest = b""
    while chunk := stream.read(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(end)
        yield from whole
        if len(rest) >= largest:
            raise LineTooLong(f"it has more than {largest} bytes, which max.request.size rules out")
    if rest:
        yield rest


def _size(stream: IO[bytes]) -> int:
    """Bytes of a regular file; 0 for everything else."""
    with contextlib.suppress(OSError, ValueError):
        status = os.fstat(stream.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
    return 0
