"""What the name `cython` means in plain Python where Cython is not installed: decorators that do nothing.

Role: a package without its compiled part needs no Cython at run time. Types need no stand-in: annotations are never evaluated.
Thread: any. Lock: none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

_Any = TypeVar("_Any")

compiled = False


class _NoGil(contextlib.nullcontext[None]):
    """A block or a function that lets go of the GIL when compiled."""

    def __call__(self, declared: _Any) -> _Any:
        return declared


nogil = _NoGil()


Py_ssize_t = longlong = ulonglong = int


def declare(_kind: Any, value: _Any) -> _Any:
    """A constant that is a C variable when compiled."""
    return value


def cclass(declared: _Any) -> _Any:
    return declared


def cfunc(declared: _Any) -> _Any:
    return declared


def inline(declared: _Any) -> _Any:
    return declared


def exceptval(*_values: Any, **_options: Any) -> Callable[[_Any], _Any]:
    return cclass
