"""The admin client's own settings. Thread: import time. Lock: none."""

from __future__ import annotations

from barnabas.config import ConfigKey, ConfigType, at_least

ADMIN_ROWS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "default.api.timeout.ms",
        ConfigType.INT,
        60_000,
        "How long calls without a time-out of their own may take.",
        at_least(1),
    ),
)
