"""Times as users give them: milliseconds since 1970, as a whole number.

Role: refuses what `time.time()` and `datetime.now()` give, because seconds taken for milliseconds are a day of January 1970.
Thread: any. Lock: none.
"""

from __future__ import annotations

import operator
from datetime import datetime

__all__ = ["milliseconds"]


def milliseconds(what: str, given: object, least: int = 0) -> int:
    """`given`; TypeError or ValueError says what is expected instead."""
    try:
        number = operator.index(given)  # type: ignore[arg-type]  # what is no whole number is a TypeError
    except TypeError:
        raise TypeError(f"{what} must be whole milliseconds since 1970, not {given!r}{_cure(given)}") from None
    if not least <= number < 1 << 63:
        raise ValueError(f"{what} must be milliseconds since 1970, not {number}")
    return number


def _cure(given: object) -> str:
    if isinstance(given, datetime):
        return "; use int(when.timestamp() * 1000)"
    return "; use time.time_ns() // 1_000_000" if isinstance(given, float) else ""
