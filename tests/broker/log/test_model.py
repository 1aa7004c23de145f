"""Random histories of appends, reads, flushes, deletes, restarts and crashes equal a plain list."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.broker.log.config import LogConfig
from tests.broker.log.stores import Store, headers_of, read_all
from tests.records.batches import NOW_MS, Batch, sequenced


class LogMachine(RuleBasedStateMachine):
    """The model: the base offset, count and time of every batch, the start, and the next sequence of two producers."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="barnabas-model-"))
        self.store = Store(self.path, segment_bytes=900, index_interval_bytes=100)
        self.batches: list[tuple[int, int, int]] = []
        self.end = 0
        self.start = 0
        self.sequences = {1: 0, 2: 0}
        self.last: dict[int, tuple[int, int, int]] = {}

    @rule(count=st.integers(1, 5), size=st.integers(0, 120), time=st.integers(0, 1000))
    def append(self, count: int, size: int, time: int) -> None:
        records = Batch([b"v" * size] * count, timestamp=NOW_MS + time).build()
        if len(records) <= 900:
            assert self.store.log.append(records).base_offset == self.end
            self._note(count, NOW_MS + time)

    @rule(producer=st.sampled_from([1, 2]), count=st.integers(1, 3))
    def append_sequenced(self, producer: int, count: int) -> None:
        sequence = self.sequences[producer]
        result = self.store.log.append(sequenced(producer, 0, sequence, count))
        assert (result.base_offset, result.duplicate) == (self.end, False)
        self.last[producer] = (sequence, count, self.end)
        self.sequences[producer] += count
        self._note(count, NOW_MS)

    @rule(producer=st.sampled_from([1, 2]))
    def repeat_the_last(self, producer: int) -> None:
        if producer in self.last:
            sequence, count, offset = self.last[producer]
            result = self.store.log.append(sequenced(producer, 0, sequence, count))
            assert (result.base_offset, result.duplicate) == (offset, True)

    def _note(self, count: int, time: int) -> None:
        self.batches.append((self.end, count, time))
        self.end += count

    @rule(data=st.data(), max_bytes=st.integers(0, 2000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        if self.start < self.end:
            offset = data.draw(st.integers(self.start, self.end - 1))
            first = headers_of(self.store.log.read(offset, max_bytes))[0]
            assert any(base == first.base_offset <= offset < base + count for base, count, _ in self.batches), (
                f"offset {offset} gave the batch at {first.base_offset}"
            )

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        self.start = max(self.start, offset)
        assert self.store.log.delete_records_before(offset) == self.start

    @rule()
    def flush(self) -> None:
        self.store.log.flush()
        assert self.store.log.durable_offset == self.end

    @rule()
    def checkpoint(self) -> None:
        for directory in self.store.manager._dirs:
            directory.write_checkpoints()

    @rule()
    def clear_away(self) -> None:
        self.store.manager.housekeeper.run_due()

    @rule()
    def restart(self) -> None:
        self.store.reopen()

    @rule()
    def crash(self) -> None:
        self.store.crash()

    @rule(segment_bytes=st.integers(400, 2000))
    def reconfigure(self, segment_bytes: int) -> None:
        self.store.config = LogConfig(segment_bytes=max(900, segment_bytes), index_interval_bytes=100)
        self.store.log.update_config(self.store.config)

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        log = self.store.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)

    def teardown(self) -> None:
        try:
            wanted = [base for base, count, _ in self.batches if base + count > self.start]
            assert [header.base_offset for header in read_all(self.store.log, 700)] == wanted
            first = next(
                (time, base) for base, _, time in [*self.batches, (-1, 0, -1)] if base >= self.start or base < 0
            )
            if first[0] >= 0 and self.start in wanted:
                assert self.store.log.offset_for_timestamp(0).offset == self.start
        finally:
            self.store.close()
            shutil.rmtree(self.path)


LogMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
TestRandomHistories = LogMachine.TestCase
