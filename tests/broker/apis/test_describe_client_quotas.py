"""DescribeClientQuotas: filters over the stored limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis.describe_client_quotas import DEFAULT, EXACT, SPECIFIED
from barnabas.broker.catalog import quota_entity
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.broker.admin_broker import AdminBroker

VERSIONS = range(2)
Component = tuple[str, int, str | None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def limits(broker: AdminBroker) -> AdminBroker:
    for parts in (
        {"user": "alice"},
        {"user": None},
        {"user": "alice", "client-id": "app"},
        {"user": "alice", "client-id": None},
        {"client-id": "app"},
    ):
        broker.catalog.set_quota(quota_entity(parts.items()), {"producer_byte_rate": 10.0})
    broker.catalog.set_quota(quota_entity([("ip", "10.0.0.1")]), {"connection_creation_rate": 5.0})
    return broker


def describe(broker: AdminBroker, *components: Component, strict: bool = False, version: int = 1) -> Any:
    parts = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    return broker.ask(DescribeClientQuotasRequest(components=parts, strict=strict), version)


def entities(answer: Any) -> list[dict[str, str | None]]:
    assert answer.error_code == 0
    return [{part.entity_type: part.entity_name for part in entry.entity} for entry in answer.entries]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_filter_lists_everything_with_its_values(limits: AdminBroker, version: int) -> None:
    answer = describe(limits, version=version)
    assert len(entities(answer)) == 6
    values = {(value.key, value.value) for entry in answer.entries for value in entry.values}
    assert values == {("producer_byte_rate", 10.0), ("connection_creation_rate", 5.0)}


def test_a_component_asks_for_a_name_the_default_or_any(limits: AdminBroker) -> None:
    assert entities(describe(limits, ("user", EXACT, "alice"), strict=True)) == [{"user": "alice"}]
    assert entities(describe(limits, ("user", DEFAULT, None), strict=True)) == [{"user": None}]
    assert entities(describe(limits, ("user", SPECIFIED, None), strict=True)) == [{"user": "alice"}, {"user": None}]
    assert entities(describe(limits, ("ip", SPECIFIED, None))) == [{"ip": "10.0.0.1"}]
    assert entities(describe(limits, ("user", EXACT, "nobody"))) == []


def test_without_strict_an_entity_may_have_more_types(limits: AdminBroker) -> None:
    found = entities(describe(limits, ("user", EXACT, "alice")))
    assert [len(entity) for entity in found] == [1, 2, 2]
    both = describe(limits, ("user", EXACT, "alice"), ("client-id", DEFAULT, None))
    assert entities(both) == [{"user": "alice", "client-id": None}]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("ip", EXACT, "10.0.0.1"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "g")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    limits: AdminBroker, components: list[Component], code: ErrorCode
) -> None:
    answer = describe(limits, *components)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message
