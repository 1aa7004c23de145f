"""Which transactional writes of clients were found to belong to a transaction that the coordinator knows.

Role: the partition's half of transaction verification (KIP-890). Before a transaction's first write the request layer takes a guard
from the log, asks the coordinator, and appends with the guard. An end marker in between makes the guard worthless, so that a late answer
of the coordinator cannot let a write slip behind the end of its transaction.
Thread: whoever appends. Lock: the log's append lock guards everything here.
"""

from __future__ import annotations


class VerificationGuard:
    """Proof, by identity, that a verification began and that nothing has ended it since."""

    __slots__ = ()


ONGOING = VerificationGuard()
"""The guard of a transaction that has written to the partition already: the log itself knows that it is open."""


class PendingVerification:
    """A verification of one producer: the guard, and the lowest sequence that waits for it, which must be written first."""

    __slots__ = ("began_ms", "epoch", "guard", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, now_ms: int) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.began_ms = now_ms

    def note(self, epoch: int, sequence: int) -> None:
        """Another request of the same producer waits for the same verification."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)

    def __repr__(self) -> str:
        return f"PendingVerification(epoch={self.epoch}, lowest_sequence={self.lowest_sequence})"
