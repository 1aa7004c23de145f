"""The metrics page: heads of HTTP requests. Each is read, or refused with a status that has a name; what is read is plain text.

Input: everything up to the empty line.
"""

from __future__ import annotations

from barnabas.broker.http_head import METHODS, REASONS, Head, Refused, answer_head, read_head
from tests.fuzz.target import must

MAX_LENGTH = 9000


def run(data: bytes) -> None:
    try:
        head: Head = read_head(data)
    except Refused as refused:
        must(refused.status in REASONS and refused.status >= 400, f"refused with {refused.status}")
        must(str(refused), "refused without a reason")
        _check_answer(answer_head(refused.status, "text/plain", len(str(refused))))
        return
    must(head.method in METHODS, f"the method {head.method}")
    must(head.path.startswith("/") and head.path.isascii() and head.path.isprintable(), f"the path {head.path!r}")
    must(head.host.isascii() and not set(head.host) & set(" /\\@\r\n\0"), f"the host {head.host!r}")


def _check_answer(answer: bytes) -> None:
    """One head, which nothing of the request can end early."""
    must(answer.endswith(b"\r\n\r\n") and answer.count(b"\r\n\r\n") == 1, f"the answer is {answer!r}")


def seeds() -> dict[str, bytes]:
    return {
        "metrics": b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
        "health": b"HEAD /health?x=1 HTTP/1.0\n\n",
        "post": b"POST / HTTP/1.1\r\n\r\n",
        "absolute": b"GET http://host:9100/metrics HTTP/1.1\r\n\r\n",
        "two": b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "ipv6": b"GET / HTTP/1.1\r\nhost: [::1]:9100\r\n\r\n",
        "two-hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "folded": b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        "empty": b"\r\n\r\n",
        "tls": bytes.fromhex("16030102000100"),
        "long": b"GET /" + b"a" * 300 + b" HTTP/1.1\r\n\r\n",
    }
