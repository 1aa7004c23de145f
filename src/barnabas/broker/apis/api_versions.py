"""ApiVersions (key 18), versions 0-4.

Answers which APIs and versions this broker serves, computed from the table, and its features. Never a disconnect: a
version newer than known is answered in v0 form with UNSUPPORTED_VERSION and the full list (RP-29).

v3  client software name and version, kept on the connection for the metrics (KIP-511); bad characters: INVALID_REQUEST
v3  features (KIP-584); those whose minimum is 0 are left out until v4, which older clients cannot read (KAFKA-17492)

Features: `metadata.version` at the level of release 4.3 and `kraft.version`. `transaction.version`, `group.version` and
the like are not listed before there are transactions and groups, because clients switch protocols on them.

Thread: a processor (inline) or any handler. Lock: none; the answers are built once per table and never changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.table import ApiRow
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

MAX_VERSION = 4
FIRST_VERSION_WITH_NAMES = 3
FIRST_VERSION_WITH_ZERO_FEATURES = 4

SUPPORTED_FEATURES = (("metadata.version", 7, 30), ("kraft.version", 0, 1))
FINALIZED_FEATURES = (("metadata.version", 30),)
FINALIZED_EPOCH = 0

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]{0,254}[a-zA-Z0-9])?")
"""Kafka's rule, and a limit that Kafka lacks: a connection remembers its names for as long as it lives."""

Answers = dict[tuple[int, int], ApiVersionsResponse]
_cached: tuple[Mapping[int, ApiRow], Answers] = ({}, {})


def handle(request: Request, broker: BrokerServices) -> ApiVersionsResponse:
    version = request.header.api_version
    if version > MAX_VERSION:
        return _answer(broker, 0, ErrorCode.UNSUPPORTED_VERSION)
    body: ApiVersionsRequest = request.body
    if version >= FIRST_VERSION_WITH_NAMES:
        name, software_version = body.client_software_name, body.client_software_version
        if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(software_version)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The client's software name or version is not valid.")
        request.connection.client_software_name = name
        request.connection.client_software_version = software_version
    return _answer(broker, version, ErrorCode.NONE)


def error_response(body: Any, version: int, error: KafkaError) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.code)


def build(apis: Mapping[int, ApiRow], version: int, code: ErrorCode) -> ApiVersionsResponse:
    """The answer for one version of the request."""
    lowest = 0 if version >= FIRST_VERSION_WITH_ZERO_FEATURES else 1
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(api_key=row.key, min_version=row.advertised_min, max_version=row.max_version)
            for row in sorted(apis.values(), key=lambda row: row.key)
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, low, high in SUPPORTED_FEATURES
            if low >= lowest
        ],
        finalized_features_epoch=FINALIZED_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FINALIZED_FEATURES
        ],
    )


def _answer(broker: BrokerServices, version: int, code: ErrorCode) -> ApiVersionsResponse:
    global _cached  # noqa: PLW0603
    if broker.quotas.enabled:
        return build(broker.apis, version, code)  # its throttle time may be set, so it is this request's own
    apis, answers = _cached
    if apis is not broker.apis:
        answers = {}
        _cached = (broker.apis, answers)
    answer = answers.get((version, code))
    if answer is None:
        answer = answers[(version, code)] = build(broker.apis, version, code)
    return answer
