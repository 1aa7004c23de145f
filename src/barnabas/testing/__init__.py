"""A real broker inside a test: `EmbeddedBroker`, and the pytest fixtures of `barnabas.testing.pytest_plugin`.

The names are loaded on first use, because pytest imports this package in every test run on the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]


def __getattr__(name: str) -> object:
    if name == "EmbeddedBroker":
        from barnabas.testing.embedded import EmbeddedBroker

        return EmbeddedBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
