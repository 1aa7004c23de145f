"""What a Spark session finds out about itself and its workers, in a process of its own, for `barnabas doctor spark`.

Role: `python -m barnabas.spark.probe` reads what to do as JSON from standard input and writes what it found as one line of JSON. It runs as
a program, so that Spark sends `ask_worker` to the workers by value: they need nothing of Barnabas to answer, and no Arrow either.
Thread: the main thread; `ask_worker` in a task. Lock: none. The doctor ends the process when it takes too long.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "barnabas-probe: "
"""Begins the line with the findings; Spark and Java may write others."""

TASKS = 8
CONNECT_SECONDS = 5.0


def ask_worker(addresses: str) -> str:
    """Runs in a Python worker: versions, and whether each address (host:port, commas between) takes a connection. Self-contained."""
    import importlib
    import json
    import platform
    import socket
    import sys

    def version(module: str) -> str | None:
        try:
            return str(getattr(importlib.import_module(module), "__version__", "?"))
        except Exception:  # whatever it is, the module cannot be used
            return None

    def reach(address: str) -> str | None:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), 5.0).close()
        except (OSError, ValueError) as error:
            return str(error)
        return None

    return json.dumps(
        {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "executable": sys.executable,
            "pyspark": version("pyspark"),
            "pyarrow": version("pyarrow"),
            "barnabas": version("barnabas"),
            "unreachable": {one: why for one in addresses.split(",") if one and (why := reach(one)) is not None},
        }
    )


def session(master: str, remote: str | None) -> SparkSession:
    """A session as a user would get it; quiet, and without a web page."""
    from pyspark.sql import SparkSession

    if remote is not None:
        return SparkSession.builder.remote(remote).getOrCreate()
    builder = SparkSession.builder.master(master).appName("barnabas doctor")
    made = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def workers(spark: SparkSession, addresses: list[str]) -> list[dict[str, Any]]:
    """The answers of the workers, each different one once."""
    from pyspark.sql.functions import lit, udf

    ask = udf(ask_worker, "string", useArrow=False)
    answers = spark.range(0, TASKS, 1, TASKS).select(ask(lit(",".join(addresses)))).collect()
    return [json.loads(answer) for answer in sorted({row[0] for row in answers})]


def has_format(spark: SparkSession) -> str | None:
    """Why `format("barnabas")` cannot be used, or None. Only the columns are asked for: no broker is needed."""
    try:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092")
        return None if "value" in reader.option("subscribe", "probe").load().columns else "it has no column value"
    except Exception as error:
        return str(error)


def probe(master: str, remote: str | None, addresses: list[str]) -> dict[str, Any]:
    """Everything, as far as it goes; `error` is what ended it."""
    found: dict[str, Any] = {}
    try:
        spark = session(master, remote)
        found["spark"] = spark.version
        found["workers"] = workers(spark, addresses)
        found["format"] = has_format(spark)
        spark.stop()
    except Exception as error:
        found["error"] = str(error)
    return found


if __name__ == "__main__":
    print(MARK + json.dumps(probe(**json.load(sys.stdin))), flush=True)
