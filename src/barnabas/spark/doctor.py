"""Why Spark does not work here, and how to mend it: the checks of `barnabas doctor spark`.

Role: looks at each thing that a query needs, in the order in which it needs them, and says of each what was found and, where it is
wrong, what to do. Nothing is changed and no variable is set: a user's session would find the same. Whatever may hang (Java, Spark, other
interpreters) runs in a process of its own with a deadline.
Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["OK", "SKIPPED", "WRONG", "Finding", "Plan", "examine", "explain"]

OK, WRONG, SKIPPED = "ok", "wrong", "not tried"
LEAST_JAVA = 17
LEAST = {"pyspark": (4, 2), "pyarrow": (18, 0)}
QUICK_SECONDS = 30.0

_ASK_MODULES = """
import importlib, json, platform
def version(name):
    try:
        return str(getattr(importlib.import_module(name), "__version__", "?"))
    except Exception:
        return None
print(json.dumps({"python": platform.python_version(), **{name: version(name) for name in ("pyspark", "pyarrow", "barnabas")}}))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    found: str
    status: str = OK
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to examine."""

    master: str = "local[2]"
    remote: str | None = None
    bootstrap: str | None = None
    seconds: float = 180.0

    @property
    def is_local(self) -> bool:
        """Whether workers run on this machine, with what this environment says."""
        return (self.remote or self.master).startswith("local")


def examine(plan: Plan) -> list[Finding]:
    """All checks; what cannot be tried because of an earlier one says so."""
    findings = [Finding("Python", f"{platform.python_version()} ({sys.executable})"), *_modules_here()]
    if plan.remote is None or plan.is_local:
        findings.append(_java())
    if plan.is_local:
        findings.append(_worker_python())
    addresses: list[str] = []
    if plan.bootstrap is not None:
        broker, addresses = _broker(plan.bootstrap)
        findings.append(broker)
    if any(one.status == WRONG and one.check in ("PySpark", "Java") for one in findings):
        return [*findings, Finding("Spark session", "see above", SKIPPED)]
    return [*findings, *_session(plan, addresses)]


# ---------------------------------------------------------------- here


def _modules_here() -> Iterator[Finding]:
    """The driver's own: what runs this command is what would run a query."""
    versions = _versions(sys.executable)
    for name, words in (("pyspark", "PySpark"), ("pyarrow", "Arrow (pyarrow)")):
        yield _module(words, name, versions.get(name), sys.executable)
    from barnabas import __version__, native

    kernel = "compiled" if native.is_kernel_native() else "plain Python, slow: install where there is a C compiler"
    yield Finding("Barnabas", f"{__version__}, record kernel {kernel}")


