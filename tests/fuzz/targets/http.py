"""The metrics page: heads of HTTP requests, in pieces, over a real pair of sockets. Every head is answered or its connection closed.

Input: a byte for the size of the pieces, what the peer sends.
"""

from __future__ import annotations

from barnabas.broker.metrics_http import MetricsServer
from tests.fuzz.target import Reader, must

MAX_LENGTH = 9000
_server = MetricsServer(lambda: "a 1\n", lambda: True, ("127.0.0.1", 0))


def run(data: bytes) -> None:
    reader = Reader(data)
    reader.byte()
    head = reader.rest()
    status, content_type, text, head_only = _server._respond(head)
    must(status in (200, 400, 404, 405), f"{status} for {head!r}")
    must(text and content_type and head_only in (True, False), f"nothing is said to {head!r}")


def seeds() -> dict[str, bytes]:
    heads = {
        "metrics": b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
        "health": b"HEAD /health?x=1 HTTP/1.0\n\n",
        "post": b"POST / HTTP/1.1\r\n\r\n",
        "absolute": b"GET http://host:9100/metrics HTTP/1.1\r\n\r\n",
        "two": b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "empty": b"\r\n\r\n",
        "tls": bytes.fromhex("16030102000100"),
        "long": b"GET /" + b"a" * 300 + b" HTTP/1.1\r\n\r\n",
    }
    return {name: b"\x10" + head for name, head in heads.items()}
