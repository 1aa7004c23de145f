"""One Spark session that does one piece of work after the other, in a process of its own: `python -m bench.spark_works FORMAT
[JARS]` takes a request per line of standard input (JSON) and answers each with a line (JSON).

Role: the same work for our connector (`barnabas`) and for Spark's own (`kafka`), on whichever PySpark this interpreter has. Nothing in here
depends on the side but the name of the format. Main thread; Spark's own beside it.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from statistics import median
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

STREAM_WARM_UP_BATCHES = 10
STREAM_SECONDS = 120
Answer = dict[str, Any]


def make_session(jars: str) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("bench")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # The same on both sides, of use to ours only; docs/spark.md says why a user should have it too.
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class DroppingWriter(DataSourceArrowWriter):
    """Takes every row and does nothing with it: no sink in Python can be faster."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class DroppingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bench-drop"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return DroppingWriter()


class Works:
    """The pieces of work. `rows` is what a full topic or frame has."""

    def __init__(self, session: SparkSession, name: str, directory: str) -> None:
        self._session = session
        self._format = name
        self._directory = directory
        self._frames: dict[int, DataFrame] = {}

    def read(self, bootstrap: str, topic: str) -> Answer:
        """Every column of every record, into a sink that drops them."""
        frame = self._source(bootstrap, topic)
        begin = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - begin}

    def count(self, bootstrap: str, topic: str) -> Answer:
        """What is in the topic as this side sees it: rows, bytes of values, and the sum of the offsets."""
        frame = self._source(bootstrap, topic)
        [row] = frame.selectExpr("count(1)", "sum(length(value))", "sum(offset)").collect()
        return {"seen": list(row)}

    def prepare_write(self, rows: int, size: int) -> Answer:
        """The rows to write, in memory, so that making them takes no time later."""
        frame = self._session.range(0, rows, 1, 6).selectExpr(f"cast(lpad(id, {size}, 'x') as binary) as value")
        self._frames[rows] = frame.persist()
        return {"rows": frame.count()}

    def write(self, bootstrap: str, topic: str, rows: int) -> Answer:
        begin = time.perf_counter()
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
        self._frames[rows].write.format(self._format).options(**options).mode("append").save()
        return {"seconds": time.perf_counter() - begin}

    def drop(self, rows: int) -> Answer:
        """What `write` would take if nothing were written."""
        self._session.dataSource.register(DroppingSource)
        begin = time.perf_counter()
        self._frames[rows].write.format(DroppingSource.name()).mode("append").save()
        return {"seconds": time.perf_counter() - begin}

    def stream(self, bootstrap: str, topic: str, per_trigger: int, batches: int) -> Answer:
        """From trigger to trigger, each of which has a few records: the median over the batches behind the first ones."""
        reader = self._session.readStream.format(self._format)
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        frame = reader.options(**options, maxOffsetsPerTrigger=per_trigger).load()
        with tempfile.TemporaryDirectory(dir=self._directory) as checkpoint:
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(processingTime="0 seconds").start()
            try:
                wanted = STREAM_WARM_UP_BATCHES + batches + 1
                deadline = time.monotonic() + STREAM_SECONDS
                while len(done := [row for row in query.recentProgress if row.numInputRows]) < wanted:
                    if not query.isActive or time.monotonic() > deadline:
                        raise RuntimeError(f"{len(done)} of {wanted} batches: {query.exception()}")
                    time.sleep(0.2)
            finally:
                query.stop()
        return summary_of(done[STREAM_WARM_UP_BATCHES:wanted], per_trigger)

    def _source(self, bootstrap: str, topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return self._session.read.format(self._format).options(**options, endingOffsets="latest").load()


def summary_of(batches: list[Any], per_trigger: int) -> Answer:
    odd = [row.numInputRows for row in batches if row.numInputRows > per_trigger]
    if odd:
        raise RuntimeError(f"batches of {odd} records instead of {per_trigger}")
    starts = [datetime.fromisoformat(row.timestamp).timestamp() for row in batches]
    steps = [after - before for before, after in itertools.pairwise(starts)]
    parts = {name: median(row.durationMs.get(name, 0) for row in batches) for name in batches[0].durationMs}
    return {"seconds": median(steps), "parts": parts}


def serve(works: Works, requests: TextIO, answers: TextIO) -> None:
    for line in requests:
        request = json.loads(line)
        work: Callable[..., Answer] = getattr(works, request.pop("work"))
        try:
            answer = work(**request)
        except Exception as error:  # the harness decides what a failure means
            answer = {"error": str(error)[:2000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main(name: str, jars: str = "") -> None:
    # Spark's JVM inherits standard output and may print there: it gets standard error, and answers go where output went.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = make_session(jars)
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-spark-") as directory:
        answers.write(json.dumps({"spark": session.version}) + "\n")
        answers.flush()
        serve(Works(session, name, directory), sys.stdin, answers)
        session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
