"""The heads of an HTTP request and its answer, as far as the metrics page needs them (RFC 9110, RFC 9112).

Role: pure functions, from bytes to a method, a path and a host name, or to the status that refuses them; and back. What is not plainly
right is refused: nothing of it is guessed, joined or repaired.
Thread: any. Lock: none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

END = re.compile(rb"\r?\n\r?\n")
METHODS = ("GET", "HEAD")
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    414: "URI Too Long",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.[0-9]")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([^\x00\r\n]*)")
_ABSOLUTE = re.compile(r"https?://([^/?#]*)(.*)", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*)(:[0-9]{0,5})?")


@dataclass(frozen=True, slots=True)
class Head:
    """What is asked for. `host`: without port and brackets, in lower case; empty when none was named."""

    method: str
    path: str
    host: str


class Refused(Exception):
    """The status that answers a head which cannot be served, and what to do about it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def read_head(head: bytes) -> Head:
    """Everything up to the empty line; raises `Refused`."""
    first, *fields = END.split(head, 1)[0].split(b"\n")
    match = _REQUEST_LINE.fullmatch(first.removesuffix(b"\r"))
    if not match:
        raise Refused(400, "this port speaks HTTP/1.1 only")
    method, target = match[1].decode("ascii"), match[2].decode("ascii")
    if method not in METHODS:
        raise Refused(405, f"only {' and '.join(METHODS)} are served")
    host = _host_field(fields)
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute:
        host, target = absolute[1], absolute[2] or "/"
    if not target.startswith("/"):
        raise Refused(400, "the request must name a path")
    return Head(method, target.partition("?")[0], _name(host))


def _host_field(fields: list[bytes]) -> str:
    hosts = []
    for line in fields:
        field = _FIELD.fullmatch(line.removesuffix(b"\r"))
        if not field:
            raise Refused(400, "a header field is not well formed")
        if field[1].lower() == b"host":
            hosts.append(field[2].decode("latin-1").strip(" \t"))
    if len(hosts) > 1:
        raise Refused(400, "there is more than one Host header")
    return hosts[0] if hosts else ""


def _name(host: str) -> str:
    match = _HOST.fullmatch(host)
    if not match:
        raise Refused(400, "the host name is not well formed")
    return match[1].strip("[]").rstrip(".").lower()


def answer_head(status: int, content_type: str, length: int | None) -> bytes:
    """`length`: of the body; None where a body that nobody asked for was not made."""
    lines = [
        f"HTTP/1.1 {status} {REASONS[status]}",
        f"Content-Type: {content_type}",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    if status == 405:
        lines.append(f"Allow: {', '.join(METHODS)}")
    return "\r\n".join([*lines, "", ""]).encode()
