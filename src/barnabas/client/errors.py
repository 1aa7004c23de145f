"""What the clients raise beside `KafkaError`: also errors with a code of the protocol, but found by the client itself.

Thread: any. Lock: none.
"""

from __future__ import annotations

from barnabas.errors import BarnabasError, ErrorCode, KafkaError

__all__ = ["ClientClosed", "ClientTimeout", "ForkedClient", "NodeNotReady", "UnknownPartition", "UnsupportedVersion"]


class UnsupportedVersion(KafkaError):
    """The broker has no version of an API that this client could use (PP-18); only the call that needed it fails."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class ClientTimeout(KafkaError, TimeoutError):
    """A blocking call ran out of time; the text says what it waited for and what went wrong meanwhile."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class UnknownPartition(KafkaError):
    """The topic is there and has no partition of this number: the brokers have said so twice, waiting does not bring it."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        there = "one partition, number 0" if count == 1 else f"{count} partitions, numbers 0 to {count - 1}"
        message = f"there is no partition {partition} of {topic}, which has {there}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    @property
    def retriable(self) -> bool:
        """No, although a broker's own answer with this code would be."""
        return False


class ClientClosed(BarnabasError):
    """The client was closed."""


class ForkedClient(BarnabasError):
    """A client does not work in a child process that was forked after it was made: its connections are the parent's."""


class NodeNotReady(BarnabasError):
    """A request was given to a node that `ready` did not name ready: a bug of the caller."""
