"""The proof at the end of `make demo`: it holds for a result that was worked out by hand, and every claim fails when it is wrong."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from barnabas import Admin, NewTopic, Producer
from bench.brokers import BrokerProcess
from bench.demo.batches import Batch
from bench.demo.proof import Run, prove
from examples import orders_pipeline

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
PRICES = {"p-01": Decimal("12.90"), "p-02": Decimal("11.50")}


@dataclass
class Log:
    """A query that did these batches."""

    name: str
    batches: list[Batch]
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = sum(batch.rows for batch in self.batches)

    def in_order(self) -> list[Batch]:
        return self.batches


def at(seconds: float) -> int:
    return round((NOON + timedelta(seconds=seconds)).timestamp() * 1000)


# Partition, seconds after noon, product, pieces. The second batch closes the window from 0 to 5; in the third, an order for that
# window is too late, while one for the window from 5 to 10 comes before its window is closed and counts.
FIRST = [(0, 1.0, "p-01", 2), (0, 4.9, "p-02", 1), (1, 11.0, "p-01", 3)]
SECOND = [(1, 6.0, "p-02", 4), (1, 3.0, "p-01", 1)]  # the watermark before it was 0: the order of second 3 still counts
THIRD = [(0, 2.0, "p-01", 5), (0, 7.0, "p-02", 1), (1, 16.0, "p-01", 1)]
BATCHES = [
    Batch(0, 0, 0.1, {0: 0, 1: 0}, 0, 0),
    Batch(1, 3, 0.1, {0: 2, 1: 1}, 0, 2),
    Batch(2, 2, 0.1, {0: 2, 1: 3}, at(6), 2),
    Batch(3, 3, 0.1, {0: 4, 1: 4}, at(6), 3),
    Batch(4, 0, 0.1, {0: 4, 1: 4}, at(11), 2),
]
CLOSED = [(0, 3, ("p-01", 3), ("p-02", 1)), (5, 2, ("p-02", 5))]


def total(start: int, orders: int, *sold: tuple[str, int]) -> str:
    """One record of the topic of revenue; both products are books."""
    begin, end = (NOON + timedelta(seconds=seconds) for seconds in (start, start + 5))
    revenue = sum(PRICES[product] * pieces for product, pieces in sold)
    times = [time.strftime("%Y-%m-%dT%H:%M:%S.000Z") for time in (begin, end)]
    numbers = f'"orders":{orders},"pieces":{sum(pieces for _, pieces in sold)},"revenue":{revenue}'
    return f'{{"start":"{times[0]}","end":"{times[1]}","category":"books",{numbers}}}'


@pytest.fixture
def run(spark: SparkSession, our_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    mark = uuid.uuid4().hex[:8]
    monkeypatch.setattr(orders_pipeline, "ORDERS", f"orders-{mark}")
    monkeypatch.setattr(orders_pipeline, "REVENUE", f"revenue-{mark}")
    servers = our_broker.bootstrap
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(f"orders-{mark}", partitions=2), NewTopic(f"revenue-{mark}")])
    orders = [*FIRST, *SECOND, *THIRD]
    with Producer({"bootstrap.servers": servers}) as producer:
        for partition, seconds, product, quantity in orders:
            when = (NOON + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
            value = {"id": 1, "customer": "c", "product": product, "quantity": quantity, "ordered_at": when}
            producer.send(f"orders-{mark}", json.dumps(value).encode(), partition=partition)
        for window in CLOSED:
            producer.send(f"revenue-{mark}", total(*window).encode())
    pieces: Counter[str] = Counter()
    for _, _, product, quantity in orders:
        pieces[product] += quantity
    generator = SimpleNamespace(sent=len(orders), written=len(orders), pieces=pieces)
    records = spark.read.format("barnabas").options(
        **{"kafka.bootstrap.servers": servers, "subscribe": f"orders-{mark}"}
    )
    orders_pipeline.priced(spark, records.load()).coalesce(1).write.parquet(str(tmp_path / "lake"))
    return Run(spark, servers, tmp_path, generator, Log("lake", BATCHES), Log("revenue", BATCHES))


def test_a_right_result_is_proved(run: Run) -> None:
    claims = list(prove(run))
    assert [claim.text for claim in claims if not claim.holds] == []
    assert claims[-1].text == (
        "every order accounted for: 5 in these windows, 2 in windows that are still open, 1 too late and dropped by the watermark"
    )


def test_every_claim_fails_when_it_is_wrong(run: Run) -> None:
    run.generator.sent += 1
    fewer = [*BATCHES[:-2], replace(BATCHES[-2], rows=2), replace(BATCHES[-1], groups_in_state=7)]
    lake = run.folder / "lake"
    one = next(lake.glob("*.parquet"))
    (lake / f"again-{one.name}").write_bytes(one.read_bytes())
    with Producer({"bootstrap.servers": run.servers}) as producer:
        producer.send(orders_pipeline.REVENUE, total(0, 5, ("p-01", 3), ("p-02", 1)).encode())
    wrong = replace(run, lake=Log("lake", fewer), revenue=Log("revenue", fewer))
    assert [claim.text for claim in prove(wrong) if claim.holds] == []
