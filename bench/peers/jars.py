"""Apache Kafka's jars, fetched once with Maven into the cache directory. Called by any thread or process; a file lock guards the cache.

The cache is `$BARNABAS_CACHE`, else `.cache` in the work tree (ignored by git). The directory of the jars carries a digest of
the pom, so a changed version is fetched anew, and it appears by a rename, so an interrupted download is never taken for a whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
REPOSITORY = Path(__file__).resolve().parents[2]
DOWNLOAD_SECONDS = 600


class PeerUnavailable(Exception):
    """Apache Kafka cannot be had here; the text says in one line what is missing."""


def cache_directory() -> Path:
    chosen = os.environ.get("BARNABAS_CACHE")
    return Path(chosen).expanduser() if chosen else REPOSITORY / ".cache"


def jar_directory() -> Path:
    """Where the jars of the present pom are, or will be once fetched."""
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    return cache_directory() / f"kafka-jars-{digest}"


def ensure_jars() -> Path:
    """The directory with all jars; fetches them first if they are not there yet."""
    if shutil.which("java") is None:
        raise PeerUnavailable("java is not installed (Debian and Ubuntu: apt-get install default-jre-headless)")
    target = jar_directory()
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / "kafka-jars.lock"):
        if not target.is_dir():  # another process may have fetched them while this one waited for the lock
            _fetch(target)
    return target


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time, by a lock on a file."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="kafka-jars-part-") as part:
        # A pom that Maven has not to write beside: some plugins leave a `target` directory next to it.
        pom = shutil.copy(POM, Path(part) / "pom.xml")
        libs = Path(part) / "libs"
        run_maven("-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={libs}")
        if not any(libs.glob("kafka_*.jar")):
            raise PeerUnavailable("Maven ended without an error but fetched no Kafka jar")
        libs.rename(target)


def run_maven(*arguments: str | Path) -> None:
    """Run Maven; PeerUnavailable with its first complaint."""
    if shutil.which("mvn") is None:
        raise PeerUnavailable("Maven is not installed (Debian and Ubuntu: apt-get install maven)")
    command = ["mvn", "--batch-mode", "--quiet", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not fetch the jars within {DOWNLOAD_SECONDS} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise PeerUnavailable(f"Maven could not fetch the jars: {lines[0] if lines else done.stderr[-300:]}")
