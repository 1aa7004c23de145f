"""Random histories of keyed writes, tombstones, producers, cleanings, crashes and time: readers always learn the newest values."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.broker.log.compaction import CleaningLimits
from tests.broker.log.compacted import CompactedStore, batches, keyed, latest, records
from tests.records.batches import NOW_MS

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"longer key"])
VALUES = st.none() | st.binary(max_size=60)
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
RETENTION_MS = 60_000
FULL = os.environ.get("BARNABAS_FAULTS") == "full"


class CompactionMachine(RuleBasedStateMachine):
    """The model: the newest value of each key, every record by offset, and the next sequence of two producers."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="barnabas-compaction-"))
        self.store = CompactedStore(
            self.path, segment_bytes=600, delete_retention_ms=RETENTION_MS, file_delete_delay_ms=1000
        )
        self.newest: dict[bytes, bytes | None] = {}
        self.newest_offset: dict[bytes, int] = {}
        self.written: dict[int, tuple[bytes, bytes | None, int]] = {}
        self.sequences = {1: 0, 2: 0}
        self.last: dict[int, tuple[memoryview, int]] = {}

    def _write(self, pairs: list[tuple[bytes, bytes | None]], **batch: Any) -> int:
        time = self.store.clock.wall_ms()
        base = self.store.put(*pairs, timestamp=time, **batch)
        for number, (key, value) in enumerate(pairs):
            self.newest[key] = value
            self.newest_offset[key] = base + number
            self.written[base + number] = (key, value, time)
        return base

    @rule(pairs=PAIRS, codec=st.integers(0, 4))
    def append(self, pairs: list[tuple[bytes, bytes | None]], codec: int) -> None:
        self._write(pairs, codec=codec)

    @rule(pairs=PAIRS, producer=st.sampled_from([1, 2]), codec=st.integers(0, 4))
    def append_sequenced(self, pairs: list[tuple[bytes, bytes | None]], producer: int, codec: int) -> None:
        sequence = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.sequences[producer]}
        time = self.store.clock.wall_ms()
        base = self._write(pairs, codec=codec, **sequence)
        self.last[producer] = (keyed(pairs, timestamp=time, codec=codec, **sequence), base)
        self.sequences[producer] += len(pairs)

    @rule(producer=st.sampled_from([1, 2]))
    def repeat_the_last(self, producer: int) -> None:
        if producer in self.last:
            again, base = self.last[producer]
            result = self.store.log.append(again)
            assert (result.duplicate, result.base_offset) == (True, base)

    @rule()
    def roll(self) -> None:
        self.store.roll()

    @rule()
    def clean(self) -> None:
        self.store.clean()

    @rule(keys=st.integers(2, 12))
    def clean_with_little_memory(self, keys: int) -> None:
        clean = self.store.manager.directories[0].clean_offset(self.store.log)
        end = self.store.clean_with(CleaningLimits(24 * keys, 0.9, 200), clean)
        self.store.manager.directories[0].set_clean_offset(self.store.log, max(end, clean or 0))

    @rule()
    def clean_everything(self) -> None:
        self.store.roll()
        self.store.clean_with()
        left = records(self.store.log)
        assert len({record.key for record in left}) == len(left), "a key is there twice after a whole cleaning"
        for key, value in self.newest.items():
            found = [record for record in left if record.key == key]
            assert found or value is None
            assert all(record.offset == self.newest_offset[key] for record in found)

    @rule(seconds=st.sampled_from([1, 30, 61]))
    def time_passes(self, seconds: int) -> None:
        self.store.clock.advance(seconds)
        self.store.manager.housekeeper.run_due()

    @rule()
    def restart(self) -> None:
        self.store.reopen()

    @rule()
    def crash(self) -> None:
        self.store.crash()

    @invariant()
    def readers_learn_the_newest_values(self) -> None:
        wanted = {key: value for key, value in self.newest.items() if value is not None}
        assert latest(self.store.log) == wanted

    @invariant()
    def what_is_left_is_what_was_written(self) -> None:
        for record in records(self.store.log):
            assert (record.key, record.value, record.timestamp) == self.written[record.offset]
        assert self.store.log.log_end_offset == len(self.written)
        bases = [header.base_offset for header, _ in batches(self.store.log)]
        assert bases == sorted(set(bases))

    @rule(data=st.data())
    def look_up_a_time(self, data: st.DataObject) -> None:
        time = data.draw(st.integers(NOW_MS, self.store.clock.wall_ms()))
        wanted = next((record.offset for record in records(self.store.log) if record.timestamp >= time), -1)
        assert self.store.log.offset_for_timestamp(time).offset == wanted

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.path)


CompactionMachine.TestCase.settings = settings(max_examples=200 if FULL else 30, stateful_step_count=40, deadline=None)
TestCompactionHistories = CompactionMachine.TestCase
