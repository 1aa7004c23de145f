"""A progress bar for long work at a terminal; nothing otherwise.

Role: the bar is on standard error and gone afterwards, so that the output stays what a program can read.
Thread: the main thread (rich draws on one of its own). Lock: none.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int], None]

STEPS = 1024


@contextlib.contextmanager
def progress_bar(name: str, total: int, worth_it: int, in_bytes: bool = True) -> Iterator[Advance]:
    """`advance(count)` for each step; a bar when `total` reaches `worth_it` and standard error is a terminal."""
    if total < worth_it or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts = (DownloadColumn(True), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield _in_steps(lambda done: bar.update(task, completed=done))


def _in_steps(update: Advance) -> Advance:
    """The bar takes a lock and looks at the clock: once for many calls is enough."""
    calls = done = 0

    def advance(count: int) -> None:
        nonlocal calls, done
        calls += 1
        done += count
        if calls % STEPS == 0 or count >= STEPS:
            update(done)

    return advance
