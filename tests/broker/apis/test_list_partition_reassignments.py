"""ListPartitionReassignments: nothing ever moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.broker.admin_broker import AdminBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def test_the_list_is_empty_whatever_is_asked(broker: AdminBroker) -> None:
    some = [ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0])]
    for topics in (None, [], some):
        answer = broker.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
