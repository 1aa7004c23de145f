"""A query that is stopped and started again with another connector each time, on one checkpoint: `python -m tests.spark.moving_query JARS
BOOTSTRAP TOPIC DIRECTORY CONNECTOR...` runs it once with each connector in turn, every time on records that were written meanwhile.

Role: the program of test_moving.py, in the environment of the older PySpark. Prints the values that the query has written in all.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from barnabas.producer import Producer

RECORDS_PER_RUN = 10
RUN_SECONDS = 100


def run_once(session: SparkSession, connector: str, bootstrap: str, topic: str, directory: str) -> None:
    """All that is there, then the end."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = session.readStream.format(connector).options(**options).load()
    values = frame.selectExpr("cast(value as string) as value", "partition", "offset")
    writer = values.writeStream.format("json").option("checkpointLocation", f"{directory}/checkpoint")
    query = writer.trigger(availableNow=True).start(f"{directory}/out")
    if not query.awaitTermination(RUN_SECONDS):
        raise SystemExit(f"{connector}: the query did not end")


def main(jars: str, bootstrap: str, topic: str, directory: str, *connectors: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    written = 0
    for connector in connectors:
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            for number in range(written, written + RECORDS_PER_RUN):
                producer.send(topic, str(number).encode(), partition=number % 2)
        written += RECORDS_PER_RUN
        run_once(session, connector, bootstrap, topic, directory)
    print(json.dumps(sorted(int(row.value) for row in session.read.json(f"{directory}/out").collect())))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
