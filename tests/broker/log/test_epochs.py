"""Leader epochs: Kafka's rules for the end of an epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.log.epochs import LeaderEpochs
from barnabas.broker.log.results import EpochEndOffset
from tests.broker.log.stores import Store, read_all
from tests.records.batches import batch


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 5)), (2, (2, 5)), (3, (2, 5)), (4, (4, 9)), (5, (5, 20)), (6, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_begins(asked: int, answer: tuple[int, int]) -> None:
    epochs = LeaderEpochs([(2, 0), (4, 5), (5, 9)])
    expected = EpochEndOffset(*answer)
    if asked == 0:
        expected = EpochEndOffset(0, 0)  # older than all: it ends where the log begins
    assert epochs.end_offset(asked, 20) == expected


def test_no_epoch_is_known_without_entries() -> None:
    assert LeaderEpochs([]).end_offset(0, 5) == EpochEndOffset(-1, -1)


def test_epochs_shrink_with_the_log() -> None:
    epochs = LeaderEpochs([(0, 0), (1, 10), (2, 20), (3, 30)])
    epochs.truncate(15, 25)
    assert epochs.entries == ((1, 15), (2, 20))
    assert [epochs.of_offset(offset) for offset in (14, 15, 19, 20)] == [-1, 1, 1, 2]


def test_one_node_stays_at_epoch_0_over_restarts(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert store.log.end_offset_for_epoch(0) == EpochEndOffset(0, 0)
        store.log.append(batch(3))
        assert store.reopen().end_offset_for_epoch(0) == EpochEndOffset(0, 3)
        assert store.log.leader_epoch == 0
        assert (store.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_a_new_epoch_is_kept_over_a_flush_and_found_again_without_one(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(3), leader_epoch=0)
        store.log.append(batch(2), leader_epoch=4)
        store.log.flush()
        assert (store.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n4 3\n"
        store.log.append(batch(2), leader_epoch=6)
        log = store.crash()
        assert log.end_offset_for_epoch(4) == EpochEndOffset(4, 5)
        assert log.end_offset_for_epoch(6) == EpochEndOffset(6, 7)


def test_an_older_epoch_is_never_written_after_a_newer_one(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(1), leader_epoch=4)
        store.log.append(batch(1), leader_epoch=0)
        assert [header.partition_leader_epoch for header in read_all(store.log)] == [4, 4]
