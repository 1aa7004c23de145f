"""A Spark session for the demo: local, offline, and silent on the terminal.

Role: starts Spark with this Python for its workers and with everything that the JVM and the workers print in a file.
Thread: the demo's own. Lock: none.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Stopped at the end of the block. What Spark prints goes to `spark.log` in the folder."""
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise NoJava("Spark needs Java 17 or newer (Debian and Ubuntu: sudo apt-get install default-jre-headless)")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[*]").appName("barnabas-demo")
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(name, value)
    with standard_error_in(folder / "spark.log"), warnings.catch_warnings():  # the JVM and its workers inherit it
        warnings.simplefilter("ignore", FutureWarning)  # PySpark's opinion of the newest pandas, which is not used here
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


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
