"""The kept corpus and all inputs that were findings once, without atheris."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.target import HERE, NAMES, Target, corpus_of, findings_of

MOST_KEPT_BYTES = 300_000


def inputs(name: str) -> list[Path]:
    folders = (corpus_of(name), findings_of(name))
    return sorted(file for folder in folders if folder.is_dir() for file in folder.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_kept_inputs_break_no_promise(name: str) -> None:
    """In a process of its own: targets change constants and switch logging off."""
    files = inputs(name)
    assert files, f"{name} has no corpus: python -m tests.fuzz {name} --write-corpus"
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", name, *map(str, files)],
        cwd=HERE.parents[1],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(("src", "."))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"behind {done.stdout.splitlines()[-1:]}:\n{done.stderr[-4000:]}"
    assert done.stdout.count(": fine") == len(files)


def test_the_kept_corpus_is_small() -> None:
    sizes = {name: sum(file.stat().st_size for file in inputs(name)) for name in NAMES}
    assert sum(sizes.values()) < MOST_KEPT_BYTES, json.dumps(sizes)


def test_every_folder_of_inputs_belongs_to_a_target() -> None:
    folders = {each.name for kind in ("corpus", "findings") for each in (HERE / kind).iterdir() if each.is_dir()}
    assert folders <= set(NAMES)


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(KeyError, match="there is no target nothing; there are: batches"):
        Target("nothing")
