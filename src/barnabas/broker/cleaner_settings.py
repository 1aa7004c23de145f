"""The cleaner's settings out of the broker's configuration.

Role: which keys concern the cleaner, and their values as the log needs them. The rows are in settings.py.
Thread: any; pure. Lock: none.
"""

from __future__ import annotations

from barnabas.broker.log.config import CleanerSettings
from barnabas.config import Config

CLEANER_KEYS = (
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.backoff.ms",
)
"""Those that may change while the broker runs."""


def cleaner_settings(config: Config) -> CleanerSettings:
    return CleanerSettings(
        enabled=config["log.cleaner.enable"],
        threads=config["log.cleaner.threads"],
        dedupe_buffer_size=config["log.cleaner.dedupe.buffer.size"],
        load_factor=config["log.cleaner.io.buffer.load.factor"],
        io_buffer_size=config["log.cleaner.io.buffer.size"],
        max_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
        backoff_ms=config["log.cleaner.backoff.ms"],
    )
