"""A streaming query as a program of its own, so that tests can kill its driver or its workers and start it again.

    python -m tests.spark.driver_program BOOTSTRAP TOPIC DIRECTORY OFFSETS_PER_BATCH

Reads the topic in small micro-batches until everything that is there is read (Trigger.AvailableNow) and writes partition, offset and
value to Parquet under DIRECTORY/out, with the checkpoint in DIRECTORY/checkpoint. Tasks may fail three times.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(bootstrap: str, topic: str, directory: Path, per_batch: str) -> None:
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    stream = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .option("kafka.max.partition.fetch.bytes", "2000")
        .load()
    )
    query = (
        stream.selectExpr("partition", "offset", "cast(value as string) value")
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
