"""The switch between the two forms of the kernel, and the plain form without Cython."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from barnabas import native
from barnabas.records import kernel as package
from tests.records.kernel.forms import COMPILED, load

ASK = "import barnabas.records.kernel.scan as s, barnabas.native as n; print(n.is_kernel_native(), s.__file__)"
WITHOUT_CYTHON = """
import sys
from importlib.machinery import EXTENSION_SUFFIXES
sys.modules["cython"] = None
from importlib import import_module
from barnabas import native
for module in native.KERNEL:
    import_module(module)
from barnabas.records.kernel import checksum, record_layout, scan
assert checksum.crc32c(b"123456789", 0, 9) == 0xE3069283
assert record_layout.check_records(b"", 0, 0) == (0, 0, 0, -1)
assert not scan.BatchScan(0, 0, 0, 0).wants_more
assert "Cython" not in sys.modules
"""


def run(code: str, **environment: str) -> str:
    env = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_plain_form_needs_no_cython() -> None:
    run(WITHOUT_CYTHON, BARNABAS_NATIVE="0")


def test_the_switch_chooses_plain_python() -> None:
    answer, _, file = run(ASK, BARNABAS_NATIVE="0").partition(" ")
    assert (answer, Path(file).suffix) == ("False", ".py")


def test_without_the_switch_the_compiled_form_runs_where_it_was_built() -> None:
    if load(COMPILED) is None:
        pytest.skip("the package was built without a C compiler: there is no compiled kernel")
    answer, _, file = run(ASK, BARNABAS_NATIVE="1").partition(" ")
    assert (answer, Path(file).suffix) == ("True", ".so")


def test_every_module_of_the_kernel_is_listed_or_plain_on_purpose() -> None:
    folder = Path(next(iter(package.__path__)))
    plain = {"__init__", "builder_memory", "plain_reading", "shadow", "wire"}
    found = {path.stem for path in folder.glob("*.py")} - plain
    assert {module.rpartition(".")[2] for module in native.KERNEL if module.startswith(package.__name__)} == found
    assert {path.name for path in folder.glob("*.pxd")} | {"crc32c.h"} == set(native._KERNEL_INCLUDES)


def test_a_newer_include_turns_the_compiled_form_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "scan.py"
    monkeypatch.setattr(native, "source_of", lambda _: str(module))
    twin = tmp_path / f"scan{EXTENSION_SUFFIXES[0]}"
    for path, time in ((module, 1000), (tmp_path / "wire.pxd", 1000), (twin, 1001)):
        path.touch()
        os.utime(path, (time, time))
    assert native._has_good_twin("barnabas.records.kernel.scan", ("wire.pxd",))
    os.utime(tmp_path / "wire.pxd", (1002, 1002))
    assert not native._has_good_twin("barnabas.records.kernel.scan", ("wire.pxd",))
