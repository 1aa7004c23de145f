"""Which names a topic may have.

Role: Kafka's rules (error 17), the same for CreateTopics, auto-creation and Metadata. Pure functions.
Thread: any. Lock: none.
"""

from __future__ import annotations

import re

from barnabas.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
"""With "-4294967295.snapshot"-like endings the directory name still fits into the 255 bytes of a file name."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """What is wrong with the name, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return "'.' or '..' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name[:40]}…' is {len(name)}, longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION when no topic can have this name."""
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def collision_key(name: str) -> str:
    """Two topics with the same key would share metric names, in which '.' becomes '_'."""
    return name.replace(".", "_")
