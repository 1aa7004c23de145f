"""The processes beside the broker: the bystander and the hostile client. They prepare, say so, and act when they are told to.

Role: both ends of the talk. A child prints a line of JSON when it is ready and one after each run; it is told to run by a line with the
most seconds that the run may take, and may be told to end it early by an empty line.
Thread: the caller's. Lock: none. A `Child` is a context manager: its process is gone at the end of the block.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from bench.brokers import dies_with_its_parent

__all__ = ["Child", "ChildFailed", "serve", "told_to_end"]

READY_SECONDS = 60
REPOSITORY = Path(__file__).resolve().parents[2]


class ChildFailed(Exception):
    """A child ended, or said nothing in time; the text holds the end of what it printed."""


class Child:
    """The parent's end."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._name = module.rpartition(".")[2]
        self._command = [sys.executable, "-m", module, *map(str, arguments)]
        self._log: IO[bytes]
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile(prefix="barnabas-bench-")
        self._process = subprocess.Popen(
            [*dies_with_its_parent(), *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=REPOSITORY,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(10)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()

    def wait_until_ready(self) -> None:
        self.result(READY_SECONDS)

    def start(self, seconds: float) -> None:
        """Let it run, for so long at most."""
        self._tell(f"{seconds}\n")

    def end(self) -> None:
        """Let it end its run now."""
        self._tell("\n")

    def has_result(self, timeout: float) -> bool:
        """Whether a line has come, or the process has ended, within so many seconds."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], timeout)[0])

    def result(self, timeout: float) -> dict[str, Any]:
        """What the run came to."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline() if self.has_result(timeout) else b""
        if not line:
            self._log.seek(0)
            said = self._log.read().decode(errors="replace")[-2000:]
            raise ChildFailed(f"{self._name} said nothing for {timeout:.0f} s, or ended\n{said}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), line.encode())
        except BrokenPipeError:
            raise ChildFailed(f"{self._name} has ended") from None


def serve(run: Callable[[float], dict[str, Any]]) -> None:
    """The child's end: ready, then one run for each line, until the parent has gone."""
    print(json.dumps({"ready": True}), flush=True)
    for line in _lines():
        if line.strip():
            print(json.dumps(run(float(line))), flush=True)


def told_to_end() -> bool:
    """Whether the parent wants the run to end; asks without waiting, and takes the line that says so."""
    return bool(select.select([0], [], [], 0)[0]) and os.read(0, 1) is not None


def _lines() -> Iterator[str]:
    """Lines of the standard input, read byte by byte so that `told_to_end` finds what comes during a run."""
    while True:
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(0, 1)
            if not byte:
                return
            line += byte
        yield line.decode()
