"""Kafka's own command-line programs, run as a user runs them: one JVM per call, in the foreground, with a deadline.

Heap sizes are those of Kafka's start scripts; the JVM options trade nothing but start-up time (a short-lived JVM never reaches
the second compiler), and the performance tools get none of them, so that they run as they would from Kafka's own script.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from bench.peers.jars import ensure_jars

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
PACKAGE = "org.apache.kafka.tools"
_SUMMARY = re.compile(
    r"^(?P<count>\d+) records sent, (?P<rate>[\d.]+) records/sec \((?P<mb>[\d.]+) MB/sec\), "
    r"(?P<average>[\d.]+) ms avg latency, .*99th",
    re.MULTILINE,
)


class ToolFailed(Exception):
    """A tool ended with an error, or its output is not what it should be; the text holds the output."""


@dataclass(frozen=True, slots=True)
class ProducerRun:
    """One call of ProducerPerformance: what to send and with which producer settings."""

    topic: str
    records: int
    record_bytes: int
    properties: tuple[str, ...] = ()


def java_command(main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    return ["java", *options, "-cp", f"{ensure_jars()}/*", main_class, *arguments]


def run_tool(main_class: str, *arguments: str, timeout: float = 60, stdin: str | None = None) -> str:
    """Run a short-lived tool; its standard output. A bare class name is one of `org.apache.kafka.tools`."""
    name = main_class if "." in main_class else f"{PACKAGE}.{main_class}"
    return _finished(java_command(name, *arguments, options=("-Xmx256M", *QUICK)), timeout, stdin).stdout


def dump_log_segments(files: list[str], *options: str, timeout: float = 60) -> tuple[str, str]:
    """What DumpLogSegments prints about files of a log, and what it complains about."""
    arguments = (*options, "--files", ",".join(files))
    done = _finished(
        java_command(f"{PACKAGE}.DumpLogSegments", *arguments, options=("-Xmx256M", *QUICK)), timeout, None
    )
    return done.stdout, done.stderr


def producer_performance(bootstrap: str, run: ProducerRun, timeout: float = 600) -> float:
    """Records per second, as ProducerPerformance itself reports them for the whole run, all records acknowledged."""
    arguments = ["--topic", run.topic, "--num-records", str(run.records), "--record-size", str(run.record_bytes)]
    arguments += ["--throughput", "-1", "--bootstrap-server", bootstrap]
    if run.properties:
        arguments += ["--command-property", *run.properties]
    command = java_command(f"{PACKAGE}.ProducerPerformance", *arguments, options=("-Xmx512M",))
    output = _finished(command, timeout, None).stdout
    summary = _SUMMARY.search(output)
    if summary is None or int(summary["count"]) != run.records:
        raise ToolFailed(f"ProducerPerformance did not deliver {run.records} records:\n{output[-2000:]}")
    return float(summary["rate"])


def _finished(command: list[str], timeout: float, stdin: str | None) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, input=stdin, check=False)
    except subprocess.TimeoutExpired as late:
        raise ToolFailed(f"{_main_class(command)} did not end within {timeout:.0f} s:\n{late.stdout!r}") from None
    if done.returncode != 0:
        raise ToolFailed(
            f"{_main_class(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    return done


def _main_class(command: list[str]) -> str:
    return command[command.index("-cp") + 2].rsplit(".", 1)[-1]
