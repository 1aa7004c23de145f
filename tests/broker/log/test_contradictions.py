"""Files of a log that contradict each other: the one that cannot be right is not believed, and no good batch is deleted for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.results import AbortedTransaction, AppendOrigin, IsolationLevel, LogDirNotWritable
from tests.broker.log.damage import Written, change, check_reads, written
from tests.broker.log.stores import Store, read_all
from tests.faults.faulty_disk import FaultyDisk, Rule
from tests.records.batches import batch, end_marker, sequenced, transactional


def segments_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def filled(path: Path, batches: int = 12) -> tuple[Store, list[Written]]:
    """Some segments of four batches each, nothing of it known to be flushed."""
    store = Store(path, segment_bytes=600)
    for number in range(batches):
        store.log.append(batch(1, 60, number))
    return store, written(store.log)


class TestStart:
    def test_a_start_behind_the_end_is_not_believed_after_a_clean_stop(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, truth = filled(tmp_path)
        store.close()
        (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1000\n")
        store.open()
        assert "the start 1000 is not believed: the log ends at 12" in caplog.text
        assert (store.log.log_start_offset, store.log.log_end_offset) == (0, 12)
        check_reads(store.log, truth, set())
        assert store.reopen().log_start_offset == 0
        store.close()

    def test_an_emptied_segment_is_missed(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        store, truth = filled(tmp_path)
        store.close()
        first, second = segments_of(store.directory)[:2]
        first.write_bytes(b"")
        store.open()
        assert f"{first} is empty: offsets 0 to {int(second.stem) - 1} are lost" in caplog.text
        assert store.log.log_end_offset == truth[-1].following
        store.close()


class TestAboveTheRecoveryPoint:
    def test_good_batches_behind_a_bad_one_are_kept_in_side_files(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, truth = filled(tmp_path)
        store.abandon()
        bad = next(each for each in truth if each.position and each.path == truth[5].path)
        change(bad, 70, bytes([bad.data[70] ^ 1]))
        behind = [each.data for each in truth if each.first > bad.first]
        store.open()
        assert store.log.log_end_offset == bad.first
        sides = sorted(store.directory.glob("*.damaged"))
        assert sides[0].name == f"{bad.path.name}.{bad.position}.damaged"
        kept = b"".join(side.read_bytes() for side in sides)
        assert kept[len(bad.data) :] == b"".join(behind)
        assert "the good batches in it are kept in" in caplog.text
        assert store.log.append(batch(1)).base_offset == bad.first
        assert len(read_all(store.reopen())) == truth.index(bad) + 1
        assert sorted(store.directory.glob("*.damaged")) == sides
        store.close()

    def test_without_room_for_a_side_file_nothing_is_cut_off(self, tmp_path: Path) -> None:
        store, truth = filled(tmp_path)
        store.abandon()
        bad = next(each for each in truth if each.position and each.path == truth[5].path)
        change(bad, 70, bytes([bad.data[70] ^ 1]))
        before = {file: file.read_bytes() for file in segments_of(store.directory)}
        store.files = FaultyDisk(Rule(("pwritev",), "*.damaged.tmp", error="ENOSPC"))
        with pytest.raises(LogDirNotWritable, match=rf"must leave {bad.path} cannot be kept .* No space left"):
            store.open()
        assert {file: file.read_bytes() for file in segments_of(store.directory)} == before
        assert not list(store.directory.glob("*.damaged*")), "half a copy takes no room"
        store.files = FileSystem()
        store.open()
        assert store.log.log_end_offset == bad.first
        assert list(store.directory.glob("*.damaged"))
        store.close()

    def test_a_torn_last_batch_leaves_no_side_file(self, tmp_path: Path) -> None:
        store, truth = filled(tmp_path)
        store.abandon()
        last = truth[-1]
        last.path.write_bytes(last.path.read_bytes()[:-1])
        store.open()
        assert store.log.log_end_offset == last.first
        assert not list(store.directory.glob("*.damaged"))
        store.close()

    def test_the_first_batch_of_a_segment_is_bad(self, tmp_path: Path) -> None:
        """Its file stays the one that is written to."""
        store, truth = filled(tmp_path)
        store.abandon()
        bad = next(each for each in truth if not each.position and each.first)
        change(bad, 70, bytes([bad.data[70] ^ 1]))
        store.open()
        assert store.log.append(batch(1)).base_offset == bad.first
        assert (store.directory / f"{bad.path.name}.0.damaged").exists()
        assert len(read_all(store.reopen())) == truth.index(bad) + 1
        store.close()

    def test_of_segments_that_overlap_only_the_second_goes(self, tmp_path: Path) -> None:
        store, truth = filled(tmp_path)
        store.abandon()
        second = segments_of(store.directory)[1]
        copy = second.with_name(f"{int(second.stem) + 1:020}.log")
        shutil.copy(second, copy)
        store.open()
        check_reads(store.log, truth, set())
        assert not copy.exists()
        assert copy.with_name(copy.name + ".damaged").exists()
        store.close()

    def test_a_wrong_offset_hides_no_good_batch(self, tmp_path: Path) -> None:
        """No checksum covers it; the batches behind it contradict it. The log ends before it, and they are kept."""
        store = Store(tmp_path)
        for number in range(20):
            store.log.append(batch(1, 60, number))
        truth = written(store.log)
        store.abandon()
        change(truth[10], 6, b"\x04")
        store.open()
        assert store.log.log_end_offset == 10
        (side,) = store.directory.glob("*.damaged")
        assert side.read_bytes()[len(truth[10].data) :] == b"".join(each.data for each in truth[11:])
        check_reads(store.log, truth[:10], set())
        assert store.log.append(batch(1)).base_offset == 10
        store.close()


class TestAtTheRecoveryPoint:
    def test_good_batches_behind_damage_on_both_sides_are_kept(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One bad sector over the last batch below the point and the first above it."""
        store = Store(tmp_path)
        for number in range(20):
            store.log.append(batch(1, 60, number))
            if number == 9:
                store.note_recovery_point()
        store.log.flush()
        truth = written(store.log)
        store.abandon()
        for bad in truth[9:11]:
            change(bad, 0, bytes(len(bad.data)))
        store.open()
        assert store.log.log_end_offset == 10
        (side,) = store.directory.glob("*.damaged")
        assert side.read_bytes() == b"".join(each.data for each in truth[11:])
        assert f"the good batches in it are kept in {side.name}" in caplog.text
        check_reads(store.log, truth[:10], {9})
        store.close()

    def test_a_wrong_offset_at_the_end_of_a_segment_costs_that_batch_only(self, tmp_path: Path) -> None:
        """The next segment, which is good, contradicts it."""
        store, truth = filled(tmp_path, 4)
        store.note_recovery_point()
        for number in range(4, 12):
            store.log.append(batch(1, 60, number))
        truth = written(store.log)
        assert truth[3].path != truth[4].path
        store.abandon()
        change(truth[3], 6, b"\x04")
        store.open()
        assert store.log.log_end_offset == 12
        check_reads(store.log, truth, {3})
        assert not list(store.directory.glob("*.damaged"))
        check_reads(store.reopen(), truth, {3})
        store.close()

    @pytest.mark.parametrize("bad", [5, 8])
    def test_a_wrong_offset_says_nothing_of_its_producer(self, tmp_path: Path, bad: int) -> None:
        store = Store(tmp_path)
        for sequence in range(10):
            store.log.append(sequenced(7, 0, sequence))
        store.note_recovery_point()
        truth = written(store.log)
        store.abandon()
        change(truth[bad], 6, b"\x04")
        store.open()
        assert store.log.append(sequenced(7, 0, 9)).base_offset == 9, "it was sent again"
        assert store.log.append(sequenced(7, 0, 10)).base_offset == 10
        store.close()

    @pytest.mark.parametrize("aborted", [True, False])
    def test_a_damaged_first_batch_of_a_transaction_uncovers_no_other(self, tmp_path: Path, aborted: bool) -> None:
        store = Store(tmp_path)
        store.log.append(batch())
        for sequence in range(30):
            store.log.append(transactional(7, sequence), origin=AppendOrigin.COORDINATOR)
        if aborted:
            store.log.append(end_marker(7, False), origin=AppendOrigin.COORDINATOR)
        store.note_recovery_point()
        first = written(store.log)[1]
        store.abandon()
        change(first, 65, bytes([first.data[65] ^ 1]))
        store.open()
        if aborted:
            assert store.log.read(2, 1 << 20, isolation=IsolationLevel.READ_COMMITTED).aborted == (
                AbortedTransaction(7, 2),
            )
        else:
            assert store.log.last_stable_offset == 2
        store.close()


