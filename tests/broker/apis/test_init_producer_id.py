"""InitProducerId (key 22): new ids without a transactional id, a clean refusal with one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.errors import ErrorCode
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.data_broker import DataBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataBroker]:
    with DataBroker(tmp_path / "data") as opened:
        yield opened


@pytest.mark.parametrize("version", range(6))
def test_every_request_gets_a_new_id_with_epoch_0(broker: DataBroker, version: int) -> None:
    ids = set()
    for _ in range(5):
        answer = broker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), version)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
        ids.add(answer.producer_id)
    assert len(ids) == 5
    assert min(ids) >= 0


def test_a_producer_that_names_its_id_gets_a_new_one(broker: DataBroker) -> None:
    """KIP-360."""
    first = broker.ask(InitProducerIdRequest(transactional_id=None), 3)
    request = InitProducerIdRequest(transactional_id=None, producer_id=first.producer_id, producer_epoch=0)
    assert broker.ask(request, 3).producer_id != first.producer_id


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_half_of_an_identity_is_an_invalid_request(broker: DataBroker, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    answer = broker.ask(request, 3)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(("name", "code"), [("tx", ErrorCode.UNSUPPORTED_VERSION), ("", ErrorCode.INVALID_REQUEST)])
def test_a_transactional_id_is_refused(broker: DataBroker, name: str, code: ErrorCode) -> None:
    answer = broker.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
