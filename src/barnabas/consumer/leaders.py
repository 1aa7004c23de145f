"""Who leads the assigned partitions.

Role: asks the metadata, asks for newer metadata where there is no leader, and finds out that a partition is not there at all.
Thread: the consumer's; no lock.
"""

from __future__ import annotations

from barnabas.client.blocking import BlockingClient
from barnabas.client.metadata import LeaderAndEpoch
from barnabas.client.partition_check import PartitionCheck
from barnabas.consumer.assignment import PartitionState

__all__ = ["Leaders"]


class Leaders:
    """See the file header."""

    def __init__(self, client: BlockingClient) -> None:
        self._metadata = client.metadata
        self._check = PartitionCheck()

    def of(self, state: PartitionState) -> LeaderAndEpoch:
        """Its node is None while there is none; UnknownPartition when waiting does not bring one."""
        found = self._metadata.current_leader(*state.partition)
        if found.node is None:
            self._metadata.request_update()
            self._check.look(self._metadata.fetch(), *state.partition)
        return found
