"""The load generators rr.c and fetch.c: compiled on first use into the cache directory, run in the foreground, output parsed.

They are in C so that the generator takes little of the processor time that both brokers under test compete for.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.peers.jars import cache_directory

SOURCES = Path(__file__).parent
_RR = re.compile(r"(?P<conns>\d+) conns (?P<rate>\d+) req/s p50 (?P<p50>\d+)us p99 (?P<p99>\d+)us")
_FETCH = re.compile(r"= (?P<rate>\d+) MB/s")


class GeneratorFailed(Exception):
    """A generator did not build, or a broker did not do what the generator asked; the text says which."""


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """What one run of rr saw."""

    per_second: float
    p50_us: float
    p99_us: float


def rr(port: int, connections: int, seconds: float, topic: str, idle: int = 0) -> RoundTrips:
    """Closed loop of one-record Produce requests of 100 bytes with acks=1, beside `idle` silent connections."""
    arguments = ["-i", str(idle), str(port), str(connections), str(seconds), topic]
    output = _run("rr", arguments, timeout=seconds + 120)
    found = _RR.search(output)
    if found is None:
        raise GeneratorFailed(f"rr printed {output!r}")
    return RoundTrips(float(found["rate"]), float(found["p50"]), float(found["p99"]))


def fetch(port: int, connections: int, topic: str, bytes_per_connection: int) -> float:
    """Megabytes per second over all connections, each of which reads partition 0 from its start."""
    output = _run("fetch", [str(port), str(connections), topic, str(bytes_per_connection)], timeout=300)
    found = _FETCH.search(output)
    if found is None:
        raise GeneratorFailed(f"fetch printed {output!r}")
    return float(found["rate"])


def build(name: str) -> Path:
    """The program, compiled anew whenever its source has changed."""
    source = SOURCES / f"{name}.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    program = cache_directory() / "bin" / f"{name}-{digest}"
    if not program.exists():
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise GeneratorFailed("no C compiler (Debian and Ubuntu: apt-get install gcc libc6-dev)")
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O2", "-pthread", "-o", str(part), str(source)], check=True, timeout=60)
        part.rename(program)
    return program


def _run(name: str, arguments: list[str], timeout: float) -> str:
    command = [str(build(name)), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise GeneratorFailed(f"{name} {' '.join(arguments)} did not end within {timeout:.0f} s") from None
    if done.returncode != 0:
        raise GeneratorFailed(f"{name} {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
