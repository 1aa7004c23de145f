"""The progress bar: for long work at a terminal, and never anywhere else."""

from __future__ import annotations

import io
import os
import pty
import select
from collections.abc import Iterator
from typing import IO

import pytest

from barnabas.cli.progress import progress_bar


@pytest.fixture
def terminal() -> Iterator[tuple[int, IO[str]]]:
    """What the terminal shows, and the stream that leads to it."""
    screen, line = pty.openpty()
    with os.fdopen(line, "w") as stream:
        yield screen, stream
    os.close(screen)


@pytest.mark.parametrize("in_bytes", [True, False])
def test_long_work_at_a_terminal_has_a_bar(
    monkeypatch: pytest.MonkeyPatch, terminal: tuple[int, IO[str]], in_bytes: bool
) -> None:
    screen, stream = terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", stream)
    with progress_bar("sending", 10_000, 1_000, in_bytes) as advance:
        advance(5_000)
    stream.flush()
    shown = b""
    while b"sending" not in shown:  # a terminal hands over what was written in pieces of its own
        assert select.select([screen], [], [], 10)[0], f"the terminal shows only {shown!r}"
        shown += os.read(screen, 65_536)


@pytest.mark.parametrize(("total", "at_terminal"), [(999, True), (10_000, False)])
def test_short_work_and_pipes_have_none(
    monkeypatch: pytest.MonkeyPatch, terminal: tuple[int, IO[str]], total: int, at_terminal: bool
) -> None:
    screen, stream = terminal
    elsewhere = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream if at_terminal else elsewhere)
    with progress_bar("sending", total, 1_000) as advance:
        advance(total)
    stream.flush()
    assert not select.select([screen], [], [], 0.2)[0]
    assert elsewhere.getvalue() == ""
