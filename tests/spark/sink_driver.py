"""A driver program of its own for the fault tests of the sink: copies a topic to another until it is killed.

`python -m tests.spark.sink_driver SERVERS SOURCE TARGET CHECKPOINT GATE`. Each task writes some of its rows, then waits until the file
GATE is there: so a test can do its worst in the middle of a write. Tasks are tried four times, and a query that failed is started again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

GATE_SECONDS = 240.0
ROWS_PER_BATCH = 32
BATCHES_BEFORE_THE_GATE = 5
BATCHES_PER_TASK = 10
"""More than one before the gate: the end of each stays in some buffer of Spark until the next one pushes it on."""


def some_then_wait(gate: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For `mapInArrow`: the first batches, and the others when the gate is open."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            deadline = time.monotonic() + GATE_SECONDS
            while number == BATCHES_BEFORE_THE_GATE and not Path(gate).exists():
                if time.monotonic() > deadline:
                    raise TimeoutError("the gate was never opened")
                threading.Event().wait(0.02)
            yield batch

    return pass_on


def session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "1g").config("spark.driver.host", "127.0.0.1")
    # Small pieces, so that rows are in the topic before the gate.
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_BATCH))
    return builder.config("spark.buffer.size", "4096").getOrCreate()


def main(servers: str, source: str, target: str, checkpoint: str, gate: str) -> None:
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    stream = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", servers)
    rows = stream.option("subscribe", source).option("startingOffsets", "earliest").load().select("value")
    writer = rows.mapInArrow(some_then_wait(gate), "value binary").writeStream.format("barnabas")
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", target).option("kafka.linger.ms", "0")
    while True:
        try:
            writer.option("checkpointLocation", checkpoint).start().awaitTermination()
        except Exception as error:
            print(f"the query failed: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
