"""AlterConfigs (key 33), versions 0-2. Old: the given configs replace all that were set on the resource.

Topics, and the dynamic settings of this broker or of all brokers. Each resource is answered by itself.
Thread: handler (writes the catalog, never inline). Lock: none of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.broker.apis import config_resources
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices


def handle(request: Request, broker: BrokerServices) -> AlterConfigsResponse:
    body: AlterConfigsRequest = request.body
    times = Counter((resource.resource_type, resource.resource_name) for resource in body.resources)
    return AlterConfigsResponse(
        responses=[_alter(resource, times, broker, body.validate_only) for resource in body.resources]
    )


def error_response(body: AlterConfigsRequest, version: int, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[_answer(resource, error) for resource in body.resources])


def _alter(
    resource: AlterConfigsResource, times: Counter[tuple[int, str]], broker: BrokerServices, validate_only: bool
) -> AlterConfigsResourceResponse:
    key = (resource.resource_type, resource.resource_name)
    try:
        if times[key] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        configs = _configs(resource.configs)
        config_resources.change(broker, key, lambda _: configs, validate_only)
    except KafkaError as error:
        return _answer(resource, error)
    return _answer(resource, None)


def _configs(given: list[AlterableConfig]) -> dict[str, str]:
    config_resources.refuse_duplicate_keys([config.name for config in given])
    configs = {}
    for config in given:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {config.name}")
        configs[config.name] = config.value
    return configs


def _answer(resource: AlterConfigsResource, error: KafkaError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error else 0,
        error_message=error.message if error else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
