"""A declarative pipeline over the topic of orders: a table that grows with the topic, a view of it, and a topic that follows it.

Spark works out what depends on what, and each run goes on where the last one stopped. examples/orders_generator.py makes orders.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
ORDER = "id BIGINT, customer STRING, product STRING, quantity INT, ordered_at TIMESTAMP"

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every order of the topic; a run adds what is new."""
    records = (
        spark.readStream.format("barnabas").option("kafka.bootstrap.servers", SERVERS).option("subscribe", "orders")
    )
    order = sf.from_json(sf.col("value").cast("string"), ORDER).alias("order")
    return records.option("startingOffsets", "earliest").load().select(order).select("order.*")


@dp.materialized_view
def pieces_by_product() -> DataFrame:
    """Computed anew by each run."""
    return spark.read.table("orders").groupBy("product").agg(sf.sum("quantity").alias("pieces"))


dp.create_sink("large_orders", "barnabas", {"kafka.bootstrap.servers": SERVERS, "topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large_orders_to_topic() -> DataFrame:
    """Orders of five pieces and more, as records."""
    large = spark.readStream.table("orders").where("quantity >= 5")
    return large.select(
        sf.col("customer").alias("key"), sf.to_json(sf.struct("id", "product", "quantity")).alias("value")
    )
