"""AlterConfigs (key 33), versions 0-2. Old: the given configs replace all that were set on the resource.

Topics, and the dynamic settings of this broker or of all brokers. Each resource is answered by itself.
Thread: handler (writes the catalog, never inline). Lock: none of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis import config_resources
from barnabas.broker.apis.error_texts import ErrorTexts
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_configs import (
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
    refused = config_resources.change_each(body.resources, broker, body.validate_only, _edit)
    texts = ErrorTexts()
    return AlterConfigsResponse(
        responses=[_answer(*outcome, texts) for outcome in zip(body.resources, refused, strict=True)]
    )


def weigh(body: AlterConfigsRequest, broker: BrokerServices) -> int:
    return len(body.resources) * config_resources.CHANGE


def error_response(body: AlterConfigsRequest, version: int, error: KafkaError) -> AlterConfigsResponse:
    texts = ErrorTexts()
    return AlterConfigsResponse(responses=[_answer(resource, error, texts) for resource in body.resources])


def _edit(resource: AlterConfigsResource) -> config_resources.ConfigEdit:
    config_resources.refuse_duplicate_keys([config.name for config in resource.configs])
    configs = {}
    for config in resource.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {config.name}")
        configs[config.name] = config.value
    return lambda _: configs


def _answer(
    resource: AlterConfigsResource, error: KafkaError | None, texts: ErrorTexts
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error else 0,
        error_message=texts.of(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
