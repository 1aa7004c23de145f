"""DescribeCluster: one broker, which is its own controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.apis.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.broker.admin_broker import NODE_ID, AdminBroker

VERSIONS = range(3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cluster_is_this_broker_at_the_address_of_the_listener(broker: AdminBroker, version: int) -> None:
    answer = broker.ask(DescribeClusterRequest(), version, listener="OTHER")
    assert (answer.error_code, answer.endpoint_type, answer.controller_id) == (0, 1, NODE_ID)
    assert answer.cluster_id == broker.catalog.snapshot.cluster_id
    (node,) = answer.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (NODE_ID, "10.1.1.1", 19092, "rack-a")
    assert node.is_fenced is False


def test_authorized_operations_are_given_only_when_asked_for(broker: AdminBroker) -> None:
    assert broker.ask(DescribeClusterRequest(), 0).cluster_authorized_operations == NOT_ASKED
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert broker.ask(asked, 0).cluster_authorized_operations == CLUSTER_OPERATIONS == 0b1_1111_1010_0000


def test_other_endpoint_types_are_refused(broker: AdminBroker) -> None:
    controllers = broker.ask(DescribeClusterRequest(endpoint_type=2), 1)
    assert (controllers.error_code, controllers.brokers) == (ErrorCode.MISMATCHED_ENDPOINT_TYPE, [])
    assert broker.ask(DescribeClusterRequest(endpoint_type=9), 1).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
