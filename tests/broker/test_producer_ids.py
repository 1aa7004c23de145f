"""Producer ids after the catalog was lost: no new producer is taken for one that the logs know."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.catalog import CATALOG_FILE_NAME, PRODUCER_ID_BLOCK_SIZE
from barnabas.producer import Producer
from barnabas.testing import EmbeddedBroker
from tests.broker.log.stores import Store
from tests.records.batches import sequenced

WAIT_SECONDS = 30


def produce(broker: EmbeddedBroker, count: int, text: str) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True}) as producer:
        for number in range(count):
            producer.send("t", f"{text} {number}".encode()).result(WAIT_SECONDS)


def values(broker: EmbeddedBroker) -> list[bytes | None]:
    return [record.value for record in broker.records("t")]


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 2)], ids=["a duplicate", "out of order"])
def test_records_of_a_new_producer_are_written_after_the_catalog_was_lost(
    tmp_path: Path, before: int, after: int
) -> None:
    """With the id of the old one they were dropped as duplicates, or refused: a client may survive that with a new epoch, or not."""
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker:
        produce(broker, before, "old")
    for file in tmp_path.glob(CATALOG_FILE_NAME + "*"):
        file.unlink()
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        produce(broker, after, "new")
        wanted = [b"old %d" % number for number in range(before)] + [b"new %d" % number for number in range(after)]
        assert values(broker) == wanted
        log = broker.server.services.logs.get("t", 0)
        assert log is not None
        assert log.last_records_of_producers() == {
            0: (before - 1, 0),
            PRODUCER_ID_BLOCK_SIZE: (before + after - 1, 0),
        }, "each with an id of its own, and in its first epoch"


def test_a_start_with_its_catalog_leaves_the_next_id_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker:
        produce(broker, 1, "first")
    for number in (1, 2):
        with EmbeddedBroker(data_dir=tmp_path) as broker:
            assert broker.server.services.catalog.next_producer_id() == number * PRODUCER_ID_BLOCK_SIZE
    assert "producer ids" not in caplog.text


def test_an_id_that_only_damage_can_make_does_not_count(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert store.log.largest_producer_id() == -1
        for producer_id in (7, 2**62, 2**63 - 1, 5):
            store.log.append(sequenced(producer_id, 0, 0))
        assert store.log.largest_producer_id() == 7
        store.crash()
        assert store.log.largest_producer_id() == 7
