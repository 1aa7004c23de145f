"""DescribeClientQuotas (key 48), versions 0-1 (KIP-546).

A filter has a component per entity type: this name, the default, or any. Strict: the entity has no other types.
Thread: handler. Lock: none, reads one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.catalog import QuotaEntity
from barnabas.broker.client_quota_entities import ENTITY_TYPES, IP
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
ANY = object()


def handle(request: Request, broker: BrokerServices) -> DescribeClientQuotasResponse:
    body: DescribeClientQuotasRequest = request.body
    wanted = _filter(body.components)
    return DescribeClientQuotasResponse(
        error_code=0,
        error_message=None,
        entries=[
            _entry(entity, values)
            for entity, values in broker.catalog.snapshot.quotas.items()
            if _matches(dict(entity), wanted, body.strict)
        ],
    )


def weigh(body: DescribeClientQuotasRequest, broker: BrokerServices) -> int:
    return len(broker.catalog.snapshot.quotas)


def error_response(body: DescribeClientQuotasRequest, version: int, error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


def _filter(components: Sequence[ComponentData]) -> dict[str, Any]:
    """Entity type → the name it must have: a text, None for the default entity, or ANY."""
    wanted: dict[str, Any] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        wanted[kind] = _wanted_name(component)
    if IP in wanted and len(wanted) > 1:
        raise _invalid("Invalid entity filter component combination: ip cannot be used with user or client-id.")
    return wanted


def _wanted_name(component: ComponentData) -> object:
    if component.match_type == EXACT:
        if component.match is None:
            raise _invalid("The filter asks for an exact match but gives no name.")
        return component.match
    if component.match_type not in (DEFAULT, SPECIFIED):
        raise _invalid(f"Unknown match type {component.match_type}")
    if component.match is not None:
        raise _invalid("The filter gives a name but does not ask for an exact match.")
    return None if component.match_type == DEFAULT else ANY


def _matches(entity: Mapping[str, str | None], wanted: Mapping[str, Any], strict: bool) -> bool:
    if strict and entity.keys() != wanted.keys():
        return False
    return all(kind in entity and name in (ANY, entity[kind]) for kind, name in wanted.items())


def _entry(entity: QuotaEntity, values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=value) for key, value in values.items()],
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
