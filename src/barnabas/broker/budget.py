"""What one request may cost, in one place: the limits, and how an API says that a request costs more than its thread may give.

Role: a request is *light* or *heavy*. Light ones name and touch few elements (list entries: topics, partitions, keys); processors may run
them themselves. Heavy ones go to the handlers, a few at a time, and are worked on in slices that let other threads in. Who names more than
the cap loses its connection. Three places decide, each as early as it can:

    decoding   the sum of the announced list lengths, before anything is allocated for a list (`network/intake.py`)
    weighing   what the request would touch, where its bytes do not tell: `weigh` of an API module, asked once a request is decoded
    running    an API or the log that finds more work than a light request may be raises `NeedsHandler` (`inline_work.py`)

Thread: any. Lock: none, nothing here changes. Not compiled (`native.py`), because of `let_others_in`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.broker.inline_work import NeedsHandler
from barnabas.protocol.wire import let_others_in

if TYPE_CHECKING:
    from barnabas.config import Config

__all__ = ["ELEMENTS_KEY", "Budget", "NeedsHandler", "let_others_in"]

ELEMENTS_KEY = "barnabas.request.max.elements"
SLICE = 256
"""How many elements a loop over a heavy request may touch before it calls `let_others_in`."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a broker, from its settings."""

    light_elements: int = 1000
    """Up to so many elements, named or touched, a request is light."""
    light_bytes: int = 65_536
    """Up to this size too; Produce is exempt, whose bytes are records and no elements."""
    max_elements: int = 250_000
    """Who names more is disconnected."""
    unsent_bytes: int = 67_108_864
    """No heavy request is begun while answers to others hold more memory than this."""

    @classmethod
    def of(cls, config: Config) -> Budget:
        return cls(
            config["barnabas.request.light.elements"],
            config["barnabas.request.light.bytes"],
            config[ELEMENTS_KEY],
            config["barnabas.response.unsent.bytes"],
        )
