"""The settings of the budget of a request (`broker/budget.py`): rows of the broker's table, kept apart because that file is long.

Role: declaration only. Thread: any. Lock: none, the rows are immutable.
"""

from __future__ import annotations

from barnabas.config import ConfigKey, ConfigType, between

MOST_ELEMENTS = 1 << 20
"""What the decoder takes at most (`protocol/wire.py`)."""

BUDGET = (
    ConfigKey(
        "barnabas.request.light.elements",
        ConfigType.INT,
        1000,
        "A request that names or touches more list elements (topics, partitions, keys) than this is heavy: no network thread runs it, and "
        "at most a quarter of the request handlers run such ones at a time.",
        between(1, MOST_ELEMENTS),
    ),
    ConfigKey(
        "barnabas.request.light.bytes",
        ConfigType.INT,
        65_536,
        "A request of more bytes than this is heavy too; Produce is exempt.",
        between(1, 2**31 - 1),
    ),
    ConfigKey(
        "barnabas.request.max.elements",
        ConfigType.INT,
        250_000,
        "A request that names more list elements than this closes its connection.",
        between(1, MOST_ELEMENTS),
    ),
    ConfigKey(
        "barnabas.response.unsent.bytes",
        ConfigType.LONG,
        67_108_864,
        "While the answers to heavy requests that clients have not taken yet hold more memory than this, no further heavy request begins. "
        "While all answers that clients are slow to take hold more, connections that take less than 64 KiB/s of one for 5 seconds are "
        "closed, the oldest first, until the others fit.",
        between(1, 2**63 - 1),
    ),
)
