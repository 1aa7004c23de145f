"""DescribeConfigs (key 32), versions 1-4.

Every config of a topic or of this broker with its value, source and synonyms (KIP-226); v3 type and documentation
(KIP-569). A secret is shown as null. The broker with the empty name is the cluster-wide default: only what is set there.
A resource that is named twice is answered once. Answers are bounded (`barnabas.response.max.bytes`): resources that do not fit any more
are refused with INVALID_REQUEST.
Thread: handler. Lock: none, reads snapshots.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.apis import config_resources
from barnabas.broker.apis.config_entries import ConfigEntry, broker_entries, cluster_default_entries, topic_entries
from barnabas.broker.apis.error_texts import ErrorTexts
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


CONFIGS_PER_RESOURCE = 50
"""About how many there are, for `weigh`."""
CONFIG_BYTES = 16
"""About what a config or a synonym takes in an answer besides its texts."""


def handle(request: Request, broker: BrokerServices) -> DescribeConfigsResponse:
    body: DescribeConfigsRequest = request.body
    answer = _Answer(body, broker)
    return DescribeConfigsResponse(results=[answer.of(resource) for resource in _each_once(body.resources)])


def weigh(body: DescribeConfigsRequest, broker: BrokerServices) -> int:
    return len(body.resources) * CONFIGS_PER_RESOURCE


def error_response(body: DescribeConfigsRequest, version: int, error: KafkaError) -> DescribeConfigsResponse:
    texts = ErrorTexts()
    return DescribeConfigsResponse(
        results=[_failure(resource, error, texts) for resource in _each_once(body.resources)]
    )


def _each_once(resources: Sequence[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """A resource that is named several times is answered once, with all configs that were asked for."""
    joined: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in resources:
        first = joined.setdefault((resource.resource_type, resource.resource_name), resource)
        if first is not resource:
            _add_keys(first, resource.configuration_keys)
    return list(joined.values())


def _add_keys(resource: DescribeConfigsResource, more: list[str] | None) -> None:
    """Null or empty: all of them."""
    keys = resource.configuration_keys
    if keys and more:
        keys.extend(more)
    else:
        resource.configuration_keys = None


Described = list[tuple[DescribeConfigsResourceResult, int]]
"""Configs as they are sent, each with about its size."""


class _Answer:
    """The results of one request, until it is full. Topics with the same configs share theirs."""

    def __init__(self, body: DescribeConfigsRequest, broker: BrokerServices) -> None:
        self._body = body
        self._broker = broker
        self._texts = ErrorTexts()
        self._limit: int = broker.config["barnabas.response.max.bytes"]
        self._room = self._limit
        self._of_topics: dict[Hashable, Described] = {}

    def of(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        try:
            configs = self._configs(resource)
        except KafkaError as error:
            return _failure(resource, error, self._texts)
        return DescribeConfigsResult(
            error_code=0,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=configs,
        )

    def _configs(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        self._check_room()
        keys = resource.configuration_keys
        wanted = set(keys) if keys else None
        found = [pair for pair in self._described(resource) if wanted is None or pair[0].name in wanted]
        self._room -= len(resource.resource_name) + sum(size for _, size in found)
        self._check_room()
        return [result for result, _ in found]

    def _check_room(self) -> None:
        if self._room < 0:
            limit = f"{self._limit} bytes (barnabas.response.max.bytes)"
            text = f"The answer would have more than {limit}: ask for fewer resources at a time."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    def _described(self, resource: DescribeConfigsResource) -> Described:
        if resource.resource_type != config_resources.TOPIC:
            return self._results(_broker_entries(resource, self._broker))
        own = _topic_configs(resource.resource_name, self._broker)
        key = tuple(sorted(own.items()))
        described = self._of_topics.get(key)
        if described is None:
            described = self._of_topics[key] = self._results(topic_entries(self._broker, own))
        return described

    def _results(self, entries: Sequence[ConfigEntry]) -> Described:
        results = [_result(entry, self._body) for entry in entries]
        return [(result, _size(result)) for result in results]


def _broker_entries(resource: DescribeConfigsResource, broker: BrokerServices) -> list[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type != config_resources.BROKER:
        raise config_resources.unsupported(resource.resource_type)
    if name == CLUSTER_DEFAULT:
        return cluster_default_entries(broker)
    own = broker.dynamic_config.own_resource
    if name != own:
        text = f"Unexpected broker id, expected {own} or empty string, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return broker_entries(broker)


def _topic_configs(name: str, broker: BrokerServices) -> Mapping[str, str]:
    check_name(name)
    topic = broker.catalog.snapshot.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    return topic.configs


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


def _size(result: DescribeConfigsResourceResult) -> int:
    texts = [result.name, result.value, result.documentation]
    for synonym in result.synonyms:
        texts += (synonym.name, synonym.value)
    return CONFIG_BYTES * (1 + len(result.synonyms)) + sum(len(text) for text in texts if text)


def _failure(resource: DescribeConfigsResource, error: KafkaError, texts: ErrorTexts) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=texts.of(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
