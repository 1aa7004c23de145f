"""What a frame becomes: a request that is decoded, or one that is left to a handler because it is large (RP-15, `broker/budget.py`).

Role:    parses the header, finds the API's row, decodes as far as the budget of a light request goes and weighs what it got. A request
         beyond that is heavy and keeps its bytes: its handler decodes them (`decode_rest`), up to the cap.
Thread:  `read` on the processor's, `decode_rest` on a handler's. Lock: none.

All errors of the peer are `MalformedRequest`: who catches it closes the connection (RP-29).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from barnabas.broker.budget import ELEMENTS_KEY
from barnabas.broker.network.request import ConnectionContext, Request
from barnabas.errors import MalformedRequest
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec import decode_request
from barnabas.protocol.header import RequestHeader, parse_request_header
from barnabas.protocol.wire import TooManyElements

if TYPE_CHECKING:
    from barnabas.broker.apis.table import ApiRow
    from barnabas.broker.network.plane import Plane
    from barnabas.net.channel import Receive

API_VERSIONS = int(ApiKey.API_VERSIONS)
PRODUCE = int(ApiKey.PRODUCE)


class OverBudget(MalformedRequest):
    """The request names more than the broker's cap allows."""


class Intake:
    """One for each processor."""

    __slots__ = ("_light_bytes", "_light_elements", "_listener", "_plane", "rows")

    def __init__(self, plane: Plane, listener: str) -> None:
        self._plane = plane
        self._listener = listener
        self._light_elements: int = plane.budget.light_elements
        self._light_bytes: int = plane.budget.light_bytes
        self.rows: dict[int, ApiRow] = plane.apis_of(listener)

    def read(self, receive: Receive, context: ConnectionContext, now_ns: int) -> Request:
        """The request that a frame holds."""
        payload = receive.payload
        header = parse_request_header(payload)
        row = self.rows.get(header.api_key)
        request = Request(context, header, None, cast("ApiRow", row), self._plane.request_channel, now_ns)
        request.size = len(payload)
        request.buffer = receive.buffer
        if row is not None and row.min_version <= header.api_version <= row.max_version:
            self._decode(request, payload)
        else:
            self._check_unsupported(header, row)
        return request

    def _decode(self, request: Request, payload: bytes | memoryview) -> None:
        header = request.header
        key = header.api_key
        if (
            request.size <= self._light_bytes or key == PRODUCE
        ):  # the bytes of a Produce are records, which are not decoded
            try:
                body = decode_request(key, header.api_version, payload, header.body_offset, self._light_elements)
            except TooManyElements:
                pass
            else:
                request.body = body
                weigh = request.row.weigh
                request.heavy = weigh is not None and weigh(body, self._plane.services) > self._light_elements
                return
        request.payload = payload
        request.heavy = True

    def _check_unsupported(self, header: RequestHeader, row: ApiRow | None) -> None:
        """An ApiVersions of an unknown version goes to its handler without a body; all else is refused by a disconnect (RP-29)."""
        if row is None:
            raise MalformedRequest(f"this API is not enabled on listener {self._listener}")
        if header.api_key != API_VERSIONS or header.api_version < row.min_version:
            raise MalformedRequest(f"only versions {row.min_version} to {row.max_version} are supported")


def decode_rest(request: Request, max_elements: int) -> None:
    """Decode what the processor has left to the handler; nothing when it has left nothing."""
    payload = request.payload
    if payload is None:
        return
    request.payload = None
    header = request.header
    try:
        request.body = decode_request(header.api_key, header.api_version, payload, header.body_offset, max_elements)
    except TooManyElements as error:
        raise OverBudget(f"{error} ({ELEMENTS_KEY})") from None
