"""`make test` runs a failed test once more, alone, and says which tests were flaky (tools/run_tests.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import conftest
from tools import run_tests

FAILS_ONCE = """
from pathlib import Path
MARK = Path(__file__).with_suffix(".ran")
def test_fails_once():
    first = not MARK.exists()
    MARK.touch()
    assert not first, "the reason of the first failure"
"""
FAILS = "def test_fails():\n    assert False\n"
PASSES = "def test_passes():\n    pass\n"
HOOK_ONLY = "import json, os\nimport pytest\n"


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty suite with our hook, in which pytest is run."""
    source = Path(str(conftest.__file__)).read_text()
    hook = source[source.index("def pytest_runtest_logreport") : source.index("def pytest_runtest_setup")]
    (tmp_path / "conftest.py").write_text(HOOK_ONLY + hook)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = serial\naddopts = -p xdist -p no:cacheprovider\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # seconds less for each run
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return tmp_path


def write(suite: Path, **tests: str) -> None:
    for name, text in tests.items():
        (suite / f"test_{name}.py").write_text(text)


def test_a_test_that_passes_alone_is_flaky_and_shown_with_its_first_failure(
    suite: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(suite, once=FAILS_ONCE, good=PASSES)
    assert run_tests.run_all("2", []) == 0
    out = capfd.readouterr().out
    assert "flaky: test_once.py::test_fails_once failed once and passed alone" in out
    assert "the reason of the first failure" in out.partition("flaky: ")[2]


def test_a_test_that_fails_twice_fails_the_run(suite: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(suite, bad=FAILS, good=PASSES)
    assert run_tests.run_all("2", []) == 1
    assert "failed twice: test_bad.py::test_fails" in capfd.readouterr().out


def test_too_many_flaky_tests_fail_the_run(suite: Path) -> None:
    write(suite, **{f"once{number}": FAILS_ONCE for number in range(run_tests.MAX_FLAKY + 1)})
    assert run_tests.run_all("2", []) == 1


def test_serial_tests_run_too_and_may_fail(suite: Path) -> None:
    write(suite, alone="import pytest\n@pytest.mark.serial\n" + FAILS, good=PASSES)
    assert run_tests.run_all("2", []) == 1


def test_a_suite_that_cannot_be_imported_is_not_run_again(suite: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(suite, broken="import a_module_that_is_not_there\n", good=PASSES)
    assert run_tests.run_all("2", []) != 0
    assert "running again" not in capfd.readouterr().out


def test_no_tests_at_all_is_said(suite: Path) -> None:
    assert run_tests.run_all("2", []) == run_tests.NO_TESTS


def test_all_green_is_green(suite: Path) -> None:
    write(suite, good=PASSES)
    assert run_tests.run_all("2", []) == 0
