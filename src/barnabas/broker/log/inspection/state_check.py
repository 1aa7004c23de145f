"""Producers and leader epochs as the batches tell them, beside what snapshots and the epoch checkpoint say.

Role: replays every batch, as recovery does, and compares on the way. Thread: the caller's. Lock: none.

A snapshot may know fewer producers than the batches (they expire) and some whose batches are gone (retention); what both know must agree.
"""

from __future__ import annotations

from barnabas.broker.log.checkpoints import LEADER_EPOCH_FILE
from barnabas.broker.log.epochs import LeaderEpochs
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection.batch_scan import Batch
from barnabas.broker.log.producer_state import CorruptSnapshot, ProducerEntry, ProducerStates
from barnabas.broker.log.txn_index import AbortedEntry
from barnabas.records.batch import HEADER_SIZE, NO_PRODUCER_ID
from barnabas.records.control import parse_end_marker

MOST_PRODUCERS = 1_000_000
"""Producers that are followed; a log with more of them is checked without."""
_LARGEST_SNAPSHOT = 64 * MOST_PRODUCERS
_FEW_BATCHES = 16
"""So many in a row may have a wrong leader epoch; more of them with the same new one are believed."""

EpochCorrections = list[tuple[int, int]]
"""(position of a batch, the leader epoch that it should have), of one segment"""


class ProducerReplay:
    """The state of producers after the batches so far."""

    def __init__(self, partition: str) -> None:
        self.states = ProducerStates(partition)
        self._from = 0
        self.knows_open_from = 0
        """Transactions that began before this offset may be open without being known here."""
        self.given_up = False

    def begin_with(self, states: ProducerStates, offset: int) -> None:
        """The log begins at an offset, and this snapshot tells what was before."""
        self.states, self._from, self.knows_open_from = states, offset, 0

    def begin_without(self, offset: int) -> None:
        """The log begins at an offset, and what was before is not known."""
        self.states, self._from, self.knows_open_from = ProducerStates(self.states.partition), offset, offset

    def note(self, batch: Batch, data: bytes) -> AbortedEntry | None:
        """Do what the batch did when it was appended; the transaction that it aborted. CorruptBatch for a marker that is none."""
        header = batch.header
        if header.producer_id == NO_PRODUCER_ID or self.given_up:
            return None
        marker = parse_end_marker(header, data[HEADER_SIZE:]) if header.control else None
        aborted = self.states.aborted_by(header, marker, header.base_offset) if marker else None
        self.states.update(header, header.base_offset, 0, marker)
        if len(self.states.entries) > MOST_PRODUCERS:
            self.given_up = True
            self.states.clear()
        return aborted

    def contradiction(self, snapshot: ProducerStates) -> str:
        """What a snapshot of this very moment says that the batches do not; or an empty text."""
        if self.given_up:
            return ""
        for producer_id, claimed in snapshot.entries.items():
            known = self.states.entries.get(producer_id)
            text = _difference(claimed, known, self._from)
            if text:
                return f"producer {producer_id}: {text}"
        return ""


def _difference(claimed: ProducerEntry, known: ProducerEntry | None, first_offset: int) -> str:
    last = claimed.batches[-1] if claimed.batches else None
    if known is None:
        if last is None or last.last_offset < first_offset:
            return ""
        return f"the snapshot knows a batch that ends at offset {last.last_offset}, the log has none of this producer"
    if claimed.epoch != known.epoch:
        return f"epoch {claimed.epoch} in the snapshot, {known.epoch} in the log"
    seen = known.batches[-1] if known.batches else None
    if last is not None and seen is not None and (last.last_sequence, last.last_offset) != seen[1:4:2]:
        return (
            f"sequence {last.last_sequence} at offset {last.last_offset} in the snapshot, "
            f"{seen.last_sequence} at {seen.last_offset} in the log"
        )
    return ""


def read_snapshot(files: FileSystem, path: str, partition: str) -> ProducerStates:
    """CorruptSnapshot or OSError when it cannot be used."""
    with files.open_read_only(path) as file:
        size = files.size(file.fileno())
    if size > _LARGEST_SNAPSHOT:
        raise CorruptSnapshot(f"{size} bytes are too many for a snapshot")
    states = ProducerStates(partition)
    states.load(files.read_file(path), 0)
    return states


def usable_snapshot(files: FileSystem, path: str, partition: str) -> ProducerStates | None:
    try:
        return read_snapshot(files, path, partition)
    except (CorruptSnapshot, OSError):
        return None


class EpochWatch:
    """Leader epochs may only grow from batch to batch, and must be what the checkpoint says for their offset."""

    def __init__(self, entries: list[tuple[int, int]], certain_below: int) -> None:
        self._known = LeaderEpochs(entries)
        self._certain_below = certain_below
        self._newest = -1
        self._confirmed = self.contradictions = 0
        """Batches whose leader epoch is what the checkpoint says, and those where it is not."""
        self._contradicting = -1
        self._agree = True
        """Whether the epochs of the latter, and those that are unknown to the checkpoint, ascend."""
        self._unconfirmed: list[tuple[EpochCorrections, int, int]] = []
        """The last batches, when they are newer than the checkpoint: where to note their correction, and that."""
        self.seen = LeaderEpochs([])
        """What a checkpoint that is made from the batches alone would hold."""

    def problem(self, batch: Batch, corrections: EpochCorrections) -> str:
        """What is wrong, or an empty text; and, where the checkpoint knows better, what must be corrected in the batch's segment."""
        epoch = batch.header.partition_leader_epoch
        expected = self._known.of_offset(batch.header.base_offset)
        newer = epoch > self._known.latest and batch.header.last_offset >= self._certain_below
        text = ""
        if expected >= 0 and epoch != expected and not newer:
            corrections.append((batch.position, expected))
            self.contradictions += 1
            self._agree = self._agree and epoch >= self._contradicting
            self._contradicting = epoch
            return f"the leader epoch is {epoch}, {LEADER_EPOCH_FILE} says {expected}"
        if epoch < self._newest:
            text = f"the leader epoch goes back from {self._newest} to {epoch}: one of the two is wrong"
            self._agree = False
            self._correct_newer(epoch == expected)
        if newer and expected >= 0:
            self._unconfirmed = [*self._unconfirmed[-_FEW_BATCHES:], (corrections, batch.position, expected)]
        self._confirmed += epoch == expected
        self._newest = epoch
        self.seen.assign(epoch, batch.header.base_offset)
        return text

    @property
    def first_known(self) -> int:
        """From which offset on the checkpoint knows an epoch; -1 when it knows none."""
        return self._known.entries[0][1] if self._known.entries else -1

    @property
    def refutes_checkpoint(self) -> bool:
        """No batch is of the epoch that the checkpoint says, and they agree with each other: it is the checkpoint that is wrong."""
        return self.contradictions > 1 and not self._confirmed and self._agree

    def _correct_newer(self, confirmed: bool) -> None:
        """A batch of an older epoch follows, and the checkpoint confirms it or not: if so, those before it were never of a newer one."""
        if confirmed and len(self._unconfirmed) <= _FEW_BATCHES:
            for corrections, position, expected in self._unconfirmed:
                corrections.append((position, expected))
        self._unconfirmed = []
