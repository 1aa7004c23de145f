"""CRC-32C against the library that Google made, in every way the kernel can compute it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.kernel.forms import Kernel


@pytest.fixture(scope="module", params=["TABLES", "INSTRUCTION", "FOLDING"])
def every_way(request: pytest.FixtureRequest, kernel: Kernel) -> Iterator[None]:
    kernel.checksum.use_at_most(getattr(kernel.checksum, request.param))
    yield
    kernel.checksum.use_at_most(kernel.checksum.FOLDING)


@pytest.mark.usefixtures("every_way")
@given(data=st.binary(max_size=200), cut=st.tuples(st.integers(0, 200), st.integers(0, 200)))
def test_any_part_has_the_checksum_of_a_copy(kernel: Kernel, data: bytes, cut: tuple[int, int]) -> None:
    start, end = sorted(min(place, len(data)) for place in cut)
    assert kernel.checksum.crc32c(data, start, end) == google_crc32c.value(data[start:end])


@pytest.mark.usefixtures("every_way")
def test_long_inputs_of_every_length_around_the_lanes(kernel: Kernel) -> None:
    data = random.Random(7).randbytes(20_000)
    for length in [*range(500, 780), *range(1500, 1580), *range(3060, 3090), 4096, 9999, 20_000]:
        assert kernel.checksum.crc32c(data, 0, length) == google_crc32c.value(data[:length])
        assert kernel.checksum.crc32c(data, 20_000 - length, 20_000) == google_crc32c.value(data[20_000 - length :])


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (3, 2), (0, 11), (11, 11)])
def test_what_is_outside_the_data_is_refused(kernel: Kernel, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a part of 10 bytes"):
        kernel.checksum.crc32c(b"x" * 10, start, end)


def test_only_bytes_are_taken(kernel: Kernel) -> None:
    if kernel.compiled:
        with pytest.raises(TypeError):
            kernel.checksum.crc32c(None, 0, 0)
