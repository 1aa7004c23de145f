"""`barnabas broker` in a process of its own, as a user runs it. The fixture `start` (conftest.py) ends what a test leaves running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BANNER = re.compile(
    r"^Barnabas \S+ ready on (?P<address>[\w.]+:(?P<port>\d+)) in (?P<seconds>[\d.]+) s, "
    r"data in (?P<data>.+), metrics at (?P<metrics>\S+)$"
)
FREE_PORTS = ("--port", "0", "--metrics-port", "0")


class Process:
    """A broker process and what it says."""

    def __init__(
        self, arguments: tuple[str, ...], environ: dict[str, str], folder: Path, descriptors: int | None = None
    ) -> None:
        """`descriptors`: how many it may have, as its hard limit too: the broker raises the soft one."""
        command_line = [sys.executable, "-m", "barnabas", "broker", *arguments]
        if descriptors is not None:
            command_line = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command_line]
        self.popen = subprocess.Popen(
            command_line,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, **environ},
        )

    def banner(self) -> re.Match[str]:
        assert self.popen.stdout
        line = self.popen.stdout.readline().rstrip("\n")
        match = BANNER.match(line)
        if match is None:
            self.popen.kill()
            pytest.fail(f"{line!r} is no banner: {self.finish()}")
        return match

    def finish(self, seconds: float = 20) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a process that ends by itself."""
        out, err = self.popen.communicate(timeout=seconds)
        return self.popen.returncode, out, err


StartBroker = Callable[..., Process]


def refusal(process: Process) -> str:
    """The one line on standard error of a broker that did not start."""
    code, out, err = process.finish()
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1
    assert err.startswith("barnabas: ")
    return err
