"""A request on its way through the broker, and the five kinds of response (RP-28).

Role:    `Request` is what a processor makes of one frame and what an API handler is given; it is answered exactly once by
         `respond`, `respond_nothing` or `close_connection`, from any thread. A second answer is logged and never sent.
Thread:  made by a processor, handed to one handler, answered by that handler or by a purgatory thread, finished by the
         processor. Only one of them touches it at a time, except for the answer itself.
Lock:    `ConnectionContext.answer_lock` decides which of two racing answers is the one; nothing else is done under it.

The stamps (ns, monotonic) cut the life of a request into parts whose sum is the total, by construction (RP-31)::

    start ─ queue ─► dequeue ─ local ─► local_done ─ remote ─► complete ─ response queue ─► response_dequeue ─ send ─► end

A request's buffer goes back to the memory pool when the handler returns, also for requests that are answered later: API
code must not keep a memoryview into `body` after `handle` has returned.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas import TRACE
from barnabas.broker.request_metrics import count_errors
from barnabas.errors import ErrorCode, KafkaError, MalformedRequest
from barnabas.log_limit import LogLimit
from barnabas.net.send import Send
from barnabas.printable import printable
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.codec import encode_response_frame

if TYPE_CHECKING:
    from barnabas.broker.apis.table import ApiRow
    from barnabas.broker.network.request_channel import RequestChannel, ResponseSink
    from barnabas.net.channel import Channel
    from barnabas.net.memory_pool import PooledBuffer
    from barnabas.protocol.header import RequestHeader

log = logging.getLogger(__name__)

FETCH = int(ApiKey.FETCH)
OnComplete = Callable[["Request"], None]


class ConnectionContext:
    """What is known about one connection; one object for all its requests. Written by the processor, except `client_*`
    names, which the ApiVersions handler sets while the connection is muted (KIP-511)."""

    __slots__ = (
        "answer_lock",
        "channel",
        "client_address",
        "client_port",
        "client_software_name",
        "client_software_version",
        "connection_id",
        "hung_up",
        "in_flight",
        "listener",
        "principal",
        "privileged",
        "security_protocol",
        "software_key",
        "waiting",
    )

    def __init__(
        self,
        connection_id: str,
        client_address: str,
        listener: str,
        security_protocol: str = "PLAINTEXT",
        principal: str = "User:ANONYMOUS",
    ) -> None:
        self.connection_id = connection_id
        self.client_address = client_address
        self.client_port = 0
        self.listener = listener
        self.security_protocol = security_protocol
        self.principal = principal
        self.privileged = False
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.software_key: tuple[str, str] | None = None  # under which the processor has counted this connection
        self.channel: Channel | None = None  # None as soon as the connection is closed
        self.in_flight: SendResponse | None = None  # the response that is only partly written
        self.hung_up = False  # the peer sends no more; it may still read
        self.waiting: Any = None  # the delayed operation of its request, for whoever ends the connection to cancel
        self.answer_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<ConnectionContext {self.connection_id} {self.listener} {self.principal}>"


class Request:
    """One request. The API handler reads `header`, `body` and `connection` and answers; the rest is the request path's."""

    __slots__ = (
        "answered",
        "body",
        "buffer",
        "complete_ns",
        "connection",
        "conversions_ns",
        "dequeue_ns",
        "end_ns",
        "errors",
        "header",
        "heavy",
        "inline",
        "local_done_ns",
        "payload",
        "processor_id",
        "progress",
        "request_channel",
        "response",
        "response_bytes",
        "response_dequeue_ns",
        "row",
        "size",
        "start_ns",
        "temporary_bytes",
        "throttle_kind",
        "throttle_ms",
    )

    def __init__(
        self,
        connection: ConnectionContext,
        header: RequestHeader,
        body: Any,
        row: ApiRow,
        request_channel: RequestChannel,
        start_ns: int = 0,
    ) -> None:
        self.connection = connection
        self.header = header
        self.body = body
        self.row = row
        self.request_channel = request_channel
        self.start_ns = start_ns
        self.processor_id = -1
        self.buffer: PooledBuffer | None = None
        self.payload: bytes | memoryview | None = None  # the frame, while it is left to a handler to decode it
        self.heavy = False  # more than the budget of a light request (`broker/budget.py`)
        self.inline = False  # whether it runs as a light one now; the API may raise NeedsHandler then
        self.progress: Any = None  # what an API has done before it raised NeedsHandler; the API's own
        self.size = 0
        self.dequeue_ns = self.local_done_ns = self.complete_ns = self.response_dequeue_ns = self.end_ns = 0
        self.throttle_ms = 0
        self.throttle_kind = ""
        self.conversions_ns = 0
        self.temporary_bytes = 0
        self.answered = False
        self.response: Any = None
        self.errors: dict[int, int] | None = None  # instead of `response`, for a heavy request: how often each code
        self.response_bytes = 0

    # ---- what API code calls -------------------------------------------------------------------------------------

    def respond(self, message: Any, on_complete: OnComplete | None = None) -> None:
        """Answer with `message`; `on_complete` runs on the processor's thread after the last byte has left."""
        response = self.prepare(message, on_complete)
        if response is not None:
            self._hand_over(response)

    def respond_nothing(self) -> None:
        """No answer goes to the client (acks=0, RP-40); the connection is read again."""
        if self._claim():
            self._hand_over(NoOpResponse(self))

    def close_connection(self) -> None:
        """Close the connection instead of an answer (RP-40: an error with acks=0)."""
        if self._claim():
            self.throttle_ms = 0
            self._hand_over(CloseConnectionResponse(self))

    def reject(self, error: MalformedRequest) -> Response | None:
        """Close the connection because the peer does not keep to the protocol; the processor logs and counts it (RP-29)."""
        return CloseConnectionResponse(self, error) if self._claim() else None

    def throttle(self, throttle_ms: int, kind: str) -> None:
        """Quota code, before the answer: mute this connection for `throttle_ms` from the answer on (RP-39, KIP-219). The
        longest of several wins; the API puts the time into its message."""
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
            self.throttle_kind = kind

    def error_message(self, error: KafkaError) -> Any:
        """This API's answer when the whole request failed with `error`."""
        return self.row.error_response(self.body, self.header.api_version, error)

    # ---- what the request path calls -----------------------------------------------------------------------------

    def prepare(self, message: Any, on_complete: OnComplete | None = None) -> Response | None:
        """Encode and claim the answer. None when there was one before. Encoding comes first, so that an answer that
        cannot be encoded leaves the request unanswered and an error answer can follow."""
        try:
            send = Send(frame_response(self.header, message))
        except Exception:
            return self._prepare_error(message)
        if not self._claim():
            return None
        self._note_answer(message, send)
        return SendResponse(self, send, on_complete)

    def _prepare_error(self, message: Any) -> Response | None:
        """The answer could not be encoded, which is our fault: answer UNKNOWN_SERVER_ERROR, or close when even that fails."""
        log.exception("%s: an answer of type %s could not be encoded", self, type(message).__name__)
        try:
            message = self.error_message(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            send = Send(frame_response(self.header, message))
        except Exception:
            log.exception("%s: no error answer could be encoded either, closing the connection", self)
            return CloseConnectionResponse(self) if self._claim() else None
        if not self._claim():
            return None
        self._note_answer(message, send)
        return SendResponse(self, send)

    def _note_answer(self, message: Any, send: Send) -> None:
        """What the metrics will ask for. The objects of a heavy request take many times its bytes, and a client may be slow to take its
        answer: nothing of them is kept."""
        self.response_bytes = send.size
        if not self.heavy:
            self.response = message
            return
        self.errors = {}
        count_errors(message, self.errors)
        self.progress = None
        if self.header.api_key != FETCH:
            self.body = None
        elif self.body is not None:  # the metrics ask whether a replica sent it
            self.body.topics = self.body.forgotten_topics_data = ()

    def _claim(self) -> bool:
        """True for exactly one caller."""
        with self.connection.answer_lock:
            first = not self.answered
            self.answered = True
        if first:
            self.complete_ns = self.request_channel.now_ns()
        else:
            log.error("%s was answered twice; the second answer is dropped", self, stack_info=True)
        return first

    def _hand_over(self, response: Response) -> None:
        channel = self.request_channel
        if self.throttle_ms > 0:
            channel.start_throttling(self)
        channel.send_response(response)

    def deliver(self, response: Response) -> ResponseSink | None:
        """A handler hands over what `prepare` gave it. Returns the processor that must be woken, if one must."""
        channel = self.request_channel
        if self.throttle_ms > 0:
            channel.start_throttling(self)
        return channel.post_response(response)

    def release_buffer(self) -> None:
        """Give the request's bytes back to the memory pool (RP-25). Idempotent."""
        buffer = self.buffer
        if buffer is not None:
            self.buffer = None
            buffer.release()

    def describe(self) -> str:
        """Who asked for what, for log lines."""
        header = self.header
        connection = self.connection
        client = printable(header.client_id or "")
        return (
            f"api={metric_name(header.api_key)} key={header.api_key} version={header.api_version} "
            f"correlation={header.correlation_id} client={client} connection={connection.connection_id} "
            f"listener={connection.listener} principal={connection.principal}"
        )

    def __repr__(self) -> str:
        return f"<Request {self.describe()}>"


def metric_name(api_key: int) -> str:
    """Kafka's name of the API, also for keys that nobody knows."""
    api = APIS.get(api_key)
    return str(api_key) if api is None else api.name


def frame_response(header: RequestHeader, message: Any) -> list[Any]:
    """Size, response header and body as parts for the transport."""
    version = header.api_version
    api = header.api
    if api is None or version > api.max_version:  # an ApiVersions that we do not know is answered in v0 form (RP-29)
        version = 0
    header_version = 0 if api is None else api.response_header_version(version)
    return encode_response_frame(message, version, header.correlation_id, header_version)


class Response:
    """One of the five below; each holds its request."""

    __slots__ = ("request",)

    def __init__(self, request: Request) -> None:
        self.request = request

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.request.describe()}>"


