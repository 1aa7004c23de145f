"""Barnabas: a Kafka-compatible broker, its clients and a jar-free Spark connector.

    from barnabas import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer

Nothing heavy is imported here, because `barnabas broker` must answer its first request in a fraction of a second: the public names are
loaded when they are first used.
"""

import logging

from barnabas import native

TYPE_CHECKING = False  # type checkers know the name; importing `typing` for it would be the dearest line here

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin_results import ConfigResource, NewTopic
    from barnabas.consumer import AsyncConsumer, Consumer, Record
    from barnabas.errors import KafkaError
    from barnabas.producer import AsyncProducer, Producer

__all__ = [
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "ConfigResource",
    "Consumer",
    "KafkaError",
    "NewTopic",
    "Producer",
    "Record",
]
__version__ = "0.1.0"

TRACE = 5
"""Log level below DEBUG: one line for each response (RP-29)."""

_HOMES = {
    "Admin": "barnabas.client.admin",
    "AsyncConsumer": "barnabas.consumer",
    "AsyncProducer": "barnabas.producer",
    "ConfigResource": "barnabas.client.admin_results",
    "Consumer": "barnabas.consumer",
    "KafkaError": "barnabas.errors",
    "NewTopic": "barnabas.client.admin_results",
    "Producer": "barnabas.producer",
    "Record": "barnabas.consumer",
}
"""Where the public names are; a name that is not used costs nothing."""

logging.addLevelName(TRACE, "TRACE")
native.install()


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
