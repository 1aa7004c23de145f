"""Log directories for the tests of the inspection: a clean one with a bit of everything, and ways to look at it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection import targets
from barnabas.broker.log.inspection.repair import RepairOptions, RepairReport, repair_target
from barnabas.broker.log.inspection.verify import TargetReport, verify_target
from barnabas.records.batch import parse_header
from tests.broker.log.stores import Store, headers_of
from tests.records.batches import NOW_MS, Batch, sequenced

SMALL = {"segment_bytes": 2500, "index_interval_bytes": 300}


class Spot(NamedTuple):
    """Where a batch is."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def make_log(path: Path, batches: int = 60) -> Path:
    """A log directory, stopped in order, with the partition t-0: two producers' batches, plain ones of every codec, three segments."""
    with Store(path, **SMALL) as store:
        for number in range(batches):
            if number % 2:
                store.log.append(sequenced(7 + number % 4, 0, number // 4 * 3, 3))
            else:
                values = [f"value {number}".encode(), b"", b"\xff\x00"]
                store.log.append(Batch(values, timestamp=NOW_MS + number, codec=number // 2 % 5).build())
    return path


def segments(path: Path) -> list[Path]:
    return sorted((path / "t-0").glob("*.log"))


def spots(segment: Path) -> list[Spot]:
    """Every batch of an undamaged segment."""
    data = segment.read_bytes()
    found, position = [], 0
    while position < len(data):
        header = parse_header(data, position)
        found.append(Spot(position, header.size, header.base_offset, header.last_offset))
        position += header.size
    return found


def flip(file: Path, bit: int) -> None:
    """Turn one bit of a file; a second time turns it back."""
    with file.open("r+b") as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ 1 << bit % 8]))


def overwrite(file: Path, position: int, data: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(position)
        stream.write(data)


def verify(path: Path, files: FileSystem | None = None) -> TargetReport:
    files = files or FileSystem()
    return verify_target(files, targets.find(files, str(path)), lambda _: None)


def repair(path: Path, **options: bool) -> RepairReport:
    files = FileSystem()
    return repair_target(files, targets.find(files, str(path)), RepairOptions(**options), lambda _: None)


def damage(report: TargetReport | RepairReport) -> list[tuple[str, str]]:
    """(code, file) of all damage, the directory's first."""
    findings = [*report.directory.findings, *(each for part in report.partitions for each in part.findings)]
    return [(each.code.value, each.file) for each in findings if each.severity.value == "damage"]


def fingerprint(path: Path) -> dict[str, str]:
    """Names and contents of everything below a directory, without the lock file."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name != ".lock"]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def offsets_read_by_the_broker(path: Path) -> list[int]:
    """Base offsets of all batches that a broker with this directory serves; it must start and accept a batch."""
    with Store(path, **SMALL) as store:
        found, offset, end = [], store.log.log_start_offset, store.log.log_end_offset
        assert store.log.append(Batch([b"new"]).build()).base_offset == end
        while offset < end:
            for header in headers_of(store.log.read(offset, 100_000)):
                if header.next_offset > offset:
                    found.append(header.base_offset)
                    offset = header.next_offset
    return [offset for offset in found if offset < end]


class ReadOnlyFiles(FileSystem):
    """Fails whoever writes."""

    def _refuse(self, *_: object, **__: object) -> None:
        raise AssertionError("an inspection wrote something")

    open = pwritev = truncate = sync = make_directory = sync_directory = rename = remove = write_file = lock = _refuse
