"""Names of files in a partition's directory: those with an offset, and the side files that a repair leaves.

Role: the one place that makes and reads these names. Thread: any; pure functions. Lock: none.

What a repair takes out of a segment goes to <base offset>.log.<position>.<first offset>-<next offset>.damaged: where the bytes were, and
which offsets are missing since. A later verification takes such a gap as explained.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

DAMAGED_SUFFIX = ".damaged"
_OFFSET_NAME = re.compile(r"(?P<offset>\d{20})(?P<suffix>\.[a-z]+)\Z")
_DAMAGED_NAME = re.compile(r"\d{20}\.log\.\d+\.(?P<first>\d+)-(?P<next>\d+)(\.\d+)?\.damaged\Z")


def offset_of(name: str, suffixes: tuple[str, ...]) -> int | None:
    """The offset in a name like 00000000000000000000.index."""
    match = _OFFSET_NAME.match(name)
    return int(match["offset"]) if match and match["suffix"] in suffixes else None


def damaged_name(log_name: str, position: int, first: int, following: int) -> str:
    return f"{log_name}.{position}.{first}-{following}{DAMAGED_SUFFIX}"


def explained_gaps(names: Iterable[str]) -> list[tuple[int, int]]:
    """(first missing offset, the offset after the gap) of each side file."""
    matches = filter(None, map(_DAMAGED_NAME.match, names))
    return sorted((int(match["first"]), int(match["next"])) for match in matches)
