"""The short way of an append: what the kernel's `check_batch` lets through is what the long way would write, and nothing else."""

from __future__ import annotations

from typing import Any

import google_crc32c
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.record_validation import look_into
from barnabas.broker.log.results import AppendOrigin
from barnabas.errors import KafkaError
from barnabas.records.batch import HEADER, HEADER_SIZE, PREFIX_SIZE, BatchHeader
from tests.records.batches import NOW_MS, Batch, batch, sequenced
from tests.records.kernel.forms import COMPILED, PLAIN, Kernel, load

FORMS = [kernel for kernel in (load(PLAIN), load(COMPILED)) if kernel is not None]
LIMIT = 1 << 20
CONFIG = LogConfig()
EXTREMES = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 40, 2**31 - 1])
LATEST_MS = NOW_MS + CONFIG.timestamp_after_max_ms
LONG_EXTREMES = st.sampled_from([-(2**63), -1, 0, 1, NOW_MS, LATEST_MS, LATEST_MS + 1, 2**63 - 1]) | st.integers(
    -(2**63), 2**63 - 1
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": LONG_EXTREMES,
        "batch_length": EXTREMES,
        "magic": st.sampled_from([0, 1, 2, 3, -1]),
        "attributes": st.sampled_from([0, 1, 4, 7, 8, 16, 32, 64, 128, -1, 0x0100]),
        "last_offset_delta": EXTREMES,
        "base_timestamp": LONG_EXTREMES,
        "max_timestamp": LONG_EXTREMES,
        "producer_id": st.sampled_from([-1, 0, 9]),
        "base_sequence": EXTREMES,
        "record_count": EXTREMES,
    },
)


def found(kernel: Kernel, data: Any, limit: int = LIMIT) -> BatchHeader | None:
    answer: BatchHeader | None = kernel.record_layout.check_batch(data, limit)
    return answer


def long_way(data: memoryview) -> tuple[BatchHeader, bytes] | None:
    try:
        return look_into(data, CONFIG, (AppendOrigin.CLIENT, False), NOW_MS, "t-0")
    except KafkaError:
        return None


def compare_ways(data: memoryview) -> None:
    """A batch that is too new goes the long way however ordinary it is: the kernel has no clock, `append` asks."""
    answers = [found(kernel, data) for kernel in FORMS]
    assert answers[0] == answers[-1], "both forms of the kernel say the same"
    written = long_way(data)
    as_it_came = (BatchHeader._make(HEADER.unpack_from(data)), bytes(data[PREFIX_SIZE:])) if len(data) >= 61 else None
    if answers[0] is not None and answers[0].max_timestamp > LATEST_MS:
        assert written is None, "the long way refuses what `append` does not let through"
    elif answers[0] is not None:
        assert written == as_it_came == (answers[0], bytes(data[PREFIX_SIZE:]))
    elif written is not None and written == as_it_came:
        header = written[0]
        assert header.attributes or header.base_timestamp < 0 or header.max_timestamp < 0, "ordinary, but taken for not"


@given(
    values=st.lists(st.none() | st.binary(max_size=40), max_size=5),
    steps=st.lists(st.integers(-5, 9), min_size=5, max_size=5),
    changes=CHANGES,
)
@example(values=[b"a"], steps=[0] * 5, changes={"base_timestamp": 2**63 - 1, "max_timestamp": -(2**63)})
@example(values=[b"a"], steps=[0] * 5, changes={"base_timestamp": LATEST_MS, "max_timestamp": LATEST_MS})
@example(values=[b"a"], steps=[0] * 5, changes={"base_timestamp": LATEST_MS + 1, "max_timestamp": LATEST_MS + 1})
@example(values=[b"a", b"b"], steps=[0, 3] + [0] * 3, changes={})
def test_a_batch_with_any_header(values: list[bytes | None], steps: list[int], changes: dict[str, int]) -> None:
    times = [NOW_MS + step for step in steps[: len(values)]]
    compare_ways(Batch(values, timestamps=times, changes=changes).build())


@given(data=st.data(), sealed=st.booleans())
def test_a_batch_with_any_bytes_changed(data: st.DataObject, sealed: bool) -> None:
    whole = bytearray(Batch([b"one", None, b"three" * 9], [None, b"k", b""]).build())
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)) | st.just(len(whole)))
    whole = whole[:cut] + data.draw(st.binary(max_size=3))
    if sealed and len(whole) >= HEADER_SIZE:
        whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
        whole[17:21] = google_crc32c.value(bytes(whole[PREFIX_SIZE:])).to_bytes(4, "big")
    compare_ways(memoryview(whole))


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
def test_the_sizes_that_are_ordinary(kernel: Kernel) -> None:
    for made in (batch(), sequenced(5, 0, 7, count=3), batch(count=150, size=100), batch(count=3, size=200_000)):
        header = found(kernel, made)
        assert header is not None
        assert type(header) is BatchHeader
        assert header == HEADER.unpack_from(made)
        assert found(kernel, made, len(made)) == header
        assert found(kernel, made, len(made) - 1) is None
        assert found(kernel, made, 0) is None


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_contiguous_buffer_is_looked_at_where_it_is(kernel: Kernel, kind: type) -> None:
    whole = kind(bytes(batch(count=4)))
    assert found(kernel, whole) is not None
    padded = memoryview(b"x" + bytes(whole) + b"y")
    assert found(kernel, padded[1:-1]) is not None
    assert found(kernel, padded) is None


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
def test_every_flipped_bit_is_seen(kernel: Kernel) -> None:
    whole = bytearray(batch(count=2, size=5))
    for bit in range(len(whole) * 8):
        whole[bit // 8] ^= 1 << bit % 8
        if not 12 * 8 <= bit < 16 * 8:  # the leader epoch is the broker's, the checksum does not cover it
            assert found(kernel, whole) is None
        whole[bit // 8] ^= 1 << bit % 8
    assert found(kernel, whole) is not None
