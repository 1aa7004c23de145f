"""The compiled form of the request path and the switch that chooses it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from barnabas import native

ASK = "import barnabas.net.selector as s, barnabas.native as n; print(n.is_native(), s.__file__)"


def ask(**environment: str) -> tuple[bool, str]:
    """Whether a fresh process runs compiled, and the file that it imported."""
    env = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True, timeout=60)
    answer, _, file = done.stdout.strip().partition(" ")
    return answer == "True", file


def test_every_listed_module_has_a_source() -> None:
    assert [module for module in native.MODULES if not Path(native.source_of(module)).exists()] == []
    assert list(native.MODULES) == sorted(set(native.MODULES))


def test_the_switch_chooses_plain_python() -> None:
    running, file = ask(BARNABAS_NATIVE="0")
    assert not running
    assert file.endswith("selector.py")


def test_without_the_switch_the_compiled_form_runs_where_it_was_built() -> None:
    running, file = ask(BARNABAS_NATIVE="1")
    twins = [Path(native.source_of(module)).with_suffix("").name for module in native.MODULES]
    built = all(
        list(Path(native.source_of(module)).parent.glob(f"{twin}.*.so"))
        for module, twin in zip(native.MODULES, twins, strict=True)
    )
    if not built:
        pytest.skip("the package was built without a C compiler: there is nothing compiled to run")
    assert running == file.endswith(".so")


def test_the_tests_themselves_run_plain_python() -> None:
    """Else replacing a method or passing a stand-in would fail."""
    assert not native.is_native()


def test_a_source_newer_than_its_twin_turns_the_compiled_form_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, twin = tmp_path / "module.py", tmp_path / f"module{EXTENSION_SUFFIXES[0]}"
    monkeypatch.setattr(native, "source_of", lambda _: str(source))
    assert not native._has_good_twin("barnabas.module")
    source.touch()
    twin.touch()
    os.utime(source, (1_000, 1_000))
    assert native._has_good_twin("barnabas.module")
    os.utime(twin, (999, 999))
    assert not native._has_good_twin("barnabas.module")
