"""Issue 18: what the broker keeps on disk is readable by its own user only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.catalog import CATALOG_FILE_NAME
from barnabas.testing import EmbeddedBroker
from tests import wire

SETTINGS = {
    "barnabas.metrics.listener": "",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.segment.bytes": "1048576",
}


@pytest.fixture
def lenient() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    """By path relative to the root, also of what a running broker may be about to remove."""
    found = {".": stat.S_IMODE(root.stat().st_mode)}
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory, name)
            found[str(path.relative_to(root))] = stat.S_IMODE(path.lstat().st_mode)
    return found


def run(data: Path) -> dict[str, int]:
    """Work that makes every kind of file; the modes while the broker runs and after it."""
    with EmbeddedBroker(topics={"t": 2}, config=SETTINGS, data_dir=data) as broker, wire.connect(broker.port) as sock:
        wire.ask(sock, wire.produce("t", wire.batch([b"a", b"b"])))
        wire.ask(sock, wire.fetch("t", 0))
        running = modes(data)
    return running | modes(data)


@pytest.mark.usefixtures("lenient")
def test_directories_are_0700_and_files_0600_whatever_the_umask(tmp_path: Path) -> None:
    """At d6c2b90 they were 0777 and 0644."""
    found = run(tmp_path / "above" / "data")
    kinds = {
        ".lock",
        "meta.properties",
        CATALOG_FILE_NAME,
        CATALOG_FILE_NAME + "-wal",
        "recovery-point-offset-checkpoint",
    }
    assert kinds <= set(found)
    assert {name for name in found if name.endswith((".log", ".index", ".timeindex"))}
    wrong = {
        name: oct(mode)
        for name, mode in found.items()
        if mode != (0o700 if (tmp_path / "above" / "data" / name).is_dir() else 0o600)
    }
    assert not wrong
    assert stat.S_IMODE((tmp_path / "above").stat().st_mode) == 0o700


def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """Another user may share the directory on purpose, and Apache Kafka's files stay what they were."""
    data = tmp_path / "data"
    run(data)
    data.chmod(0o750)
    for path in data.rglob("*.log"):
        path.chmod(0o640)
    kept = {name: mode for name, mode in run(data).items() if name == "." or name.endswith(".log")}
    assert kept["."] == 0o750
    assert {mode for name, mode in kept.items() if name != "."} == {0o640}
