"""ListConfigResources (key 74), versions 0-1 (KIP-1142).

The names of resources that have configs. v0 lists client-metrics subscriptions only, which do not exist here; v1 lists by
type, no type meaning all. A type that is not known: 35.
Thread: any. Lock: none, reads one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

KNOWN_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(request: Request, broker: BrokerServices) -> ListConfigResourcesResponse:
    body: ListConfigResourcesRequest = request.body
    if request.header.api_version == 0:
        return ListConfigResourcesResponse()
    wanted = set(body.resource_types) or set(KNOWN_TYPES)
    unknown = wanted.difference(KNOWN_TYPES)
    if unknown:
        text = f"Resource types {sorted(unknown)} are not supported"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    resources = []
    if TOPIC in wanted:
        names = broker.catalog.snapshot.sorted_names
        resources += [ConfigResource(resource_name=name, resource_type=TOPIC) for name in names]
    if BROKER in wanted:
        resources.append(ConfigResource(resource_name=str(broker.node.id), resource_type=BROKER))
    return ListConfigResourcesResponse(config_resources=resources)


def weigh(body: ListConfigResourcesRequest, broker: BrokerServices) -> int:
    return len(broker.catalog.snapshot.topics)


def error_response(body: ListConfigResourcesRequest, version: int, error: KafkaError) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error.code)
