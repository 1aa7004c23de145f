"""Barnabas: a Kafka-compatible broker, its clients and a jar-free Spark connector.

Nothing heavy is imported here, because `barnabas broker` must answer its first request in a fraction of a second.
"""

import logging

from barnabas import native

__version__ = "0.1.0"

TRACE = 5
"""Log level below DEBUG: one line for each response (RP-29)."""

logging.addLevelName(TRACE, "TRACE")
native.install()
