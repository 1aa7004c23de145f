"""How tests wait: for a condition, with a deadline, never for a fixed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def wait_until(condition: Callable[[], object], seconds: float = 30.0, what: str = "the condition") -> None:
    """Return as soon as `condition()` is true; fail the test when it is still false after `seconds`.

    The deadline is for what never comes true; it says nothing about how fast the product is, so that it is generous: a test shares a slow
    machine with others.
    """
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {seconds} s")
        pause.wait(0.005)
