"""Orders in, revenue out: a streaming job that joins orders with a table of products, keeps every order as Parquet and writes the
revenue per category and window of five seconds to a topic.

Run: python examples/orders_pipeline.py localhost:9092 [folder]      until Ctrl-C; both topics must exist
     python examples/orders_generator.py localhost:9092              in another terminal, makes orders

Needs pip install "barnabas[spark]" and Java. The source and the sink have the options of Spark's Kafka connector: with that connector on
the class path the same job runs with format("kafka").
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

ORDERS, REVENUE = "orders", "revenue"  # the topics
WINDOW = "5 seconds"
WATERMARK = "5 seconds"  # a window is final, and written, once an order has come that was made this much after its end
TRIGGER = "1 second"
ORDER = "id BIGINT, customer STRING, product STRING, quantity INT, ordered_at TIMESTAMP"
PRODUCTS = """
    SELECT * FROM VALUES
        ('p-01', 'The Castle',        'books',   12.90),
        ('p-02', 'The Trial',         'books',   11.50),
        ('p-03', 'Amerika',           'books',   13.20),
        ('p-04', 'Fountain pen',      'desk',    48.00),
        ('p-05', 'Blotting paper',    'desk',     2.75),
        ('p-06', 'Ink, blue-black',   'desk',     7.40),
        ('p-07', 'Filing cabinet',    'office', 219.00),
        ('p-08', 'Rubber stamp',      'office',  16.30),
        ('p-09', 'Bowler hat',        'clothes', 89.00),
        ('p-10', 'Overcoat',          'clothes', 249.50),
        ('p-11', 'Apple',             'food',     0.60),
        ('p-12', 'Bread',             'food',     3.10)
    AS products(product, name, category, price)"""


def read_orders(spark: SparkSession, servers: str) -> DataFrame:
    """The records of the topic, as they come: at most 200 000 in a batch, so that a backlog is read in steps."""
    records = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", servers).option("subscribe", ORDERS)
    return records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 200_000).load()


def priced(spark: SparkSession, records: DataFrame) -> DataFrame:
    """The orders with what the table of products knows of them. An order for a product that is not in the table is kept."""
    order = sf.from_json(sf.col("value").cast("string"), ORDER).alias("order")
    orders = records.select("partition", "offset", order).select("partition", "offset", "order.*")
    products = sf.broadcast(spark.sql(PRODUCTS))
    return orders.join(products, "product", "left").withColumn("amount", sf.col("quantity") * sf.col("price"))


def revenue(orders: DataFrame) -> DataFrame:
    """Orders, pieces and money per window and category."""
    return orders.groupBy(sf.window("ordered_at", WINDOW), "category").agg(
        sf.count("*").alias("orders"), sf.sum("quantity").alias("pieces"), sf.sum("amount").alias("revenue")
    )


def as_records(totals: DataFrame) -> DataFrame:
    """What the sink wants: a key and a value."""
    value = sf.struct("window.start", "window.end", "category", "orders", "pieces", "revenue")
    return totals.select(sf.col("category").alias("key"), sf.to_json(value).alias("value"))


def keep_orders(orders: DataFrame, folder: str) -> StreamingQuery:
    """Every order to Parquet files, exactly once."""
    writer = orders.writeStream.queryName("lake").format("parquet").option("path", f"{folder}/lake")
    return writer.option("checkpointLocation", f"{folder}/checkpoints/lake").trigger(processingTime=TRIGGER).start()


def publish_revenue(orders: DataFrame, servers: str, folder: str) -> StreamingQuery:
    """The totals of windows that are final to the topic of revenue, at least once."""
    totals = as_records(revenue(orders.withWatermark("ordered_at", WATERMARK)))
    writer = totals.writeStream.queryName("revenue").format("barnabas").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", REVENUE).option("checkpointLocation", f"{folder}/checkpoints/revenue")
    return writer.trigger(processingTime=TRIGGER).start()


def main(servers: str, folder: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python has to have barnabas too
    # As many partitions of the state as a small machine has cores; a cluster wants more.
    spark = SparkSession.builder.appName("orders").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    orders = priced(spark, read_orders(spark, servers))
    keep_orders(orders, folder)
    publish_revenue(orders, servers, folder)
    try:
        spark.streams.awaitAnyTermination()
    except KeyboardInterrupt:
        print("stopped; the next run goes on from here", file=sys.stderr)
    finally:
        spark.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "orders-data")
