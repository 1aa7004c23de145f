"""The producer of a sink: what it sends with unless the user says otherwise, and what a user may not say.

Role: `kafka.*` options to settings of a producer, checked on the driver, so that no task starts with what cannot work.
Thread: the driver's. Lock: none.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from barnabas.client.config import COMMON_ROWS
from barnabas.config import ConfigKey
from barnabas.consumer.config import CONSUMER_ROWS
from barnabas.errors import ConfigError
from barnabas.producer.config import PRODUCER_ROWS, is_idempotent, producer_config

__all__ = ["producer_settings"]

_DEFAULTS = {
    # A task writes as fast as it can and flushes at its end: nothing waits for a full batch or for linger.ms longer than the task lasts.
    "batch.size": "524288",
    "linger.ms": "100",
    # A request of that size leaves in one piece: the I/O thread takes turns for batches, not for what 128 KiB of buffer let through.
    "send.buffer.bytes": "-1",
}
_REFUSED = {
    "partitioner.class": "rows are not handed to Python one by one; use the column partition",
    "transactional.id": "transactions come with deliveryGuarantee=exactly-once",
}
_NEAR = 0.85


def producer_settings(client: Mapping[str, str]) -> dict[str, str]:
    """The settings of the producer; ConfigError, with the option's name, for what is refused, wrong or nearly known."""
    for name, value in client.items():
        _check_name(name, value)
    settings = {**_DEFAULTS, **client}
    try:
        config = producer_config(settings)
        is_idempotent(config)
    except ConfigError as error:
        raise ConfigError(f"kafka.{error.key}", error.value, error.allowed) from None
    return settings


def _check_name(name: str, value: str) -> None:
    if name in _REFUSED:
        raise ConfigError(f"kafka.{name}", value, f"is not allowed: {_REFUSED[name]}")
    known = _names(COMMON_ROWS) | _names(PRODUCER_ROWS)
    if name in known or name in _names(CONSUMER_ROWS):
        return
    # Others are passed on: Kafka knows settings that this producer has no use for, and warns of the rest, as Kafka's does.
    near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
    if near:
        raise ConfigError(f"kafka.{name}", value, f"there is no such setting; did you mean kafka.{near[0]}?")


def _names(rows: tuple[ConfigKey, ...]) -> set[str]:
    return {row.name for row in rows}
