"""What a peer calls itself, as text that can stand in a log line or in a label.

Role: client ids and software names are any Unicode text of up to 32 KB. Line ends, escape sequences, half surrogates and the like would
forge lines, move a terminal's cursor or make a page that nobody can parse; they are written as escapes here, and the rest is cut off.
Thread: any. Lock: none.
"""

from __future__ import annotations

MOST = 256
"""Longer than any topic name."""


def printable(text: str, most: int = MOST) -> str:
    """The text itself when it is printable and no longer than `most`, as it nearly always is."""
    if len(text) > most:
        text = text[:most] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
