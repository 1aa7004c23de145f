"""`make demo` as a user runs it: in a process of its own, and stopped by Ctrl-C at a terminal. The proof must hold, and say so."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.demo.__main__ import main
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 240

# Spark and a broker want the machine for themselves: a Python worker that needs ten seconds to start is given up by Spark.
pytestmark = [
    pytest.mark.serial,
    pytest.mark.timeout(SECONDS + 60),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]


def command(folder: Path, seconds: int) -> list[str]:
    return [
        *(sys.executable, "-m", "bench.demo"),
        *("--seconds", str(seconds), "--rate", "3000", "--folder", str(folder)),
    ]


def environment() -> dict[str, str]:
    """A JVM that lives for seconds is better off without its second compiler."""
    java = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    return {**os.environ, **java, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))), "TERM": "xterm"}


def test_the_demo_proves_its_result_and_says_where_the_files_are(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    done = subprocess.run(
        command(folder, 6),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=ROOT,
        env=environment(),
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert printed.rstrip().endswith("PROVED")
    assert "✗" not in printed
    assert printed.count("✓") == 6
    assert re.search(r"0:0\d  sent .* lag", printed), "no progress was shown"
    assert "Where the request time went" in printed
    assert list((folder / "lake").glob("*.parquet"))
    assert (folder / "broker" / "orders-0").is_dir()
    assert "\x1b" not in printed, "a terminal's control codes in a pipe"


def test_ctrl_c_at_a_terminal_stops_in_order_and_the_result_is_proved(tmp_path: Path) -> None:
    with demo_at_a_terminal(command(tmp_path / "data", 0)) as (process, screen):
        shown = read_until(screen, rb"query revenue +[1-9]")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to Spark and its workers too
        shown += read_until(screen, None)
        # The signal may tear the picture that rich is writing, in the middle of a "µ".
        text = shown.decode(errors="replace")
        assert process.wait(SECONDS) == 0, text[-4000:]
    assert "until Ctrl-C" in text
    assert "PROVED" in text
    assert "✗" not in text


def test_ctrl_c_while_spark_starts_ends_with_one_line(tmp_path: Path) -> None:
    with demo_at_a_terminal(command(tmp_path / "data", 0)) as (process, screen):
        shown = read_until(screen, rb"Spark is starting")
        wait_until((tmp_path / "data" / "spark.log").exists, what="the start of Spark")
        os.killpg(process.pid, signal.SIGINT)
        shown += read_until(screen, None)
        text = shown.decode(errors="replace")
        assert process.wait(SECONDS) == 130, text[-4000:]
    assert "Traceback" not in text
    assert text.rstrip().endswith("stopped, nothing was proved")


@contextmanager
def demo_at_a_terminal(line: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        line, stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT, env=environment(), start_new_session=True
    )
    os.close(terminal)
    try:
        yield process, screen
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        os.close(screen)


def read_until(screen: int, pattern: bytes | None) -> bytes:
    """What the terminal shows, up to the pattern; None: to the end."""
    shown = b""
    while pattern is None or not re.search(pattern, shown):
        try:
            more = os.read(screen, 65_536)
        except OSError:  # the other side is closed
            more = b""
        if not more:
            assert pattern is None, shown.decode(errors="replace")[-4000:]
            break
        shown += more
    return shown


def test_a_folder_that_is_somebody_elses_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("dear to me")
    assert main(["--folder", str(tmp_path)]) == 1
    assert "was not made by the demo" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
