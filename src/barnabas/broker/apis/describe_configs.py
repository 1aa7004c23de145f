"""DescribeConfigs (key 32), versions 1-4.

Every config of a topic or of this broker with its value, source and synonyms (KIP-226); v3 type and documentation
(KIP-569). A secret is shown as null. The broker with the empty name is the cluster-wide default: only what is set there.
Thread: handler. Lock: none, reads snapshots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis import config_resources
from barnabas.broker.apis.config_entries import ConfigEntry, broker_entries, cluster_default_entries, topic_entries
from barnabas.broker.dynamic_config import CLUSTER_DEFAULT
from barnabas.broker.topic_names import check_name
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices


def handle(request: Request, broker: BrokerServices) -> DescribeConfigsResponse:
    body: DescribeConfigsRequest = request.body
    return DescribeConfigsResponse(results=[_describe(resource, body, broker) for resource in body.resources])


def error_response(body: DescribeConfigsRequest, version: int, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_failure(resource, error) for resource in body.resources])


def _describe(
    resource: DescribeConfigsResource, body: DescribeConfigsRequest, broker: BrokerServices
) -> DescribeConfigsResult:
    try:
        entries = _entries(resource, broker)
    except KafkaError as error:
        return _failure(resource, error)
    keys = resource.configuration_keys
    wanted = set(keys) if keys else None  # null or empty: all of them
    return DescribeConfigsResult(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_result(entry, body) for entry in entries if wanted is None or entry.name in wanted],
    )


def _entries(resource: DescribeConfigsResource, broker: BrokerServices) -> list[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == config_resources.TOPIC:
        return _topic(name, broker)
    if resource.resource_type != config_resources.BROKER:
        raise config_resources.unsupported(resource.resource_type)
    if name == CLUSTER_DEFAULT:
        return cluster_default_entries(broker)
    own = broker.dynamic_config.own_resource
    if name != own:
        text = f"Unexpected broker id, expected {own} or empty string, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return broker_entries(broker)


def _topic(name: str, broker: BrokerServices) -> list[ConfigEntry]:
    check_name(name)
    topic = broker.catalog.snapshot.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    return topic_entries(broker, topic.configs)


def _result(entry: ConfigEntry, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=_synonyms(entry) if body.include_synonyms else [],
        config_type=entry.row.type,
        documentation=entry.row.doc if body.include_documentation else None,
    )


def _synonyms(entry: ConfigEntry) -> list[DescribeConfigsSynonym]:
    return [DescribeConfigsSynonym(name=layer.name, value=layer.value, source=layer.source) for layer in entry.synonyms]


def _failure(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
