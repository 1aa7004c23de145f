"""A request on its way through the network client, and what becomes of it.

Role: plain records. Thread: the client's I/O thread after `send`; no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.protocol.schema import Message

if TYPE_CHECKING:
    from barnabas.client.errors import UnsupportedVersion
    from barnabas.net.send import Part

__all__ = ["BodyBuilder", "ClientRequest", "ClientResponse", "RequestCallback"]

BodyBuilder: TypeAlias = "Callable[[int], Message | Sequence[Part]]"
RequestCallback: TypeAlias = "Callable[[ClientResponse], object]"


@dataclass(slots=True, eq=False, repr=False)
class ClientRequest:
    """What to send to `node_id`.

    `body` is a message, or a function that makes the message, or the ready encoded parts of the body, for the version that was
    negotiated (PP-13, PP-14). `min_version` and `max_version` narrow the versions that may be used.
    """

    node_id: int
    api_key: int
    body: Message | BodyBuilder
    created_ms: int
    expect_response: bool = True
    callback: RequestCallback | None = None
    timeout_ms: int | None = None  # None: request.timeout.ms
    min_version: int = 0
    max_version: int = 32767
    correlation_id: int = -1  # given by `send`

    def __repr__(self) -> str:
        return f"<ClientRequest api_key={self.api_key} node={self.node_id} correlation_id={self.correlation_id}>"


class ClientResponse:
    """The end of one request: an answer (`body`), or `disconnected` (perhaps because it `timed_out`), or `version_mismatch`.

    `body` is None for a request that expects no response and was fully sent.
    """

    __slots__ = (
        "api_version",
        "body",
        "disconnected",
        "received_ms",
        "request",
        "sent_ms",
        "timed_out",
        "version_mismatch",
    )

    def __init__(
        self,
        request: ClientRequest,
        body: Any,
        received_ms: int,
        sent_ms: int,
        api_version: int = -1,
        disconnected: bool = False,
    ) -> None:
        self.request = request
        self.body = body
        self.received_ms = received_ms
        self.sent_ms = sent_ms
        self.api_version = api_version
        self.disconnected = disconnected
        self.timed_out = False
        self.version_mismatch: UnsupportedVersion | None = None

    @property
    def latency_ms(self) -> int:
        return self.received_ms - self.sent_ms

    @property
    def was_answered(self) -> bool:
        return not self.disconnected and self.version_mismatch is None

    def __repr__(self) -> str:
        end = "disconnected" if self.disconnected else "version mismatch" if self.version_mismatch else "answered"
        return f"<ClientResponse {end} {self.request!r}>"
