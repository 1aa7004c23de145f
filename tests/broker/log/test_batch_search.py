"""Finding the next good batch behind damaged bytes, wherever it is, with a bounded effort whatever the bytes pretend to be."""

from __future__ import annotations

from barnabas.broker.log.batch_search import BatchSearch, FoundBatch, Offsets
from barnabas.records.batch import HEADER, HEADER_SIZE, PREFIX_SIZE, crc32c

ANY = Offsets(0, 2**31 - 1)
EFFORT = 4
"""How many times the size of the file all searches together may look at; with the first megabyte on top."""


def batch(offset: int, size: int, claimed: int | None = None) -> bytes:
    """A good batch of one record, or one that claims another length and is none."""
    body = bytes(size - HEADER_SIZE)
    fields = (0, 0, 0, 0, -1, -1, -1, 1)
    length = (size if claimed is None else claimed) - 12
    unsigned = HEADER.pack(offset, length, 0, 2, 0, *fields) + body
    return HEADER.pack(offset, length, 0, 2, crc32c(unsigned[PREFIX_SIZE:]), *fields) + body


class CountedFile:
    """Bytes that know how many of them were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes_read = 0

    def read(self, position: int, length: int) -> bytes:
        part = self.data[position : position + length]
        self.bytes_read += len(part)
        return part

    def search(self) -> BatchSearch:
        return BatchSearch(self.read, len(self.data))


def position_of(found: FoundBatch | None) -> int:
    assert found is not None
    return found.position


def test_a_batch_is_found_at_any_distance() -> None:
    for distance in (1, 15, 16, 17, 4_000, 4_096, 4_097, 70_000, 200_000):
        file = CountedFile(b"\xff" * distance + batch(7, 100))
        assert position_of(file.search().batch_behind(0, ANY)) == distance, distance


def test_a_hole_of_one_batch_costs_little() -> None:
    file = CountedFile(b"\xff" * 200 + batch(7, 100) + bytes(5_000_000))
    assert position_of(file.search().batch_behind(0, ANY)) == 200
    assert file.bytes_read < 10_000


def test_every_second_batch_is_damaged_and_all_others_are_found() -> None:
    good = [batch(2 * number + 1, 120) for number in range(3_000)]
    file = CountedFile(b"".join(b"\xff" * 120 + each for each in good))
    search = file.search()
    for number in range(3_000):
        assert position_of(search.batch_behind(number * 240, ANY)) == number * 240 + 120


def test_bytes_that_pretend_to_be_batches_cost_a_bounded_effort_all_together() -> None:
    """Each header claims the rest of the file, whose checksum would have to be compared for each of them."""
    count, size = 4_000, 100
    total = count * size
    file = CountedFile(b"".join(batch(n, size, claimed=total - n * size) for n in range(count)))
    search = file.search()
    for number in range(count):
        search.batch_behind(number * size, ANY)
    budget = EFFORT * total + (1 << 20)
    headers_and_chunks = count * (2 * HEADER_SIZE + 3 * 4_096)
    assert file.bytes_read < budget + headers_and_chunks + total
    assert position_of(BatchSearch(file.read, total).batch_at((count - 1) * size, ANY)) == (count - 1) * size


def test_a_batch_at_a_known_place_is_compared_also_when_the_effort_is_used_up() -> None:
    """Else a good batch before a hole would be taken for a damaged one."""
    file = CountedFile(b"".join(batch(n, 100, claimed=100 * (400 - n)) for n in range(400)) + batch(400, 100))
    search = file.search()
    while search.batch_behind(0, Offsets(0, 399)) is not None:
        pass
    for _ in range(60):
        search.batch_behind(0, Offsets(0, 399))
    assert not search.lies(400 * 100, Offsets(400, 2**31 - 1))
