"""All targets under atheris, two at a time, a line each: `make fuzz`. And trying single inputs again.

Role: the command line of `python -m tests.fuzz`. A target runs in a process of its own; what it found is kept in tests/fuzz/findings, for
a test, and what made its coverage grow in .cache/fuzz, for the next run.
Thread: the main one; `Campaign` has a thread per process that runs at a time. Lock: none, each thread has its own targets.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.engine import is_available
from tests.fuzz.target import NAMES, Target, corpus_of, findings_of

ROOT = Path(__file__).resolve().parents[2]
GROWN = ROOT / ".cache" / "fuzz"
IN_MEMORY = next((path for path in ("/dev/shm",) if os.access(path, os.W_OK)), None)
SHARE = {"fetched": 0.5, "logs": 0.2, "scan": 0.5, "http": 2.0, "lines": 2.0, "offsets": 2.0, "settings": 2.0}
"""Of the inputs, relative to 1: slow targets get fewer, quick ones more."""
MEMORY_MB = 512
HANG_SECONDS = 60
_DONE = re.compile(r"Done (\d+) runs in (\d+) second")
_STATE = re.compile(r"#(\d+)\s.*?cov: (\d+) ft: (\d+) corp: (\d+)\S* .*?exec/s: (\d+) rss: (\d+)Mb")
NOT_INSTALLED = "atheris is not installed; it has wheels for Linux on x86-64 only: nothing is fuzzed by coverage"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the run of one target."""

    runs: int
    seed: int
    strict: bool = False
    memory_mb: int = MEMORY_MB


@dataclass(frozen=True, slots=True)
class Result:
    """What a run of a target came to."""

    name: str
    code: int
    output: str
    findings: tuple[Path, ...]

    @property
    def runs(self) -> int:
        done = _DONE.search(self.output)
        return int(done[1]) if done else max((int(state[1]) for state in _STATE.finditer(self.output)), default=0)

    @property
    def line(self) -> str:
        states = list(_STATE.finditer(self.output))
        done = _DONE.search(self.output)
        coverage, features, kept, memory = (states[-1].group(2, 3, 4, 6)) if states else ("?",) * 4
        rate = self.runs // max(1, int(done[2])) if done else (states[-1][5] if states else "?")
        text = f"{self.name:12} {self.runs:>9} runs  coverage {coverage:>5}  features {features:>6}  inputs {kept:>5}"
        text += f"  {rate:>6}/s  {memory:>4} MB  "
        if self.code == 0:
            return text + "no finding"
        return text + f"FINDING: {', '.join(str(each.relative_to(ROOT)) for each in self.findings) or 'see above'}"

    @property
    def trace(self) -> str:
        """The end of what a run that failed has said, without what is of no use to people."""
        lines = [line for line in self.output.splitlines() if not line.startswith(("INFO", "#", "NOTE", "SUMMARY"))]
        return "\n".join(line[:400] for line in lines[-40:] if not line.startswith(("WARNING", "0x", "\\", "Base64")))


def run_target(name: str, limits: Limits, grown: Path, artifacts: Path, seconds: float | None = None) -> Result:
    """Run one target in a process of its own. `grown` takes inputs that made the coverage grow, `artifacts` findings."""
    grown.mkdir(parents=True, exist_ok=True)
    artifacts.mkdir(parents=True, exist_ok=True)
    before = set(artifacts.iterdir())
    options = [
        f"-runs={limits.runs}",
        f"-seed={limits.seed}",
        f"-rss_limit_mb={limits.memory_mb}",
        f"-timeout={HANG_SECONDS}",
        f"-artifact_prefix={artifacts}{os.sep}",
        "-print_final_stats=0",
        *(["--strict"] if limits.strict else []),
    ]
    folders = [str(folder) for folder in (grown, corpus_of(name), findings_of(name)) if folder.is_dir()]
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    with tempfile.TemporaryDirectory(prefix="barnabas-fuzz-", dir=IN_MEMORY) as scratch:
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.engine", name, *options, *folders],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path, "TMPDIR": scratch},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    found = tuple(sorted(set(artifacts.iterdir()) - before))
    return Result(name, done.returncode, done.stdout.decode(errors="replace"), found)


def run_all(names: Sequence[str], limits: Limits, jobs: int) -> int:
    """Run targets, `limits.runs` inputs all together; how many have findings."""
    whole = sum(SHARE.get(name, 1.0) for name in names)

    def one(name: str) -> Result:
        runs = max(1, round(limits.runs * SHARE.get(name, 1.0) / whole))
        own = Limits(runs, limits.seed, limits.strict, limits.memory_mb)
        result = run_target(name, own, GROWN / name, findings_of(name))
        print(result.line, flush=True)
        if result.code:
            print(result.trace, flush=True)
        return result

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(one, names))
    bad = sum(1 for result in results if result.code)
    print(f"{sum(result.runs for result in results)} inputs, {len(names)} targets, {bad} with findings", flush=True)
    return bad


def replay(name: str, files: Sequence[str]) -> None:
    """Try inputs once more, with the traceback of whatever they raise."""
    target = Target(name)
    for file in files:
        target.run(Path(file).read_bytes())
        print(f"{file}: fine")


def write_corpus(names: Sequence[str]) -> None:
    for name in names:
        folder = corpus_of(name)
        folder.mkdir(parents=True, exist_ok=True)
        for seed, data in Target(name).seeds().items():
            (folder / seed).write_bytes(data)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("target", nargs="?", choices=NAMES, help="only this one; all without")
    parser.add_argument("files", nargs="*", help="inputs to try once, instead of fuzzing")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs of all targets together")
    parser.add_argument("--frames", type=int, default=0, help="mutated frames that are sent to a live broker")
    parser.add_argument("--seed", type=int, default=0, help="0 takes another one each time")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--write-corpus", action="store_true", help="write the kept corpus anew and do nothing else")
    given = parser.parse_args(arguments)
    names = (given.target,) if given.target else NAMES
    if given.write_corpus:
        write_corpus(names)
        return 0
    if given.files:
        replay(given.target, given.files)
        return 0
    bad = 0
    if is_available():
        bad = run_all(names, Limits(given.runs, given.seed, strict=True), given.jobs)
    else:
        print(NOT_INSTALLED)
    if given.frames and not given.target:
        from tests.fuzz.attack import attack_and_report

        bad += attack_and_report(given.frames, given.seed)
    return 1 if bad else 0
