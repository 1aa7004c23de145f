"""Data directories in memory: made, removed, and cleaned up after a process that was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from barnabas.broker.memory_directory import PREFIX, MemoryDirectory, memory_root, remove_abandoned

HOLD_A_DIRECTORY = """
import sys
from pathlib import Path
from barnabas.broker.memory_directory import MemoryDirectory
with MemoryDirectory(Path(sys.argv[1])) as directory:
    print(directory.path, flush=True)
    sys.stdin.read()
"""


def start_holder(root: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_DIRECTORY, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=20)


def test_the_directory_exists_inside_and_is_gone_afterwards(tmp_path: Path) -> None:
    with MemoryDirectory(tmp_path) as directory:
        assert directory.path.is_dir()
        (directory.path / "t-0").mkdir()
        assert directory.path.name.startswith(PREFIX)
    assert list(tmp_path.iterdir()) == []


def test_a_place_is_found_on_every_system() -> None:
    assert memory_root().is_dir()


def test_the_directory_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    process, left_behind = start_holder(tmp_path)
    process.send_signal(signal.SIGKILL)
    end(process)
    assert left_behind.is_dir()
    with MemoryDirectory(tmp_path):
        assert not left_behind.exists()


def test_the_directory_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    process, held = start_holder(tmp_path)
    try:
        assert remove_abandoned(tmp_path) == []
        assert held.is_dir()
    finally:
        end(process)
    assert not held.exists()


def test_things_that_are_not_ours_are_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / ".owner").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(victim)
    (tmp_path / f"{PREFIX}no-owner-file").mkdir()
    assert remove_abandoned(tmp_path) == []
    assert victim.is_dir()
