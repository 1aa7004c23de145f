"""Files that a crash, a disk or somebody else has damaged: rows 4 to 8 of faults.md, on real files.

What is true is what the log said before the damage, and a plain reading of the batches that were written.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.places import Place
from barnabas.broker.log.results import AppendOrigin, IsolationLevel
from barnabas.broker.log.segment import Segment
from barnabas.records.batch import iterate_batches
from tests.broker.log.damage import DAMAGES as DAMAGED_BATCHES
from tests.broker.log.damage import STOPS, damage_and_read
from tests.broker.log.stores import Store, region_bytes
from tests.faults.conftest import Report
from tests.records.batches import NOW_MS, Batch, batch, end_marker, record_times, sequenced, transactional

COMMITTED = IsolationLevel.READ_COMMITTED
COORDINATOR = AppendOrigin.COORDINATOR
MIN_REBUILD_MB_PER_SECOND = 100


def state_of(log: PartitionLog) -> tuple[list[tuple[object, ...]], int, int]:
    """What the log knows of producers and transactions, as far as its snapshots keep it."""
    rows = [
        (producer, entry.epoch, entry.next_sequence, entry.batches[-1] if entry.batches else None, entry.last_timestamp,
         entry.coordinator_epoch, entry.txn_first_offset)
        for producer, entry in log._producers.entries.items()
    ]  # fmt: skip
    return sorted(rows), log._producers.first_unstable, log.last_stable_offset


def aborted_of(log: PartitionLog) -> list[tuple[int, ...]]:
    return [tuple(entry) for segment in log.segments for entry in segment.txn_index.all_entries()]


class History:
    """A random workload on one log: producers with and without transactions, plain batches, rolls, checkpoints, a copy on crash."""

    def __init__(self, path: Path, rng: random.Random, steps: int, checkpoints: bool = True) -> None:
        self.rng = rng
        self._checkpoints = checkpoints
        self.store = Store(path, segment_bytes=rng.choice([700, 1500, 4000]), index_interval_bytes=rng.choice([0, 200]))
        self._sequences: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._open: set[int] = set()
        self._coordinator_epoch = 0
        for number in range(steps):
            self._step(NOW_MS + number // 3 + rng.randint(-2, 2))
        self.store.abandon()

    def _step(self, time: int) -> None:
        rng, log = self.rng, self.store.log
        what = rng.random()
        producer = rng.randint(1, 4)
        if what < 0.25:
            log.append(batch(rng.randint(1, 3), rng.randint(0, 90), time))
        elif what < 0.55:
            self._append(producer, False)
        elif what < 0.75:
            self._append(producer + 10, True)
        elif what < 0.9 and self._open:
            ending = rng.choice(sorted(self._open))
            self._open.discard(ending)
            self._coordinator_epoch += rng.random() < 0.2
            marker = end_marker(ending, rng.random() < 0.5, self._epochs[ending], self._coordinator_epoch)
            log.append(marker, origin=COORDINATOR)
        elif what < 0.93:
            self._epochs[producer] = self._epochs.get(producer, 0) + 1
            self._sequences[producer] = 0
        elif what < 0.97 and self._checkpoints:
            log.flush()
            for directory in self.store.manager.directories:
                directory.write_checkpoints()

    def _append(self, producer: int, in_transaction: bool) -> None:
        epoch, sequence = self._epochs.setdefault(producer, 0), self._sequences.setdefault(producer, 0)
        count = self.rng.randint(1, 3)
        if in_transaction:
            self.store.log.append(transactional(producer, sequence, count, epoch), origin=COORDINATOR)
            self._open.add(producer)
        else:
            self.store.log.append(sequenced(producer, epoch, sequence, count))
        self._sequences[producer] = sequence + count


# Row 4: the last batch is torn.


LAST_BATCHES: dict[str, Callable[[], memoryview]] = {
    "plain": lambda: batch(3, 40),
    "idempotent": lambda: sequenced(1, 0, 3, 2),
    "in a transaction": lambda: transactional(9, 2, 2),
    "abort marker": lambda: end_marker(9, False),
    "commit marker": lambda: end_marker(9, True, 0, 5),
}


def test_every_cut_of_the_last_batch_recovers_to_the_batch_before(tmp_path: Path, full: bool, report: Report) -> None:
    """faults.md row 4: offsets are right, the next append continues, producers and transactions are as after a replay."""
    cuts = 0
    for kind, last in LAST_BATCHES.items():
        for segment_bytes in (10_000, 420):
            path = tmp_path / f"{kind} {segment_bytes}"
            cuts += _cut_everywhere(path, last, segment_bytes, step=1 if full else 11)
    report(4, f"{cuts} cuts of {len(LAST_BATCHES)} kinds of batches, all recovered to the batch before")


def _cut_everywhere(path: Path, last: Callable[[], memoryview], segment_bytes: int, step: int) -> int:
    store = Store(path / "data", segment_bytes=segment_bytes)
    _fill(store)
    before, end = state_of(store.log), store.log.log_end_offset
    store.log.append(last(), origin=COORDINATOR)
    after, final_end = state_of(store.log), store.log.log_end_offset
    store.abandon()
    torn = store.log.segments[-1]
    whole = Path(torn.path).read_bytes()
    cuts = range(_places(torn)[-1].position, len(whole), step)
    for cut in cuts:
        copy = path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path / "data", copy)
        (copy / "t-0" / Path(torn.path).name).write_bytes(whole[:cut])
        with Store(copy, segment_bytes=segment_bytes) as again:
            assert (again.log.log_end_offset, state_of(again.log)) == (end, before), f"{path.name}: cut at {cut}"
            assert again.log.append(last(), origin=COORDINATOR).base_offset == end
            assert (again.log.log_end_offset, state_of(again.log)) == (final_end, after)
            assert Path(again.log.segments[-1].path).read_bytes() == whole
    return len(cuts)


def _fill(store: Store) -> None:
    for number in range(3):
        store.log.append(sequenced(1, 0, number))
        store.log.append(batch(2, 30))
    store.log.append(transactional(9, 0, 2), origin=COORDINATOR)


# Row 5: flipped bytes and garbage.


def test_garbage_and_flipped_bytes_leave_exactly_the_prefix(tmp_path: Path, full: bool, report: Report) -> None:
    """faults.md row 5: never an exception at the start, and nothing before the first bad batch changes."""
    rounds, cut_bytes = (1000 if full else 40), 0
    for seed in range(rounds):
        rng = random.Random(seed)
        path = tmp_path / str(seed)
        store = History(path, rng, 25, checkpoints=False).store
        files = {segment.base_offset: Path(segment.path).read_bytes() for segment in store.log.segments}
        victim = rng.choice(store.log.segments)
        damaged, at = _damage(rng, victim)
        expected = next((place.base_offset for place in _places(victim) if at < place.position + place.size), None)
        if expected is None:
            expected = _end_of(store, victim)
        Path(victim.path).write_bytes(damaged)
        for index in store.directory.glob("*index"):
            if rng.random() < 0.3:
                index.write_bytes(rng.randbytes(rng.randint(0, 300)))
        store.open()
        assert store.log.log_end_offset == expected, f"seed {seed}"
        for segment in store.log.segments:
            kept = Path(segment.path).read_bytes()
            whole = segment.base_offset < victim.base_offset
            assert kept == (files[segment.base_offset] if whole else files[segment.base_offset][: len(kept)])
        cut_bytes += sum(map(len, files.values())) - store.log.size
        assert store.log.append(batch(1)).base_offset == expected
        store.close()
        shutil.rmtree(path)
    report(5, f"{rounds} damaged logs: 0 exceptions, {rounds} exact prefixes, {cut_bytes} bytes cut")


def _places(segment: Segment) -> list[Place]:
    return list(segment.places(0, segment.size))


def _end_of(store: Store, segment: Segment) -> int:
    later = [each.base_offset for each in store.log.segments if each.base_offset > segment.base_offset]
    return later[0] if later else store.log.log_end_offset


def _damage(rng: random.Random, segment: Segment) -> tuple[bytes, int]:
    """Changed bytes, and where the change begins. Offset and leader epoch of a batch, which the broker sets, are outside its checksum:
    a change of them alone cannot be seen."""
    data = Path(segment.path).read_bytes()
    if not data or rng.random() < 0.3:
        return data + rng.randbytes(rng.randint(1, 500)), len(data)
    at = rng.randrange(len(data))
    if rng.random() < 0.3:
        length = rng.randint(17, 200)
        return data[:at] + rng.randbytes(length) + data[at + length :], at
    unseen = {place.position + byte for place in _places(segment) for byte in (*range(8), *range(12, 16))}
    at = rng.choice([each for each in range(len(data)) if each not in unseen])
    return data[:at] + bytes([data[at] ^ rng.randint(1, 255)]) + data[at + 1 :], at


# Row 6: indexes.


DAMAGES = ("cut", "cut inside an entry", "zeros", "removed", "random", "another log's")


def test_look_ups_are_right_whatever_happened_to_the_indexes(tmp_path: Path, full: bool, report: Report) -> None:
    """faults.md row 6, after a clean stop and after a crash."""
    looked_up = logs = 0
    for how in DAMAGES:
        for number in range(40 if full else 4):
            rng = random.Random(f"{how} {number}")
            store = _store_of_times(tmp_path / f"{how} {number}", rng)
            truth = list(_records(store.log))
            store.close() if number % 2 else store.abandon()
            for path in sorted(store.directory.glob("*index")):
                if rng.random() < 0.7:
                    _damage_index(rng, path, how)
            store.open()
            looked_up += _check_look_ups(store.log, truth)
            logs += 1
            store.close()
    report(6, f"{looked_up} look-ups of offsets and times in {logs} logs with damaged indexes, all right")


def _store_of_times(path: Path, rng: random.Random) -> Store:
    """Batches of one to three records whose times go up and down."""
    store = Store(path, segment_bytes=6000, index_interval_bytes=300)
    for number in range(80):
        time = NOW_MS + number * 5 + rng.randint(-20, 20)
        times = [time + rng.randint(0, 9) for _ in range(rng.randint(1, 3))]
        store.log.append(Batch([b"v" * rng.randint(0, 150)] * len(times), timestamps=times).build())
    return store


def _records(log: PartitionLog) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of every record, from the beginning of every file."""
    for segment in log.segments:
        for header, data in iterate_batches(Path(segment.path).read_bytes()):
            for time, offset in record_times(data, header):
                yield offset, time


