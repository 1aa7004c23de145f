"""Spark Connect: the client speaks gRPC with a Spark server, and the source and the sink run there. Nothing in this file knows a JVM.

Run: python examples/spark_connect.py [localhost:9092 [sc://spark-server:15002]]
     without addresses it starts a broker of its own, and a Spark Connect server with two cores

Needs pip install "barnabas[spark]" "pyspark[connect]", and Java where the server runs, with barnabas in the Python of its workers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from barnabas import Admin, NewTopic
from barnabas.testing import EmbeddedBroker

ROWS = 10_000


def write(spark: SparkSession, servers: str, topic: str) -> None:
    rows = spark.range(ROWS).select(
        (sf.col("id") % 100).cast("string").alias("key"), sf.col("id").cast("string").alias("value")
    )
    rows.write.format("barnabas").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()
    print(f"{ROWS} rows written")


def numbers(records: DataFrame) -> DataFrame:
    return records.select("partition", sf.col("value").cast("string").cast("bigint").alias("number"))


def read(spark: SparkSession, servers: str, topic: str) -> None:
    records = spark.read.format("barnabas").option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    figures = numbers(records).agg(sf.count("*").alias("rows"), sf.sum("number").alias("sum")).collect()[0]
    print(f"{figures['rows']} rows read, their sum is {figures['sum']}")


def stream(spark: SparkSession, servers: str, topic: str) -> None:
    """What is there now, as a stream that ends by itself."""
    records = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = numbers(records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS // 4).load())
    with tempfile.TemporaryDirectory() as folder:
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{folder}/numbers")
        query.awaitTermination()
        batches = sum(progress.numInputRows > 0 for progress in query.recentProgress)
        print(f"{spark.read.parquet(f'{folder}/numbers').count()} rows streamed in {batches} batches")


def main(servers: str, remote: str) -> None:
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # for a server that is started here: its workers need barnabas
    spark = SparkSession.builder.remote(remote).getOrCreate()
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(topic, partitions=3)])
    try:
        write(spark, servers, topic)
        read(spark, servers, topic)
        stream(spark, servers, topic)
    finally:
        spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "local[2]")
    else:
        with EmbeddedBroker() as broker:
            main(broker.bootstrap_servers, "local[2]")
