"""AlterClientQuotas (key 49), versions 0-1 (KIP-546; KIP-612 for ip).

Sets or removes quotas of users, client ids, both, or addresses, each also as default (null name). What is valid is stored
and in force at once, many entities in several commits; each entity is answered by itself and changed as a whole or not at all.
Thread: handler (writes the catalog, never inline). Lock: `_LOCK`, so that the order in which limits are stored is also the
order in which they come into force.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from barnabas.broker.apis.error_texts import ErrorTexts
from barnabas.broker.catalog import QuotaEntity, quota_entity
from barnabas.broker.client_quota_entities import apply, check_entity, check_value
from barnabas.broker.slices import slices
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices

_LOCK = threading.Lock()
ENTITIES_KEY = "barnabas.quota.max.entities"

Changes = dict[QuotaEntity, dict[str, float | None]]


def handle(request: Request, broker: BrokerServices) -> AlterClientQuotasResponse:
    body: AlterClientQuotasRequest = request.body
    times = Counter(_entity(entry) for entry in body.entries)
    changes: Changes = {}
    room = _Room(broker)
    texts = ErrorTexts()
    answers = []
    for entry in body.entries:
        entity = _entity(entry)
        try:
            if times[entity] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The entity is named twice in one request.")
            change = _change(entity, entry)
            room.take(entity, change)
            changes[entity] = change
        except KafkaError as error:
            answers.append(_answer(entry, error, texts))
        else:
            answers.append(_answer(entry, None, texts))
    if changes and not body.validate_only:
        _store(changes, broker)
    return AlterClientQuotasResponse(entries=answers)


def error_response(body: AlterClientQuotasRequest, version: int, error: KafkaError) -> AlterClientQuotasResponse:
    texts = ErrorTexts()
    return AlterClientQuotasResponse(entries=[_answer(entry, error, texts) for entry in body.entries])


def _entity(entry: EntryData) -> QuotaEntity:
    return quota_entity((part.entity_type, part.entity_name) for part in entry.entity)


def _change(entity: QuotaEntity, entry: EntryData) -> dict[str, float | None]:
    check_entity(entity)
    change: dict[str, float | None] = {}
    for operation in entry.ops:
        if operation.key in change:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {operation.key}")
        change[operation.key] = None if operation.remove else operation.value
        check_value(entity, operation.key, change[operation.key])
    return change


class _Room:
    """For how many more entities there is room. Requests at the same time do not see each other's, which may exceed the limit once."""

    def __init__(self, broker: BrokerServices) -> None:
        self._stored = broker.catalog.snapshot.quotas
        self._limit: int = broker.config[ENTITIES_KEY]
        self._left = self._limit - len(self._stored)

    def take(self, entity: QuotaEntity, change: dict[str, float | None]) -> None:
        if entity in self._stored or all(value is None for value in change.values()):
            return
        if self._left <= 0:
            text = f"The broker keeps quotas of at most {self._limit} entities ({ENTITIES_KEY}); remove some first."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        self._left -= 1


def _store(changes: Changes, broker: BrokerServices) -> None:
    for some in slices(list(changes.items())):
        with _LOCK:
            broker.catalog.set_quotas(dict(some))
            for entity, values in some:
                for key, value in values.items():
                    apply(broker.quotas, broker.connection_quotas, entity, key, value)


def _answer(entry: EntryData, error: KafkaError | None, texts: ErrorTexts) -> EntryDataResponse:
    return EntryDataResponse(
        error_code=error.code if error else 0,
        error_message=texts.of(error),
        entity=[EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity],
    )
