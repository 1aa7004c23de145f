"""AlterClientQuotas: limits that are checked, kept and in force at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import client_quota_entities
from barnabas.broker.catalog import quota_entity
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tests.broker.admin_broker import AdminBroker

VERSIONS = range(2)
Entity = dict[str, str | None]
ALICE: Entity = {"user": "alice"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


def entry(entity: Entity, **values: float | None) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter(broker: AdminBroker, *entries: EntryData, version: int = 1, validate_only: bool = False) -> list[int]:
    answer: Any = broker.ask(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), version)
    assert [found.entity for found in answer.entries] == [asked.entity for asked in entries]
    return [found.error_code for found in answer.entries]


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_are_stored_and_in_force(broker: AdminBroker, version: int) -> None:
    """RP-39: by user, by client id, by both, and as default."""
    assert alter(
        broker,
        entry(ALICE, producer_byte_rate=1000.0, request_percentage=12.5),
        entry({"client-id": "app"}, consumer_byte_rate=2000.0),
        entry({"user": "bob", "client-id": None}, producer_byte_rate=3000.0),
        entry({"user": None}, producer_byte_rate=4000.0),
        version=version,
    ) == [0, 0, 0, 0]
    quotas = broker.quotas
    assert quotas.enabled
    assert quotas.produce.limit_of("alice", "x") == 1000.0
    assert quotas.request.limit_of("alice", "x") == 12.5
    assert quotas.fetch.limit_of("zoe", "app") == 2000.0
    assert quotas.produce.limit_of("bob", "x") == 3000.0
    assert quotas.produce.limit_of("zoe", "x") == 4000.0
    assert len(broker.catalog.snapshot.quotas) == 4


def test_a_removed_limit_is_gone(broker: AdminBroker) -> None:
    assert alter(broker, entry(ALICE, producer_byte_rate=1000.0)) == [0]
    assert alter(broker, entry(ALICE, producer_byte_rate=None, consumer_byte_rate=None)) == [0]
    assert not broker.quotas.enabled
    assert not broker.catalog.snapshot.quotas


def test_addresses_have_a_rate_of_new_connections(broker: AdminBroker) -> None:
    """RP-10: the rate per IP."""
    assert alter(broker, entry({"ip": None}, connection_creation_rate=50.0)) == [0]
    assert alter(broker, entry({"ip": "10.0.0.1"}, connection_creation_rate=5.0)) == [0]
    assert broker.connection_quotas.ip_rate("10.0.0.1") == 5
    assert broker.connection_quotas.ip_rate("10.0.0.2") == 50
    assert alter(broker, entry({"ip": "10.0.0.1"}, connection_creation_rate=None)) == [0]
    assert broker.connection_quotas.ip_rate("10.0.0.1") == 50


def test_the_number_of_entities_has_a_limit(broker: AdminBroker) -> None:
    """Clients choose the names; those that are there can be changed and removed all the same."""
    broker.config.set_dynamic({"barnabas.quota.max.entities": "3"})
    entries = [entry({"client-id": f"a{number}"}, producer_byte_rate=1.0) for number in range(4)]
    assert alter(broker, *entries) == [0, 0, 0, ErrorCode.POLICY_VIOLATION]
    assert alter(broker, entry({"client-id": "a0"}, consumer_byte_rate=2.0)) == [0]
    assert alter(broker, entry({"client-id": "gone"}, producer_byte_rate=None)) == [0]
    assert alter(broker, entries[3], validate_only=True) == [ErrorCode.POLICY_VIOLATION]
    assert alter(broker, entry({"client-id": "a1"}, producer_byte_rate=None)) == [0]
    assert alter(broker, entries[3]) == [0]
    assert len(broker.catalog.snapshot.quotas) == 3


def test_limits_survive_a_restart(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "data") as broker:
        assert alter(broker, entry(ALICE, producer_byte_rate=1000.0)) == [0]
        assert alter(broker, entry({"ip": "::1"}, connection_creation_rate=5.0)) == [0]
    with AdminBroker(tmp_path / "data") as broker:
        stored = broker.catalog.snapshot.quotas
        client_quota_entities.load(broker.quotas, broker.connection_quotas, stored)
        assert broker.quotas.produce.limit_of("alice", "x") == 1000.0
        assert broker.connection_quotas.ip_rate("::1") == 5


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ({}, "producer_byte_rate", 1.0),
        ({"group": "g"}, "producer_byte_rate", 1.0),
        ({"user": "al\0ice"}, "producer_byte_rate", 1.0),
        ({"ip": "10.0.0.1", "user": "alice"}, "connection_creation_rate", 1.0),
        ({"ip": "not an address"}, "connection_creation_rate", 1.0),
        ({"ip": "10.0.0.1"}, "producer_byte_rate", 1.0),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", 1.5),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", 2.0**31),
        (ALICE, "connection_creation_rate", 1.0),
        (ALICE, "no_such_quota", 1.0),
        (ALICE, "producer_byte_rate", 1.5),
        (ALICE, "producer_byte_rate", -1.0),
        (ALICE, "producer_byte_rate", float("nan")),
        (ALICE, "request_percentage", float("inf")),
    ],
)
def test_what_makes_no_sense_is_refused_and_the_rest_is_done(
    broker: AdminBroker, entity: Entity, key: str, value: float
) -> None:
    good = entry({"user": "bob"}, producer_byte_rate=1.0)
    assert alter(broker, entry(entity, **{key: value}), good) == [ErrorCode.INVALID_REQUEST, 0]
    assert list(broker.catalog.snapshot.quotas) == [quota_entity([("user", "bob")])]


def test_what_is_named_twice_is_refused(broker: AdminBroker) -> None:
    once, again = entry(ALICE, producer_byte_rate=1.0), entry(ALICE, producer_byte_rate=2.0)
    assert alter(broker, once, again) == [ErrorCode.INVALID_REQUEST] * 2
    once.ops += again.ops
    assert alter(broker, once) == [ErrorCode.INVALID_REQUEST]
    double = entry({})
    double.entity = [EntityData(entity_type="user", entity_name="a"), EntityData(entity_type="user", entity_name=None)]
    double.ops = again.ops
    assert alter(broker, double) == [ErrorCode.INVALID_REQUEST]


def test_validate_only_changes_nothing(broker: AdminBroker) -> None:
    assert alter(broker, entry(ALICE, producer_byte_rate=1.0), validate_only=True) == [0]
    assert not broker.catalog.snapshot.quotas
    assert not broker.quotas.enabled
