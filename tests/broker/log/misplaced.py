"""Things that are no files, put where files of a log should be, for the tests of the broker and of the tools."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def make_directory(path: Path) -> None:
    (path / "inside").mkdir(parents=True)
    (path / "inside" / "file").write_text("kept")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_dangling(path: Path) -> None:
    path.symlink_to("nowhere/at/all")


KINDS: dict[str, Callable[[Path], None]] = {
    "a directory": make_directory,
    "a FIFO": lambda path: os.mkfifo(path),
    "a loop of links": make_loop,
    "a link to nothing": make_dangling,
}
of_every_kind = pytest.mark.parametrize("kind", KINDS)


def put(path: Path, kind: str) -> Path:
    """Something of this kind instead of the file, which is beside it afterwards, if there was one."""
    saved = path.with_name("saved-" + path.name)
    if path.exists():
        path.rename(saved)
    KINDS[kind](path)
    return saved


def take_away(path: Path, saved: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        shutil.rmtree(path)
    if saved.exists():
        saved.rename(path)
