"""Long lists in slices, so that a request with many elements lets other threads in between.

Role: compiled loops never hand over the GIL by themselves; see `budget.py`. Not compiled, because entering Python code is what does it.
Thread: any. Lock: none; a caller may hold its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from barnabas.broker.budget import SLICE, let_others_in

__all__ = ["SLICE", "slices"]

Item = TypeVar("Item")


def slices(items: Sequence[Item]) -> Iterable[Sequence[Item]]:
    """The items, at most `SLICE` at a time."""
    return (items,) if len(items) <= SLICE else _slices(items)


def _slices(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), SLICE):
        let_others_in()
        yield items[start : start + SLICE]
