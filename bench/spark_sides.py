"""A side of `make bench-spark`: a process with a Spark session, asked for one piece of work after the other.

Role: starts it with the right interpreter and jars, talks to it in lines of JSON, stops it. Context manager: the process and its JVM are
gone at the end of the block. Thread: one at a time. Lock: none.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from importlib.metadata import version
from types import TracebackType
from typing import IO, Any, Self

from bench.brokers import dies_with_its_parent
from bench.peers.spark_kafka import SPARK_VERSION, SparkPeer

__all__ = ["Side", "WorkFailed", "our_side", "peer_side"]

WORK_SECONDS = 300
STOP_SECONDS = 30


class WorkFailed(Exception):
    """A piece of work failed or gave too few records: there is no figure."""


class Side:
    """One connector on one PySpark."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile(prefix="barnabas-bench-spark-")
        self._process = subprocess.Popen(
            [*dies_with_its_parent(), *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=self._environment,
            start_new_session=True,
        )
        try:
            self._answer()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def ask(self, work: str, **request: Any) -> dict[str, Any]:
        """Have a piece of work done; WorkFailed with what it said when it went wrong."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"work": work, **request}).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], WORK_SECONDS)
        line = self._process.stdout.readline() if ready else b""
        answer: dict[str, Any] = (
            json.loads(line) if line else {"error": f"no answer; its log ends with\n{self._tail()}"}
        )
        if "error" in answer:
            raise WorkFailed(f"{self.name}: {answer['error']}")
        return answer

    def _tail(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-3000:]

    def _stop(self) -> None:
        """Ask it to end by the end of its input; insist after a while, on the JVM too, which is in the same session."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait(STOP_SECONDS)
        assert self._log is not None
        self._log.close()


def peer_side(peer: SparkPeer) -> Side:
    """Spark's own connector."""
    command = [str(peer.python), "-m", "bench.spark_works", "kafka", peer.spark_jars]
    return Side(f"Spark's own, {SPARK_VERSION}", command, peer.environment())


def our_side(peer: SparkPeer | None) -> Side:
    """Our connector on the peer's PySpark, or on the one of this environment."""
    if peer is None:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        return Side(f"ours, {version('pyspark')}", [sys.executable, "-m", "bench.spark_works", "barnabas"], environment)
    return Side(f"ours, {SPARK_VERSION}", [str(peer.python), "-m", "bench.spark_works", "barnabas"], peer.environment())
