"""IncrementalAlterConfigs (key 44), versions 0-1 (KIP-339).

Set, delete, append to or subtract from single configs of topics, of this broker, or of all brokers (empty name). Broker
settings take effect at once: thread counts, connection limits, topic defaults. A bad value: 40; a broker setting that
cannot change at run time: 42. Each resource is changed as a whole or not at all, and answered by itself.
Thread: handler (writes the catalog, resizes thread pools, never inline). Lock: none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis import config_resources
from barnabas.broker.apis.error_texts import ErrorTexts
from barnabas.broker.settings import BROKER
from barnabas.broker.topic_settings import TOPIC, topic_default
from barnabas.config import Config, ConfigKey, ConfigType, to_text
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def handle(request: Request, broker: BrokerServices) -> IncrementalAlterConfigsResponse:
    body: IncrementalAlterConfigsRequest = request.body
    edits = partial(_edit, broker.config)
    refused = config_resources.change_each(body.resources, broker, body.validate_only, edits)
    texts = ErrorTexts()
    return IncrementalAlterConfigsResponse(
        responses=[_answer(*outcome, texts) for outcome in zip(body.resources, refused, strict=True)]
    )


def weigh(body: IncrementalAlterConfigsRequest, broker: BrokerServices) -> int:
    return len(body.resources) * config_resources.CHANGE


def error_response(
    body: IncrementalAlterConfigsRequest, version: int, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    texts = ErrorTexts()
    return IncrementalAlterConfigsResponse(responses=[_answer(resource, error, texts) for resource in body.resources])


def _edit(config: Config, resource: AlterConfigsResource) -> config_resources.ConfigEdit:
    _check_operations(resource.configs)
    return _Change(resource, config).apply


def _check_operations(operations: Sequence[AlterableConfig]) -> None:
    config_resources.refuse_duplicate_keys([operation.name for operation in operations])
    for operation in operations:
        if operation.config_operation not in (SET, DELETE, APPEND, SUBTRACT):
            text = f"Unknown operation type {operation.config_operation} for {operation.name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if operation.value is None and operation.config_operation != DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {operation.name}")


class _Change:
    """The operations of one resource; `apply` may be called under the owner's lock, it only computes."""

    __slots__ = ("_config", "_is_topic", "_operations")

    def __init__(self, resource: AlterConfigsResource, config: Config) -> None:
        self._operations = resource.configs
        self._is_topic = resource.resource_type == config_resources.TOPIC
        self._config = config

    def apply(self, before: Mapping[str, str]) -> dict[str, str]:
        after = dict(before)
        for operation in self._operations:
            name, value = operation.name, operation.value or ""
            if operation.config_operation == SET:
                after[name] = value
            elif operation.config_operation == DELETE:
                after.pop(name, None)
            else:
                row = self._list_row(operation)
                items = _items(after[name] if name in after else self._default(row))
                after[name] = _edit_list(items, _items(value), operation.config_operation)
        return after

    def _list_row(self, operation: AlterableConfig) -> ConfigKey:
        row = (TOPIC if self._is_topic else BROKER).rows.get(operation.name)
        if row is None or row.type is not ConfigType.LIST:
            verb = "append to" if operation.config_operation == APPEND else "subtract from"
            text = f"Can't {verb} key {operation.name} because its type is not LIST."
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        return row

    def _default(self, row: ConfigKey) -> str:
        """What the list holds as long as it is not set on the resource itself."""
        value = topic_default(self._config, row) if self._is_topic else self._config[row.name]
        return to_text(value) or ""


def _items(text: str) -> list[str]:
    """The parts of a list; whether they are allowed is said by the check of the whole."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _edit_list(items: Sequence[str], edits: Sequence[str], operation: int) -> str:
    known = frozenset(items if operation == APPEND else edits)
    if operation == APPEND:
        return ",".join([*items, *(edit for edit in edits if edit not in known)])
    return ",".join(item for item in items if item not in known)


def _answer(
    resource: AlterConfigsResource, error: KafkaError | None, texts: ErrorTexts
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error else 0,
        error_message=texts.of(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
