"""Names of files in a partition's directory: those with an offset, and the side files that a repair leaves.

Role: the one place that makes and reads these names. Thread: any; pure functions. Lock: none.

What a repair takes out of a segment goes to <base offset>.log.<position>.<first offset>-<next offset>.damaged: where the bytes were, and
which offsets are missing since. A later verification takes such a gap as explained. Where there are no bytes to keep, the file is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.broker.log.batch_search import LARGEST_BASE_OFFSET
from barnabas.broker.log.checkpoints import DAMAGED_SUFFIX

_OFFSET_NAME = re.compile(r"(?P<offset>\d{20})(?P<suffix>\.[a-z]+)\Z")
_DAMAGED_NAME = re.compile(r"\d{20}\.log\.\d+\.(?P<first>\d+)-(?P<next>\d+)(\.\d+)?\.damaged\Z")


class Gap(NamedTuple):
    """Offsets that must be there and are nowhere: `first` and those below `following`. They are missed before a place in a log."""

    file: str
    position: int
    first: int
    following: int

    @property
    def text(self) -> str:
        return f"offsets {self.first} to {self.following - 1} are missing"


def offset_of(name: str, suffixes: tuple[str, ...]) -> int | None:
    """The offset in a name like 00000000000000000000.index. A number that no offset can be is none."""
    match = _OFFSET_NAME.match(name)
    if match is None or match["suffix"] not in suffixes or int(match["offset"]) > LARGEST_BASE_OFFSET:
        return None
    return int(match["offset"])


def is_beyond_offsets(name: str) -> bool:
    """Whether a name looks like that of a segment's file, with a number that no offset can be."""
    match = _OFFSET_NAME.match(name)
    return match is not None and int(match["offset"]) > LARGEST_BASE_OFFSET


def damaged_name(log_name: str, position: int, first: int, following: int) -> str:
    return f"{log_name}.{position}.{first}-{following}{DAMAGED_SUFFIX}"


def explained_gaps(names: Iterable[str]) -> list[tuple[int, int]]:
    """(first missing offset, the offset after the gap) as side files say; what touches each other is one."""
    matches = filter(None, map(_DAMAGED_NAME.match, names))
    merged: list[tuple[int, int]] = []
    for first, following in sorted((int(match["first"]), int(match["next"])) for match in matches):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(following, merged[-1][1]))
        else:
            merged.append((first, following))
    return merged


def is_explained(explained: list[tuple[int, int]], first: int, following: int) -> bool:
    """Whether somebody knows already that the offsets from `first` to below `following` are missing."""
    return any(low <= first and following <= high for low, high in explained)
