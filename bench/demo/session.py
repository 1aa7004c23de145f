"""A Spark session for the demo: local, offline, and silent on the terminal.

Role: starts Spark with this Python for its workers and with everything that the JVM and the workers print in a file.
Thread: Spark is started in one of its own, so that Ctrl-C meanwhile is not thrown into the middle of py4j, which would print pages, and
so that Spark puts no handler for it in place of the demo's. The rest is the demo's own thread. Lock: none.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from bench.demo.batches import KEPT_BY_SPARK

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": str(KEPT_BY_SPARK),
}


class NoJava(Exception):
    """There is no Java, and Spark needs one."""


class SparkStart:
    """A session that is being started. What Spark prints goes to `spark.log` in the folder."""

    def __init__(self, folder: Path) -> None:
        if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
            raise NoJava("Spark needs Java 17 or newer (Debian and Ubuntu: sudo apt-get install default-jre-headless)")
        self._folder = folder
        self._outcome: Future[SparkContext] = Future()
        threading.Thread(target=self._start, name="start-of-spark", daemon=True).start()

    def _start(self) -> None:
        try:
            self._outcome.set_result(_new_context(self._folder))
        except BaseException as error:
            self._outcome.set_exception(error)

    def is_over(self, seconds: float) -> bool:
        """Whether Spark has started or failed, waiting for that at most so long."""
        return bool(wait([self._outcome], seconds).done)

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """The session, stopped at the end of the block; what went wrong is raised."""
        self._outcome.result()
        with _silence(self._folder):
            spark = (
                SparkSession.builder.getOrCreate()
            )  # here: Spark looks for data sources in the session of the thread that asks
        try:
            yield spark
        finally:
            spark.stop()


def _new_context(folder: Path) -> SparkContext:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf().setMaster("local[*]").setAppName("barnabas-demo")
    conf.setAll([*SETTINGS.items(), ("spark.sql.warehouse.dir", str(folder / "warehouse"))])
    with _silence(folder):
        return SparkContext.getOrCreate(conf)


@contextmanager
def _silence(folder: Path) -> Iterator[None]:
    with standard_error_in(folder / "spark.log"), warnings.catch_warnings():  # the JVM and its workers inherit it
        warnings.simplefilter("ignore", FutureWarning)  # PySpark's opinion of the newest pandas, which is not used here
        yield


@contextmanager
def standard_error_in(file: Path) -> Iterator[None]:
    """Whatever this process and its children write to standard error during the block."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
