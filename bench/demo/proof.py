"""What must hold when the generator has stopped and the pipeline has read everything: each claim is checked, none is taken on trust.

Role: compares what the generator sent, what the topic holds, what each query read, what lies in the Parquet files, and the totals in the
topic of revenue with the same totals computed in a batch.
Thread: the demo's own. Lock: none.

Late orders need thought. Spark drops an order whose window was closed before its batch began, so which ones it drops depends on how
the records fell into batches. Spark's reports say which offsets each batch read and which watermark it had: batch n drops an order when
its window ends at or before the watermark of batch n-1. With that rule the batch computation drops the same orders, and the totals have
to be equal to the last cent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from barnabas import Consumer
from bench.demo.batches import Batch, BatchLog
from examples import orders_pipeline
from examples.orders_generator import OrderGenerator

OFFSETS_PER_BIN = 10_000
RANGE = "partition INT, first BIGINT, end BIGINT, dropped_until_ms BIGINT"


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that has to hold, with the figures that show it."""

    holds: bool
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """What is left of a run: everything has been sent and read, and the broker still answers."""

    spark: SparkSession
    servers: str
    folder: Path
    generator: OrderGenerator
    lake: BatchLog
    revenue: BatchLog


def number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def prove(run: Run) -> Iterator[Claim]:
    """One claim after the other, as they are checked."""
    yield records_in(run)
    yield from records_read(run)
    yield orders_in_parquet(run)
    yield from totals_of_windows(run)


def records_in(run: Run) -> Claim:
    sent, written, topic = run.generator.sent, run.generator.written, sum(end_offsets(run.servers).values())
    holds = sent == written == topic > 0
    return Claim(holds, f"{number(sent)} orders sent, {number(written)} acknowledged, {number(topic)} in the topic")


def end_offsets(servers: str) -> dict[int, int]:
    topic = orders_pipeline.ORDERS
    with Consumer({"bootstrap.servers": servers}) as consumer:
        names = [(topic, info.partition) for info in consumer.partitions_for(topic)]
        return {partition: end for (_, partition), end in consumer.end_offsets(names).items()}


def records_read(run: Run) -> Iterator[Claim]:
    for log in (run.lake, run.revenue):
        holds = log.rows == run.generator.written and log.in_order()[-1].ends == end_offsets(run.servers)
        yield Claim(holds, f"{number(log.rows)} records read by the query {log.name}, in {len(log.batches)} batches")


def orders_in_parquet(run: Run) -> Claim:
    """Each order once, and of every product as many pieces as the generator sold."""
    lake = run.spark.read.parquet(str(run.folder / "lake"))
    figures = (sf.count("*").alias("rows"), sf.countDistinct("partition", "offset").alias("distinct"))
    rows, distinct = lake.agg(*figures).collect()[0]
    pieces = {
        row["product"]: row["pieces"]
        for row in lake.groupBy("product").agg(sf.sum("quantity").alias("pieces")).collect()
    }
    holds = rows == distinct == run.generator.written and pieces == dict(run.generator.pieces)
    what = f"{number(sum(pieces.values()))} pieces of {len(pieces)} products"
    return Claim(
        holds, f"{number(rows)} orders in Parquet, {number(distinct)} different ones; {what}, as the generator counted"
    )


def totals_of_windows(run: Run) -> Iterator[Claim]:
    """The totals that the query wrote are those of a batch computation, and every order is in one window or known to be too late."""
    batches = run.revenue.in_order()
    orders = with_fate(run, batches).cache()
    totals = orders_pipeline.revenue(orders.filter("NOT too_late"))
    is_closed = sf.col("window.end") <= sf.timestamp_millis(sf.lit(batches[-1].watermark_ms))
    yield compared(written_totals(run), values_of(orders_pipeline.as_records(totals.filter(is_closed))))
    closed, still_open, open_groups = counted(totals, is_closed)
    too_late = orders.filter("too_late").count()
    orders.unpersist()
    holds = closed + still_open + too_late == run.generator.written and open_groups == batches[-1].groups_in_state
    parts = f"{number(closed)} in these windows, {number(still_open)} in windows that are still open"
    yield Claim(holds, f"every order accounted for: {parts}, {number(too_late)} too late and dropped by the watermark")


def with_fate(run: Run, batches: list[Batch]) -> DataFrame:
    """The orders of the topic, read in one batch, and whether the streaming query had to drop them."""
    records = run.spark.read.format("barnabas").option("kafka.bootstrap.servers", run.servers)
    orders = orders_pipeline.priced(run.spark, records.option("subscribe", orders_pipeline.ORDERS).load())
    ranges = run.spark.createDataFrame(list(ranges_of(batches)), RANGE)
    # Offsets in bins make an equality of what would be a comparison of every order with every batch.
    bins = ranges.withColumn("bin", sf.explode(sf.sequence(bin_of("first"), bin_of("end - 1"))))
    inside = sf.col("offset").between(sf.col("first"), sf.col("end") - 1)
    placed = orders.withColumn("bin", bin_of("offset")).join(sf.broadcast(bins), ["partition", "bin"]).filter(inside)
    window = sf.window("ordered_at", orders_pipeline.WINDOW)
    return placed.withColumn("too_late", window["end"] <= sf.timestamp_millis("dropped_until_ms"))


def ranges_of(batches: list[Batch]) -> Iterator[tuple[int, int, int, int]]:
    """What each batch read of each partition, with the watermark of the batch before it."""
    ends: Counter[int] = Counter()
    dropped_until_ms = 0
    for batch in batches:
        for partition, end in batch.ends.items():
            if end > ends[partition]:
                yield partition, ends[partition], end, dropped_until_ms
        ends.update({partition: end - ends[partition] for partition, end in batch.ends.items()})
        dropped_until_ms = batch.watermark_ms


def bin_of(offset: str) -> Column:
    return sf.expr(f"({offset}) DIV {OFFSETS_PER_BIN}")


def written_totals(run: Run) -> Counter[str]:
    records = run.spark.read.format("barnabas").option("kafka.bootstrap.servers", run.servers)
    return values_of(records.option("subscribe", orders_pipeline.REVENUE).load())


def values_of(records: DataFrame) -> Counter[str]:
    return Counter(row["value"] for row in records.select(sf.col("value").cast("string")).collect())


def compared(written: Counter[str], computed: Counter[str]) -> Claim:
    """The sink promises "at least once": a total that was written twice is said, and is no fault."""
    holds = written.keys() == computed.keys() and len(computed) > 0
    differing = len(written.keys() ^ computed.keys())
    repeated = written.total() - len(written)
    text = f"{number(len(written))} totals in the topic {orders_pipeline.REVENUE}, equal to those of a batch over the same orders"
    text = (
        text
        if holds
        else f"{number(differing)} of {number(len(computed))} totals differ from those of a batch over the same orders"
    )
    return Claim(holds, text + (f" ({repeated} written twice)" if repeated else ""))


def counted(totals: DataFrame, is_closed: Column) -> tuple[int, int, int]:
    """Orders in closed windows, orders in open ones, and how many totals are open."""
    rows = (
        totals.groupBy(is_closed.alias("closed"))
        .agg(sf.sum("orders").alias("orders"), sf.count("*").alias("groups"))
        .collect()
    )
    by_fate = {row["closed"]: (row["orders"], row["groups"]) for row in rows}
    return by_fate.get(True, (0, 0))[0], *by_fate.get(False, (0, 0))