class SendResponse(Response):
    """Bytes to send; `on_complete` runs only after they have left."""

    __slots__ = ("on_complete", "send")

    def __init__(self, request: Request, send: Send, on_complete: OnComplete | None = None) -> None:
        self.request = request
        self.send = send
        self.on_complete = on_complete


class NoOpResponse(Response):
    """Nothing to send; the channel is read again."""

    __slots__ = ()


class CloseConnectionResponse(Response):
    """Close the connection; with `error`, because the request was malformed."""

    __slots__ = ("error",)

    def __init__(self, request: Request, error: MalformedRequest | None = None) -> None:
        self.request = request
        self.error = error


class StartThrottlingResponse(Response):
    """The channel stays muted until the matching EndThrottlingResponse, and at least until its answer is sent."""

    __slots__ = ()


class EndThrottlingResponse(Response):
    """The delay is over."""

    __slots__ = ()


def connection_id(sock: socket.socket, index: int) -> str:
    """`localHost:localPort-remoteHost:remotePort-index`; the index makes it unique while an earlier one still closes."""
    local, remote = sock.getsockname(), sock.getpeername()
    return f"{local[0]}:{local[1]}-{remote[0]}:{remote[1]}-{index}"


def trace_response(log: logging.Logger, what: str, response: Response, *values: object) -> None:
    """RP-29: one line per response says what happens to it."""
    request = response.request
    log.log(
        TRACE,
        "%s: api=%s client=%s connection=%s",
        what % values,
        metric_name(request.header.api_key),
        printable(request.header.client_id or ""),
        request.connection.connection_id,
    )


def log_rejected(warnings: LogLimit, context: ConnectionContext, api: tuple[int, int], error: Exception) -> None:
    """RP-29: one line for a peer that does not speak the protocol; for many of them, a line now and then with their number."""
    key, version = api
    warnings.warning(
        "rejected",
        "Invalid request, closing the connection: api key %d (%s) version %d from %s on listener %s, principal %s: %s",
        key,
        metric_name(key),
        version,
        context.connection_id,
        context.listener,
        context.principal,
        error,
    )
