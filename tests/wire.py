"""Kafka frames written by hand, so that tests of the broker do not trust the product's own codec."""

from __future__ import annotations

import socket
import struct

import google_crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19


def connect(port: int, timeout: float = 30.0) -> socket.socket:
    """A plain connection to the broker; every later call on it has this deadline."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(api_key: int, version: int, body: bytes = b"", correlation: int = 1, client: str = "wire") -> bytes:
    """A whole request with header v1."""
    return frame(struct.pack(">hhi", api_key, version, correlation) + string(client) + body)


def api_versions(correlation: int = 1) -> bytes:
    return request(API_VERSIONS, 0, correlation=correlation)


def record(value: bytes, delta: int = 0) -> bytes:
    body = b"\x00" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 31)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def batch(values: list[bytes], timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """A record batch v2 without compression, producer or transaction."""
    records = b"".join(record(value, delta) for delta, value in enumerate(values))
    last = len(values) - 1
    tail = struct.pack(">hiqqqhii", 0, last, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)) + records
    crc = google_crc32c.value(tail)
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc) + tail


def produce(topic: str, records: bytes, acks: int = 1, correlation: int = 1, partition: int = 0) -> bytes:
    """Produce v7 to one partition."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + string(topic)
    body += struct.pack(">iii", 1, partition, len(records)) + records
    return request(PRODUCE, 7, body, correlation)


def fetch(topic: str, offset: int, max_bytes: int = 1 << 20, wait_ms: int = 500, min_bytes: int = 1) -> bytes:
    """Fetch v4 of partition 0."""
    body = struct.pack(">iiiib", -1, wait_ms, min_bytes, max_bytes, 0) + struct.pack(">i", 1) + string(topic)
    return request(FETCH, 4, body + struct.pack(">iiqi", 1, 0, offset, max_bytes))


def create_topic(topic: str, partitions: int = 1) -> bytes:
    """CreateTopics v2."""
    body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihiiib", partitions, 1, 0, 0, 10_000, 0)
    return request(CREATE_TOPICS, 2, body)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer when the peer closed."""
    out = bytearray()
    while len(out) < size:
        piece = sock.recv(size - len(out))
        if not piece:
            break
        out += piece
    return bytes(out)


def read_frame(sock: socket.socket) -> bytes:
    """The payload of one response; b"" when the connection was closed instead."""
    try:
        head = read_exactly(sock, 4)
        return read_exactly(sock, struct.unpack(">i", head)[0]) if len(head) == 4 else b""
    except ConnectionResetError:
        return b""


def ask(sock: socket.socket, data: bytes) -> bytes:
    """Send a request and read its response."""
    sock.sendall(data)
    return read_frame(sock)


def is_closed(sock: socket.socket) -> bool:
    """True when the peer closed or reset; waits as long as the socket's time-out."""
    try:
        return sock.recv(1 << 16) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True
    except TimeoutError:
        return False


def produce_result(response: bytes, topic: str) -> tuple[int, int]:
    """(error code, base offset) of a Produce v7 response for one partition."""
    at = 4 + 4 + 2 + len(topic) + 4 + 4
    error, offset = struct.unpack_from(">hq", response, at)
    return error, offset