def _module(check: str, name: str, found: str | None, executable: str) -> Finding:
    install = f'{executable} -m pip install "barnabas[spark]"'
    if found is None:
        return Finding(check, f"{name} is missing", WRONG, install)
    least = LEAST.get(name, (0,))
    if _numbers(found) < least:
        wanted = ".".join(map(str, least))
        return Finding(check, f"{found} is too old, {wanted} is needed", WRONG, f"{install} --upgrade")
    return Finding(check, found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _java() -> Finding:
    """The one that Spark would start: JAVA_HOME's, else the first on PATH."""
    mend = f"install a JDK or JRE {LEAST_JAVA} or newer and set JAVA_HOME to its directory, or have java on PATH"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return Finding("Java", "no Java: JAVA_HOME is not set and there is no java on PATH", WRONG, mend)
    try:
        # The version is written to standard error; the first number in quotes is it: "17.0.15", "1.8.0_402".
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=QUICK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        why = f"no Java: {java} does not run ({error})"
        return Finding("Java", why if home is None else f"{why}; JAVA_HOME is {home}", WRONG, mend)
    version = re.search(r'"([^"]+)"', answer.stderr)
    text = version[1] if version else "?"
    major = _numbers(text)[1] if text.startswith("1.") else (*_numbers(text), 0)[0]
    if major < LEAST_JAVA:
        return Finding("Java", f"{text} ({java}) is too old, Spark needs {LEAST_JAVA}", WRONG, mend)
    return Finding("Java", f"{text} ({java})")


def _worker_python() -> Finding:
    """Spark's rule: PYSPARK_PYTHON, else python3 of PATH, whatever Python the driver runs."""
    check = "Worker's Python"
    chosen = os.environ.get("PYSPARK_PYTHON")
    origin = "PYSPARK_PYTHON" if chosen else "python3 on PATH, as PYSPARK_PYTHON is not set"
    use_ours = f"export PYSPARK_PYTHON={sys.executable}"
    executable = shutil.which(chosen or "python3")
    if executable is None:
        return Finding(check, f"{chosen or 'python3'} ({origin}) does not exist", WRONG, use_ours)
    versions = _versions(executable)
    if "error" in versions:
        return Finding(check, f"{executable} ({origin}) does not run: {versions['error']}", WRONG, use_ours)
    python = versions["python"]
    if _numbers(python) != sys.version_info[:2]:
        other = f"{python} ({executable}, {origin}) is another Python than the driver's {platform.python_version()}"
        return Finding(check, other, WRONG, f"{use_ours} (driver and workers must have the same minor version)")
    missing = [name for name in ("pyarrow", "barnabas") if versions.get(name) is None]  # PySpark comes from the driver
    if missing:
        return Finding(check, *_missing(missing, f"{executable} ({origin})", f"{use_ours}, or {executable}"))
    return Finding(check, f"{python} ({executable}), pyarrow {versions['pyarrow']}")


def _missing(names: list[str], where: str, before_pip: str) -> tuple[str, str, str]:
    return (
        f"{' and '.join(names)} missing in {where}",
        WRONG,
        f'{before_pip} -m pip install "barnabas[spark]"',
    )


def _versions(executable: str) -> dict[str, Any]:
    try:
        answer = subprocess.run(
            [executable, "-c", _ASK_MODULES], capture_output=True, text=True, timeout=QUICK_SECONDS, check=False
        )
        found: dict[str, Any] = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"error": str(error)}
    return found


def _broker(bootstrap: str) -> tuple[Finding, list[str]]:
    """The broker from here, and the addresses that it tells clients to use: an executor must reach those, too."""
    from barnabas.client.admin import Admin
    from barnabas.errors import BarnabasError

    check = "Broker, from the driver"
    given = [one.strip() for one in bootstrap.split(",") if one.strip()]
    try:
        with Admin({"bootstrap.servers": bootstrap, "default.api.timeout.ms": 10_000}) as admin:
            nodes = admin.describe_cluster().nodes
    except BarnabasError as error:
        mend = "start the broker, or correct --bootstrap-server; the broker's advertised.listeners must be reachable from here"
        return Finding(check, f"not reachable from the driver: {error}", WRONG, mend), given
    told = [f"{node.host}:{node.port}" for node in nodes]
    return Finding(check, f"{bootstrap} answers, brokers: {', '.join(told)}"), list(dict.fromkeys([*given, *told]))


# ---------------------------------------------------------------- the session and its workers


def _session(plan: Plan, addresses: list[str]) -> list[Finding]:
    where = plan.remote or plan.master
    found = _probed(plan, addresses)
    findings = []
    if "spark" in found:
        findings.append(Finding("Spark session", f"Spark {found['spark']} ({where})"))
    if "error" in found:
        known = explain(found["error"])
        if known is None:
            short = " ".join(found["error"].split())[:500]
            known = Finding(
                "Workers" if findings else "Spark session", short, WRONG, "see the message, and Spark's log"
            )
        return [*findings, known]
    findings += [one for worker in found["workers"] for one in _worker(worker, addresses)]
    if found["format"] is None:
        return [*findings, Finding('format("barnabas")', "found by Spark")]
    known = explain(found["format"])
    why = " ".join(found["format"].split())[:500] if known is None else known.found
    mend = "install barnabas where the driver's PYSPARK_PYTHON sees it, or call barnabas.spark.register(spark)"
    return [*findings, Finding('format("barnabas")', why, WRONG, mend if known is None else known.mend)]


