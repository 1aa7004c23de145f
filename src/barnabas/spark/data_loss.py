"""Records that are gone before they were read: an error, or a warning and going on.

Role: the one place that decides by `failOnDataLoss` and words the message: which partition, what was wanted, what is there, the
likely cause and what to do. Gaps that compaction and transaction markers leave are no loss and never come here.
Thread: any. Lock: none.
"""

from __future__ import annotations

import logging

from barnabas.errors import BarnabasError
from barnabas.spark.offsets import Partition, name_of

__all__ = ["DataLoss", "DataLossPolicy"]

log = logging.getLogger(__name__)

_TO_GO_ON = "To go on without these records, set failOnDataLoss to false"
_TO_FAIL = "To fail in such cases, set failOnDataLoss to true"


class DataLoss(BarnabasError):
    """Records that a query had to read are not there any more."""


class DataLossPolicy:
    """See the file header; picklable."""

    def __init__(self, fail: bool) -> None:
        self.fail = fail

    def report(self, what: str) -> None:
        """Raises `DataLoss`, or warns."""
        if self.fail:
            raise DataLoss(f"{what}. {_TO_GO_ON}.")
        log.warning("%s. Going on without. %s.", what, _TO_FAIL)

    def overtaken(self, partition: Partition, wanted: int, earliest: int) -> None:
        """The records from `wanted` on were deleted; what is there begins at `earliest`."""
        self.report(
            f"{name_of(partition)}: the records from offset {wanted} to {earliest} are gone, the earliest is now {earliest}. "
            "Likely cause: retention (retention.ms, retention.bytes) or DeleteRecords removed them before the query read them"
        )

    def shrunk(self, partition: Partition, wanted: int, latest: int) -> None:
        """The partition ends before the place where the query has been."""
        self.report(
            f"{name_of(partition)}: the query is at offset {wanted}, but the partition ends at {latest}. "
            "Likely cause: the topic was deleted and created anew, or the broker lost its disk"
        )
