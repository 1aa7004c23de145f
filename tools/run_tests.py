"""Runs the test suite as `make test` does, and runs each failed test once more, alone.

Role: three steps. The tests that may share the machine run in parallel, those marked `serial` run alone, then every failed test runs again
in a process of its own. A test that passes then is flaky: it is printed at the end with its first failure. More than `MAX_FLAKY` of
them fail the run, because a suite that nobody believes protects nobody. A test that fails twice has failed.

    python tools/run_tests.py --workers 3 [what pytest takes: paths, -k, …]

The exit code is 0 when nothing failed twice and at most `MAX_FLAKY` tests were flaky.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

MAX_FLAKY = 3
MAX_RERUNS = 20
"""When more tests fail than this, something is broken: running them again would only take time."""
FAILURES_FILE = "BARNABAS_FAILED_TESTS"
"""Where `tests/conftest.py` writes a line of JSON per failed test."""
NO_TESTS = 5  # pytest's exit code when it selected nothing
SHOWN_LINES = 40


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed, and what pytest said of it."""

    test: str
    text: str


def run_pytest(arguments: list[str], failures: Path) -> tuple[int, list[Failure]]:
    """One run of pytest: its exit code and the tests that failed."""
    failures.unlink(missing_ok=True)
    code = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], env=os.environ | {FAILURES_FILE: str(failures)}, check=False
    ).returncode
    lines = failures.read_text().splitlines() if failures.exists() else []
    return code, [Failure(**json.loads(line)) for line in lines]


def is_broken(code: int, failed: list[Failure]) -> bool:
    """Whether pytest itself could not do its work: an interrupt, an internal error, a module that cannot be imported."""
    return code not in (0, NO_TESTS) and not (code == 1 and failed)


def run_again(failed: list[Failure], directory: Path) -> tuple[list[Failure], list[Failure]]:
    """Each test alone: those that pass now, and those that fail again."""
    flaky: list[Failure] = []
    broken: list[Failure] = []
    for failure in failed:
        print(f"\nrunning again, alone: {failure.test}", flush=True)
        code, _ = run_pytest([failure.test, "-q", "--no-header"], directory / "again")
        (broken if code else flaky).append(failure)
    return flaky, broken


def report(flaky: list[Failure], broken: list[Failure]) -> int:
    """Print what the second runs showed; the exit code of the whole run."""
    for failure in flaky:
        print(f"\nflaky: {failure.test} failed once and passed alone. Its first failure:")
        print("\n".join(failure.text.splitlines()[-SHOWN_LINES:]))
    for failure in broken:
        print(f"failed twice: {failure.test}")
    if flaky or broken:
        print(f"\n{len(flaky)} flaky (at most {MAX_FLAKY} may be), {len(broken)} failed twice")
    return 1 if broken or len(flaky) > MAX_FLAKY else 0


def run_all(workers: str, arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        parallel, failed = run_pytest(["-n", workers, "-m", "not serial", "-q", *arguments], directory / "first")
        serial, failed_alone = run_pytest(["-m", "serial", "-q", *arguments], directory / "second")
        if is_broken(parallel, failed) or is_broken(serial, failed_alone):
            return max(parallel, serial)
        if parallel == serial == NO_TESTS:
            return NO_TESTS
        failed += failed_alone
        if len(failed) > MAX_RERUNS:
            print(f"{len(failed)} tests failed: not run again")
            return 1
        return report(*run_again(failed, directory))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", default="2", help="processes of the parallel part (default: 2)")
    options, rest = parser.parse_known_args()
    return run_all(options.workers, rest)


if __name__ == "__main__":
    sys.exit(main())