def _probed(plan: Plan, addresses: list[str]) -> dict[str, Any]:
    """What the probe found; whatever happens, its processes (Java, workers) are gone afterwards."""
    wanted = json.dumps({"master": plan.master, "remote": plan.remote, "addresses": addresses})
    child = subprocess.Popen(
        [sys.executable, "-m", "barnabas.spark.probe"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, log = child.communicate(wanted, plan.seconds)
    except subprocess.TimeoutExpired:
        return {
            "error": f"no answer of {plan.remote or plan.master} within {plan.seconds:.0f} s: "
            "does the cluster exist, and has it room for a task?"
        }
    finally:
        _end(child)
    from barnabas.spark.probe import MARK

    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        return {"error": f"the session ended with exit code {child.returncode}: {log[-2000:]}"}
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    if "error" in found:
        found["error"] += "\n" + log[-20_000:]
    return found


def _end(child: subprocess.Popen[str]) -> None:
    """The child leads a process group of its own; Java and the workers are in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def _worker(worker: dict[str, Any], addresses: list[str]) -> Iterator[Finding]:
    """What one worker answered."""
    host = worker["host"]
    where = f"{worker['executable']} on {host}"
    missing = [name for name in ("pyarrow", "barnabas") if worker[name] is None]
    if missing:
        yield Finding(f"Worker on {host}", *_missing(missing, where, f"on that machine: {worker['executable']}"))
    else:
        yield Finding(f"Worker on {host}", f"Python {worker['python']} ({where}), pyarrow {worker['pyarrow']}")
    if addresses:
        yield _reach(host, addresses, worker["unreachable"])


def _reach(host: str, addresses: list[str], unreachable: dict[str, str]) -> Finding:
    check = f"Broker, from the executor on {host}"
    if not unreachable:
        return Finding(check, f"{', '.join(addresses)} reachable")
    why = "; ".join(f"{address}: {error}" for address, error in unreachable.items())
    return Finding(
        check,
        f"not reachable from the executor on {host}: {why}",
        WRONG,
        "open the network between that machine and the broker; the broker's advertised.listeners must name what executors can reach",
    )


_SIGNS: tuple[tuple[str, str, str, str], ...] = (
    (
        "UnsupportedClassVersionError",
        "Java",
        "Java is too old for this Spark",
        f"install Java {LEAST_JAVA} or newer and set JAVA_HOME",
    ),
    (
        "JAVA_GATEWAY_EXITED",
        "Java",
        "Java does not start",
        f"install Java {LEAST_JAVA} or newer and set JAVA_HOME; Spark's own message is above this line of its log",
    ),
    (
        "PYTHON_VERSION_MISMATCH",
        "Worker's Python",
        "a worker has another Python version than the driver",
        "set PYSPARK_PYTHON to the same minor version as the driver's, on every machine",
    ),
    (
        "MissingOnWorker: pyarrow",
        "Worker's Python",
        "pyarrow is missing on a worker",
        'on every machine, with the worker\'s Python: python -m pip install "barnabas[spark]"',
    ),
    (
        "No module named 'pyarrow'",
        "Worker's Python",
        "pyarrow is missing on a worker",
        'on every machine, with the worker\'s Python: python -m pip install "barnabas[spark]"',
    ),
    (
        "No module named 'barnabas'",
        "Worker's Python",
        "barnabas is missing on a worker",
        'on every machine, with the worker\'s Python: python -m pip install "barnabas[spark]"',
    ),
    (
        "No module named 'pyspark'",
        "Worker's Python",
        "pyspark is missing on a worker",
        'on every machine, with the worker\'s Python: python -m pip install "barnabas[spark]"',
    ),
    (
        "Cannot run program",
        "Worker's Python",
        "the Python of PYSPARK_PYTHON does not exist on a worker",
        "set PYSPARK_PYTHON to an interpreter that is on every machine",
    ),
)


def explain(error: str) -> Finding | None:
    """Which of the usual failures an error of Spark is."""
    for sign, check, words, mend in _SIGNS:
        if sign in error:
            line = next((line.strip() for line in error.splitlines() if sign in line), "")
            return Finding(check, f"{words}: {line[:300]}", WRONG, mend)
    return None
