"""Client quotas as administrators name them: which entities and keys exist, and where a change goes (KIP-546, KIP-612).

Role: the rules that Describe- and AlterClientQuotas share, and the way from the catalog to those who enforce a limit.
Thread: any. Lock: none of its own; the owners of the limits have theirs.
"""

from __future__ import annotations

import ipaddress
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.broker.catalog import QuotaEntity
from barnabas.config import LONGEST_TEXT
from barnabas.errors import ErrorCode, KafkaError, shown

if TYPE_CHECKING:
    from barnabas.broker.network.connection_quotas import ConnectionQuotas
    from barnabas.broker.quotas import ClientQuotas

log = logging.getLogger(__name__)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = frozenset({USER, CLIENT_ID, IP})

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

# Key → the largest value when the value must be a whole number, else None.
CLIENT_KEYS: Mapping[str, int | None] = {
    "producer_byte_rate": MAX_LONG,
    "consumer_byte_rate": MAX_LONG,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
IP_KEYS: Mapping[str, int | None] = {"connection_creation_rate": MAX_INT}


def check_entity(entity: QuotaEntity) -> None:
    """Raises INVALID_REQUEST when quotas cannot be set for such an entity."""
    types = [kind for kind, _ in entity]
    if not types:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {shown(kind)}")
        if name is not None and ("\0" in name or len(name) > LONGEST_TEXT):
            raise _invalid(f"The name of a {kind} must have at most {LONGEST_TEXT} characters, and none of them NUL")
    if len(set(types)) < len(types):
        raise _invalid(f"Invalid client quota entity, duplicate entity entry in {', '.join(types)}")
    if IP in types:
        _check_ip(entity)


def _check_ip(entity: QuotaEntity) -> None:
    if len(entity) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    address = entity[0][1]
    try:
        if address is not None:
            ipaddress.ip_address(address)
    except ValueError:
        raise _invalid(f"{shown(address)} is not a valid IP address") from None


def check_value(entity: QuotaEntity, key: str, value: float | None) -> None:
    """Raises INVALID_REQUEST when the entity has no such quota or it cannot have this value."""
    keys = IP_KEYS if entity[0][0] == IP else CLIENT_KEYS
    if key not in keys:
        raise _invalid(f"Invalid configuration key {shown(key)}")
    if value is None:
        return
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = keys[key]
    if largest is None:
        return
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large, the largest is {largest}")
    if value != int(value):
        raise _invalid(f"{key} cannot be a fractional value")


def apply(
    quotas: ClientQuotas, connections: ConnectionQuotas, entity: QuotaEntity, key: str, value: float | None
) -> None:
    """Hand one limit (None: no limit any more) to whoever enforces it."""
    kind, name = entity[0]
    if kind == IP:
        address = None if name is None else ipaddress.ip_address(name).compressed
        connections.set_ip_rate(address, None if value is None else int(value))
    else:
        quotas.update(entity, key, value)


def load(
    quotas: ClientQuotas, connections: ConnectionQuotas, stored: Mapping[QuotaEntity, Mapping[str, float]]
) -> None:
    """At start: put all limits of the catalog into force, but for those that no change would accept."""
    for entity, values in stored.items():
        for key, value in values.items():
            try:
                check_entity(entity)
                check_value(entity, key, value)
            except KafkaError as error:
                text = "a stored client quota is left out: %s %s=%s: %s"
                log.warning(text, shown(entity), shown(key), value, error.message)
            else:
                apply(quotas, connections, entity, key, value)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
