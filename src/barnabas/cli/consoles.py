"""Where tables are printed: rich's console, with our rule for a reader who has left.

Role: the width, and the end of a pipe. Thread: the main thread. Lock: none.
"""

from __future__ import annotations

import sys

from rich.console import Console

__all__ = ["open_console"]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the program with exit code 1; cli/__init__.py has the rule for all commands."""
        raise BrokenPipeError


def open_console(width_of_a_pipe: int, stderr: bool = False) -> Console:
    """Standard output or standard error; as wide as the terminal, or as a program that reads it needs it."""
    stream = sys.stderr if stderr else sys.stdout
    return _Console(stderr=stderr, highlight=False, width=None if stream.isatty() else width_of_a_pipe)
