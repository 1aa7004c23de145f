"""Leader epochs of a partition: which epoch began at which offset.

Role: answers OffsetForLeaderEpoch and names the epoch of an offset. With one node the epoch never has to change and stays 0; a log
that comes from an Apache Kafka cluster may bring more of them, and the newest is kept.
Thread: any. Lock: the log's append lock guards `assign`; readers see a tuple that is replaced whole.
"""

from __future__ import annotations

from bisect import bisect_right

from barnabas.broker.log.results import EpochEndOffset

UNKNOWN = EpochEndOffset(-1, -1)


class LeaderEpochs:
    """(epoch, first offset), both ascending."""

    __slots__ = ("changed", "entries")

    def __init__(self, entries: list[tuple[int, int]]) -> None:
        self.entries = tuple(entries)
        self.changed = False

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """A newer epoch begins at an offset."""
        if epoch > self.latest:
            self.entries = (*self.entries, (epoch, start_offset))
            self.changed = True

    def truncate(self, start_offset: int, end_offset: int) -> None:
        """Forget epochs that have no records any more; the first one left begins at the log's start."""
        kept = [(epoch, start) for epoch, start in self.entries if start <= end_offset]
        while len(kept) > 1 and kept[1][1] <= start_offset:
            del kept[0]
        if kept and kept[0][1] < start_offset:
            kept[0] = (kept[0][0], start_offset)
        if tuple(kept) != self.entries:
            self.entries = tuple(kept)
            self.changed = True

    def of_offset(self, offset: int) -> int:
        slot = bisect_right([start for _, start in self.entries], offset) - 1
        return self.entries[slot][0] if slot >= 0 else -1

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The largest known epoch that is not after the one asked for, and where it ends."""
        entries = self.entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return UNKNOWN
        if epoch == entries[-1][0]:
            return EpochEndOffset(epoch, log_end_offset)
        slot = bisect_right([known for known, _ in entries], epoch)
        next_start = entries[slot][1]
        return EpochEndOffset(entries[slot - 1][0] if slot else epoch, next_start)

    def __repr__(self) -> str:
        return f"LeaderEpochs({list(self.entries)})"
