"""The table of keys and the choice of what stays, in both forms, against a dict."""

from __future__ import annotations

import os
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.batches import record
from tests.records.kernel.forms import Kernel

SEED = bytes(range(16))
Pair = tuple[bytes | None, bytes | None]

PAIRS = st.lists(
    st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=5)), min_size=1, max_size=40
)


def packed(pairs: list[Pair], times: list[int] | None = None) -> bytes:
    return b"".join(
        record(number, value, times[number] if times else number, key) for number, (key, value) in enumerate(pairs)
    )


def spans(kernel: Kernel, pairs: list[Pair], data: bytes) -> array[int]:
    found: array[int] = kernel.record_layout.record_spans(data, 0, len(pairs))
    return found


def note(kernel: Kernel, table: bytearray, pairs: list[Pair], base: int = 0, first: int = 0, room: int = 99) -> object:
    data = packed(pairs)
    return kernel.compaction.note_keys(table, SEED, room, data, spans(kernel, pairs, data), (base, first))


@given(batches=st.lists(PAIRS, max_size=4), first=st.integers(0, 30))
def test_the_table_has_the_newest_offset_of_each_key(kernel: Kernel, batches: list[list[Pair]], first: int) -> None:
    table, model, base = bytearray(24 * 211), {}, 0
    for pairs in batches:
        known = set(model)
        model |= {key: base + i for i, (key, _) in enumerate(pairs) if key is not None and base + i >= first}
        assert note(kernel, table, pairs, base, first, 210) == (len(set(model) - known), -1)
        base += len(pairs)
    for pairs in batches:
        for key, _ in pairs:
            if key is not None:
                assert kernel.compaction.offset_of(table, SEED, key) == model.get(key, -1)
    assert kernel.compaction.offset_of(table, SEED, b"a key that is never there") == -1


@given(pairs=PAIRS, noted=st.integers(-1, 45), tombstones=st.booleans(), base=st.sampled_from([0, 5, 2**40]))
def test_what_stays_is_what_a_dict_says(
    kernel: Kernel, pairs: list[Pair], noted: int, tombstones: bool, base: int
) -> None:
    table = bytearray(24 * 61)
    note(kernel, table, pairs, base)
    data = packed(pairs)
    newest = {key: number for number, (key, _) in enumerate(pairs)}
    kept = kernel.compaction.newest_records(
        table, SEED, data, spans(kernel, pairs, data), (base, base + noted), tombstones
    )
    wanted = [
        number > noted or (key is not None and newest[key] == number and (value is not None or tombstones))
        for number, (key, value) in enumerate(pairs)
    ]
    stays = [number for number, stay in enumerate(wanted) if stay]
    assert list(kept.keep) == [int(stay) for stay in wanted]
    assert kept.left == len(stays)
    assert kept.tombstones == any(pairs[number][1] is None for number in stays)
    assert not stays or kept.max_timestamp_delta == max(stays)
    assert kept.without_key == sum(key is None for key, _ in pairs[: noted + 1])


def test_a_full_table_says_where_it_was_full(kernel: Kernel) -> None:
    pairs: list[Pair] = [(b"a", b""), (b"b", b""), (b"a", b""), (b"c", b""), (b"a", b"")]
    table = bytearray(24 * 5)
    assert note(kernel, table, pairs, base=10, room=2) == (2, 13)
    assert [kernel.compaction.offset_of(table, SEED, key) for key in (b"a", b"b", b"c")] == [12, 11, -1]


def test_a_table_that_is_almost_full_is_still_searched_to_the_end(kernel: Kernel) -> None:
    pairs: list[Pair] = [(b"%d" % number, b"") for number in range(100)]
    table = bytearray(24 * 101)
    assert note(kernel, table, pairs, room=100) == (100, -1)
    assert [kernel.compaction.offset_of(table, SEED, b"%d" % number) for number in range(101)] == [*range(100), -1]


@given(pairs=PAIRS, by=st.sampled_from([0, 1, -1, 63, -64, 2**20, -(2**40), 2**41]))
def test_timestamps_move_and_nothing_else_does(kernel: Kernel, pairs: list[Pair], by: int) -> None:
    times = [number * 50 for number in range(len(pairs))]
    data = packed(pairs, times)
    moved = kernel.compaction.move_timestamps(data, spans(kernel, pairs, data), by)
    assert moved == packed(pairs, [time + by for time in times])


def test_the_compiled_hash_is_siphash(kernel: Kernel) -> None:
    """The reference's own values, for the key 00 to 0f."""
    if not kernel.compiled:
        pytest.skip("the plain form has another hash")
    known = {0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45"}
    for length, text in known.items():
        table = bytearray(24 * 3)
        note(kernel, table, [(bytes(range(length)), b"")])
        assert bytes.fromhex(text) in bytes(table)


def test_keys_of_every_length_have_different_hashes(kernel: Kernel) -> None:
    pairs: list[Pair] = [(bytes(length), b"") for length in range(70)]
    assert note(kernel, bytearray(24 * 211), pairs) == (70, -1)


def test_two_seeds_put_keys_elsewhere(kernel: Kernel) -> None:
    pairs: list[Pair] = [(b"key", b"")]
    data = packed(pairs)
    tables = [bytearray(24 * 211), bytearray(24 * 211)]
    for table in tables:
        kernel.compaction.note_keys(table, os.urandom(16), 9, data, spans(kernel, pairs, data), (0, 0))
    assert tables[0] != tables[1]


@pytest.mark.parametrize(
    ("table", "seed", "numbers"),
    [(24, 16, 7), (49, 16, 7), (72, 15, 7), (72, 16, 6)],
    ids=["one slot", "half a slot", "short seed", "cut spans"],
)
def test_what_does_not_fit_together_is_refused(kernel: Kernel, table: int, seed: int, numbers: int) -> None:
    data = packed([(b"k", b"v")])
    places = spans(kernel, [(b"k", b"v")], data)[:numbers]
    with pytest.raises(ValueError):
        kernel.compaction.note_keys(bytearray(table), bytes(seed), 1, data, places, (0, 0))


def test_spans_outside_of_the_data_are_refused(kernel: Kernel) -> None:
    data = packed([(b"k", b"v")])
    places = spans(kernel, [(b"k", b"v")], data)
    for start, length in ((-1, 1), (len(data), 1), (3, len(data))):
        places[4], places[5] = start, length
        with pytest.raises(ValueError):
            kernel.compaction.note_keys(bytearray(72), SEED, 1, data, places, (0, 0))
    places = spans(kernel, [(b"k", b"v")], data)
    places[1] = len(data) + 1
    with pytest.raises(ValueError):
        kernel.compaction.move_timestamps(data, places, 5)
