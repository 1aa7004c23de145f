"""DescribeCluster (key 60), versions 0-2 (KIP-700).

This broker, which is also the controller. v1 endpoint type (KIP-919): only brokers (1) can be asked for here; 2 is the
controllers' and gets 114, anything else 115. v2 fenced brokers (KIP-1073): there are none.
Thread: any. Lock: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.authorized_operations import cluster_operations
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

BROKERS, CONTROLLERS = 1, 2


def handle(request: Request, broker: BrokerServices) -> DescribeClusterResponse:
    body: DescribeClusterRequest = request.body
    if body.endpoint_type == CONTROLLERS:
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    if body.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {body.endpoint_type}")
    node = broker.node
    host, port = node.endpoint(request.connection.listener)
    return DescribeClusterResponse(
        cluster_id=broker.catalog.snapshot.cluster_id,
        controller_id=node.id,
        brokers=[DescribeClusterBroker(broker_id=node.id, host=host, port=port, rack=node.rack)],
        cluster_authorized_operations=cluster_operations(body.include_cluster_authorized_operations),
    )


def error_response(body: DescribeClusterRequest, version: int, error: KafkaError) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=error.code, error_message=error.message)