@pytest.mark.parametrize("number", [2**62, 2**63 - 1, 10**20 - 1])
def test_a_file_with_an_impossible_offset_is_none_of_the_logs(tmp_path: Path, number: int) -> None:
    store, truth = filled(tmp_path, 2)
    store.abandon()
    stray = store.directory / f"{number:020}.log"
    for path in (stray, stray.with_name(stray.name + ".swap")):
        path.write_bytes(truth[0].data)
    store.open()
    assert store.log.log_end_offset == 2
    check_reads(store.reopen(), truth, set())
    store.close()


def two_producers(path: Path) -> tuple[Store, Path]:
    """Producer 7 wrote the first segments, producer 8 the last batches; stopped in order. The snapshot of the end."""
    store = Store(path, segment_bytes=600)
    for sequence in range(10):
        store.log.append(sequenced(7, 0, sequence))
    for sequence in range(3):
        store.log.append(sequenced(8, 0, sequence))
    store.close()
    return store, max(store.directory.glob("*.snapshot"))


def retried(log: PartitionLog) -> list[int]:
    """Where the last batches of both producers are, as somebody who sends them again is told."""
    return [log.append(sequenced(7, 0, 9)).base_offset, log.append(sequenced(8, 0, 2)).base_offset]


class TestSnapshots:
    def test_an_older_one_under_the_newest_name_is_noticed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, newest = two_producers(tmp_path)
        older = sorted(store.directory.glob("*.snapshot"))[0]
        shutil.copy(older, newest)
        store.open()
        assert retried(store.log) == [9, 12]
        assert "it does not know the batch of producer 8 that ends at 12" in caplog.text
        assert store.log.log_end_offset == 13
        store.close()

    def test_another_partitions_is_noticed(self, tmp_path: Path) -> None:
        store, newest = two_producers(tmp_path / "one")
        other = Store(tmp_path / "other")
        for sequence in range(13):
            other.log.append(sequenced(9, 0, sequence))
        other.close()
        shutil.copy(max(other.directory.glob("*.snapshot")), newest)
        store.open()
        assert retried(store.log) == [9, 12]
        assert store.log.log_end_offset == 13
        store.close()

    def test_a_damaged_last_batch_is_no_reason_to_mistrust_it(self, tmp_path: Path) -> None:
        """The snapshot knows better than a header whose checksum is wrong."""
        store, _ = two_producers(tmp_path)
        store.open()
        last = written(store.log)[-1]
        store.close()
        change(last, 43, (99).to_bytes(8))
        store.open()
        assert retried(store.log) == [9, 12]
        store.close()

    def test_one_whose_producer_expired_costs_one_reading(self, tmp_path: Path) -> None:
        store, _ = two_producers(tmp_path)
        store.open()
        store.clock.advance(10)
        assert store.log.expire_producers(1000) == 2
        store.close()
        store.open()
        assert retried(store.log) == [9, 12], "known again, which harms nobody"
        store.close()

    def test_it_knows_what_lost_batches_said_of_their_producers(self, tmp_path: Path) -> None:
        """The last segments are gone after a clean stop: who sends their batches again is told where they were."""
        store, _ = two_producers(tmp_path)
        for lost in segments_of(store.directory)[1:]:
            lost.unlink()
        store.open()
        assert store.log.log_end_offset == 13
        assert retried(store.log) == [9, 12]
        store.close()


def test_epochs_that_begin_behind_the_end_are_read_from_the_segments(tmp_path: Path) -> None:
    store, truth = filled(tmp_path)
    store.close()
    (store.directory / "leader-epoch-checkpoint").write_text("0\n1\n5 9999999\n")
    store.open()
    assert store.log.end_offset_for_epoch(0).end_offset == truth[-1].following
    store.log.append(batch(1))
    store.close()
    assert (store.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
