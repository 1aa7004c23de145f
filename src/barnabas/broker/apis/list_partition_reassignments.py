"""ListPartitionReassignments (key 46), version 0 (KIP-455).

One node has nowhere to move a partition to: the list is always empty.
Thread: any. Lock: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import KafkaError
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices


def handle(request: Request, broker: BrokerServices) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None)


def error_response(
    body: ListPartitionReassignmentsRequest, version: int, error: KafkaError
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