def _damage_index(rng: random.Random, path: Path, how: str) -> None:
    data = path.read_bytes()
    entry = {".index": 8, ".timeindex": 12, ".txnindex": 34}[path.suffix]
    count = len(data) // entry
    if how == "cut":
        path.write_bytes(data[: entry * rng.randint(0, count)])
    elif how == "cut inside an entry":
        path.write_bytes(data[: max(1, entry * rng.randint(0, count) - rng.randint(1, entry - 1))])
    elif how == "zeros":
        path.write_bytes(bytes(len(data)))
    elif how == "removed":
        path.unlink()
    elif how == "random":
        path.write_bytes(rng.randbytes(entry * max(1, count)))
    else:
        others = sorted(each for each in path.parent.glob(f"*{path.suffix}") if each != path)
        path.write_bytes(rng.choice(others).read_bytes() if others else b"")


def _check_look_ups(log: PartitionLog, truth: list[tuple[int, int]]) -> int:
    for offset, _ in truth:
        (first, *_) = iterate_batches(region_bytes(log.read(offset, 1)), verify=False)
        assert first[0].base_offset <= offset <= first[0].last_offset
    times = sorted({time for _, time in truth})
    for wanted in [times[0] - 1, *times, *(time + 1 for time in times)]:
        expected = next(((time, offset) for offset, time in truth if time >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (found.timestamp, found.offset) == (expected or (-1, -1))
    largest = max(time for _, time in truth)
    found = log.offset_for_timestamp(-3)
    assert (found.timestamp, found.offset) == (largest, next(offset for offset, time in truth if time == largest))
    return len(truth) + 2 * len(times) + 2


def test_aborted_transactions_are_known_whatever_happened_to_their_index(
    tmp_path: Path, full: bool, report: Report
) -> None:
    """faults.md row 6, the transaction index, after a clean stop and after a crash of a log that was never flushed."""
    rounds, entries = (300 if full else 24), 0
    for seed in range(rounds):
        rng = random.Random(seed)
        store = History(tmp_path / str(seed), rng, 60, checkpoints=False).store
        truth = aborted_of(store.log)
        entries += len(truth)
        if seed % 4:
            store.open()
            store.close()
        for path in sorted(store.directory.glob("*.txnindex")):
            _damage_index(rng, path, DAMAGES[seed % len(DAMAGES)])
        store.open()
        assert aborted_of(store.log) == truth, f"seed {seed}"
        store.close()
    report(6, f"{entries} aborted transactions in {rounds} logs with damaged transaction indexes, all known again")


REBUILD = """
import sys, time
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.segment import Segment
segment = Segment(FileSystem(), sys.argv[1], 0, int(sys.argv[2]))
times = []
for _ in range(3):
    began = time.perf_counter()
    segment.rebuild_indexes(4096)
    times.append(time.perf_counter() - began)
print(segment.size / min(times) / 1e6)
"""


@pytest.mark.serial
@pytest.mark.parametrize("value_size", [900, 16_000])
def test_an_index_is_rebuilt_quickly(tmp_path: Path, report: Report, value_size: int) -> None:
    """faults.md row 6: at least 100 MB per second, in the form of the kernel that users have."""
    made = bytes(batch(1, value_size))
    path = tmp_path / "00000000000000000000.log"
    with path.open("wb") as file:
        for offset in range((64 << 20) // len(made)):
            file.write(offset.to_bytes(8) + made[8:])
    command = [sys.executable, "-c", REBUILD, str(tmp_path), str(path.stat().st_size)]
    environment = {**os.environ, "BARNABAS_NATIVE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    rate = float(done.stdout)
    report(
        6,
        f"indexes of batches of {len(made)} bytes are rebuilt at {rate:.0f} MB/s (at least {MIN_REBUILD_MB_PER_SECOND})",
    )
    assert rate >= MIN_REBUILD_MB_PER_SECOND


# Row 7: bit rot. What clients see of it is in test_bit_rot.py.


@pytest.mark.timeout(600)
def test_one_damaged_batch_costs_no_other(tmp_path: Path, full: bool, report: Report) -> None:
    """faults.md row 7: header and records; also the row's neighbour, an unclean stop, which must not cut below the recovery point."""
    rounds = 60 if full else 3
    for damage, stop in product(DAMAGED_BATCHES, STOPS):
        for seed in range(rounds):
            path = tmp_path / f"{damage.__name__} {stop} {seed}"
            damage_and_read(path, damage, stop, seed)
            shutil.rmtree(path)
    count = rounds * len(DAMAGED_BATCHES) * len(STOPS)
    report(7, f"{count} logs with a damaged batch, after each kind of stop: 0 other records lost, 0 offsets used twice")


# Row 8: snapshots.


def test_the_state_of_producers_survives_the_loss_of_snapshots(tmp_path: Path, full: bool, report: Report) -> None:
    """faults.md row 8: corrupt, stale or missing snapshots, and what is restored is what replaying everything gives."""
    rounds, damaged = (1000 if full else 40), 0
    for seed in range(rounds):
        rng = random.Random(seed)
        history = History(tmp_path / str(seed), rng, rng.randint(5, 80))
        store = history.store
        truth, aborted, end = state_of(store.log), aborted_of(store.log), store.log.log_end_offset
        damaged += _damage_snapshots(rng, store.directory)
        store.open()
        assert (state_of(store.log), aborted_of(store.log), store.log.log_end_offset) == (truth, aborted, end), (
            f"seed {seed}"
        )
        store.close()
        damaged += _damage_snapshots(rng, store.directory)
        store.open()
        assert state_of(store.log) == truth, f"seed {seed}, after a clean stop"
        store.close()
        shutil.rmtree(tmp_path / str(seed))
    report(8, f"{rounds} histories, {damaged} snapshots damaged or removed: the state equals that of the writer in all")


def _damage_snapshots(rng: random.Random, directory: Path) -> int:
    """Change, cut, empty or remove some snapshots; the newest ones more often, so that a stale one is the newest."""
    count = 0
    for path in sorted(directory.glob("*.snapshot"), reverse=True):
        if rng.random() < 0.4:
            break
        data = path.read_bytes()
        how = rng.randrange(4)
        if how == 0:
            path.unlink()
        elif how == 1:
            path.write_bytes(data[: rng.randrange(len(data))])
        elif how == 2:
            at = rng.randrange(len(data))
            path.write_bytes(data[:at] + bytes([data[at] ^ rng.randint(1, 255)]) + data[at + 1 :])
        else:
            path.write_bytes(rng.randbytes(rng.randint(0, 200)))
        count += 1
    return count
