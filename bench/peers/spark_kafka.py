"""Spark's own Kafka connector, with the PySpark that it fits, in an environment of its own in the cache directory.

Role: fetches both once (PySpark through pip, the jars through Maven) and says where they are. The environment sees the packages of the one
that made it behind its own, so that both sides run on the same pyarrow, and `barnabas` is there too. It appears by a rename, as the
jars of Kafka do. Called by any process; a file lock guards the cache. Thread: the caller's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.peers.jars import PeerUnavailable, cache_directory, locked, run_maven

__all__ = ["SPARK_VERSION", "SparkPeer", "ensure_spark_peer", "find_spark_peer"]

SPARK_VERSION = "4.2.0"
PACKAGES = (f"pyspark=={SPARK_VERSION}", "py4j>=0.10.9.7,<0.10.9.10")
ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    # Not every version is in the repositories; the connector needs this one only where there is Kerberos.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
INSTALL_SECONDS = 1200
_NAME = f"spark-{SPARK_VERSION}-peer-"


@dataclass(frozen=True, slots=True)
class SparkPeer:
    """An interpreter that has the older PySpark, and the jars of the connector that fits it."""

    python: Path
    jars: tuple[Path, ...]

    @property
    def spark_jars(self) -> str:
        """The value of `spark.jars`."""
        return ",".join(map(str, self.jars))

    def environment(self) -> dict[str, str]:
        """What a process of the peer needs: its own interpreter for Spark's workers, and no other Spark than its own."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "VIRTUAL_ENV")}
        return {**inherited, "PYSPARK_PYTHON": str(self.python), "PYSPARK_DRIVER_PYTHON": str(self.python)}


def find_spark_peer() -> SparkPeer:
    """The peer when it is here already; PeerUnavailable says how to get it."""
    directory = _directory()
    if shutil.which("java") is None:
        raise PeerUnavailable("java is not installed (Debian and Ubuntu: apt-get install default-jre-headless)")
    if not directory.is_dir():
        raise PeerUnavailable("`make spark-peer` fetches it (about 450 MB)")
    return SparkPeer(directory / "bin" / "python", tuple(sorted((directory / "jars").glob("*.jar"))))


def ensure_spark_peer(tell: Callable[[str], None]) -> SparkPeer:
    """The peer; fetches it first if it is not here yet, and tells of each step."""
    target = _directory()
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent / "spark-peer.lock"):
            if not target.is_dir():  # another process may have fetched it while this one waited for the lock
                _fetch(target, tell)
    return find_spark_peer()


def _directory() -> Path:
    here = Path(sys.prefix).resolve()
    if here.name.startswith(_NAME):
        return here  # the peer itself asks, as in `make test-spark42`
    made_of = (PACKAGES, ARTIFACTS, str(here), sys.version_info[:2])
    return cache_directory() / f"{_NAME}{hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]}"


def _fetch(target: Path, tell: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="spark-peer-part-") as part:
        environment = Path(part) / "environment"
        for number, artifact in enumerate(ARTIFACTS, 1):
            tell(f"jar {number} of {len(ARTIFACTS)}: {artifact}")
            # One by one: Maven finds no set of versions that satisfies what the poms ask for together.
            run_maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={environment / 'jars'}")
        tell(f"PySpark {SPARK_VERSION} (about 450 MB)")
        _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        python = str(environment / "bin" / "python")
        _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", *PACKAGES)
        _see_packages_of_this_environment(environment)
        environment.rename(target)


def _see_packages_of_this_environment(environment: Path) -> None:
    """Behind its own: pyarrow and whatever tests need is there, PySpark is the older one."""
    folder = environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    here = str(Path(sysconfig.get_paths()["purelib"]).resolve())
    (folder / "behind.pth").write_text(f"import site; site.addsitedir({here!r})\n")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"PySpark {SPARK_VERSION} was not there after {INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or [done.stderr[-300:]]
        raise PeerUnavailable(f"PySpark {SPARK_VERSION} could not be installed: {lines[0]}")
