"""Servers that are broken, hostile or no Kafka at all: only their connection suffers, and the error says what it was."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

from barnabas.client.cluster import Node
from barnabas.client.requests import ClientRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.client.driving import Driver, now_ms
from tests.client.mock_selector import API_VERSIONS, api_versions
from tests.net.peers import read_frame

LIMIT = 100_000
TLS_ALERT = bytes.fromhex("15030300020246")
TLS_HANDSHAKE = bytes.fromhex("160301020001")


class Server:
    """A listening socket that the test answers for by hand."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(10)
        self.peers: list[socket.socket] = []
        self.node = Node(7, "127.0.0.1", self.listener.getsockname()[1])

    def accept(self) -> socket.socket:
        peer, _ = self.listener.accept()
        peer.settimeout(10)
        self.peers.append(peer)
        return peer

    def close(self) -> None:
        for sock in (self.listener, *self.peers):
            sock.close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def driver(server: Server) -> Iterator[Driver]:
    # Metadata is never due, so that the test decides about every request.
    with Driver("127.0.0.1:1", {"receive.message.max.bytes": LIMIT}) as driving:
        driving.metadata.failed_update(now_ms() + 1_000_000)
        yield driving


def failure(driver: Driver, server: Server, answer: bytes) -> str:
    """Connect, answer the first request with these bytes, and say why the connection ended."""
    driver.client.ready(server.node, now_ms())
    peer = server.accept()
    driver.poll_until(lambda: driver.client.in_flight_count(), "the first request")
    read_frame(peer)
    peer.sendall(answer)
    driver.poll_until(lambda: driver.client.connection_failed(server.node), "the end of the connection")
    assert driver.client.in_flight_count() == 0
    return driver.client.connection_error(server.node)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, LIMIT + 1])
def test_impossible_sizes_close_the_connection(driver: Driver, server: Server, size: int) -> None:
    """PP-39: sizes are bounded and not negative (CVE-2026-10142)."""
    assert "frame size" in failure(driver, server, struct.pack(">i", size))


@pytest.mark.parametrize("answer", [TLS_ALERT, TLS_HANDSHAKE])
def test_a_tls_port_is_named(driver: Driver, server: Server, answer: bytes) -> None:
    """PP-39: plaintext sent to a TLS port, which answers with an alert."""
    assert "speaks TLS" in failure(driver, server, answer)


def test_a_web_server_is_named(driver: Driver, server: Server) -> None:
    assert "looks like an answer of HTTP" in failure(driver, server, b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_after_a_bad_answer_the_client_connects_again(driver: Driver, server: Server) -> None:
    failure(driver, server, struct.pack(">i", -5))
    driver.poll_until(lambda: driver.client.ready(server.node, now_ms()) or len(_waiting(server)), "a second try")
    driver.poll_until(lambda: driver.client.in_flight_count(), "the first request of the new connection")
    request = read_frame(server.peers[-1])
    assert request[:2] == struct.pack(">h", API_VERSIONS)


def _waiting(server: Server) -> list[socket.socket]:
    server.listener.settimeout(0)
    try:
        return [server.accept()]
    except BlockingIOError:
        return []
    finally:
        server.listener.settimeout(10)


def test_a_peer_that_closes_says_so(driver: Driver, server: Server) -> None:
    driver.client.ready(server.node, now_ms())
    peer = server.accept()
    driver.poll_until(lambda: driver.client.in_flight_count(), "the first request")
    peer.close()
    driver.poll_until(lambda: driver.client.connection_failed(server.node), "the end of the connection")
    assert "before it answered anything: is it a port for TLS" in driver.client.connection_error(server.node)


def test_a_real_tls_port_is_guessed(driver: Driver, server: Server) -> None:
    """PP-39: many TLS servers close without the alert that would tell what they are. It never comes to a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    driver.client.ready(server.node, now_ms())
    peer = server.accept()
    driver.poll_until(lambda: driver.client.in_flight_count(), "the first request")
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(peer, server_side=True)
    driver.poll_until(lambda: driver.client.connection_failed(server.node), "the end of the connection")
    assert "TLS" in driver.client.connection_error(server.node)


def test_a_port_where_nobody_listens(driver: Driver, server: Server) -> None:
    server.listener.close()
    driver.client.ready(server.node, now_ms())
    driver.poll_until(lambda: driver.client.connection_failed(server.node), "the refusal")
    assert "refused" in driver.client.connection_error(server.node)


def test_answers_in_small_pieces_and_two_at_once(driver: Driver, server: Server) -> None:
    from barnabas.protocol.codec import encode_response_frame
    from barnabas.protocol.header import parse_request_header
    from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse

    driver.client.ready(server.node, now_ms())
    peer = server.accept()
    driver.poll_until(lambda: driver.client.in_flight_count(), "the first request")
    header = parse_request_header(read_frame(peer))
    for byte in b"".join(encode_response_frame(api_versions(), header.api_version, header.correlation_id, 0)):
        peer.sendall(bytes([byte]))
        driver.client.poll(0, now_ms())
    driver.connect(server.node)
    requests = [ClientRequest(7, 22, InitProducerIdRequest(), now_ms()) for _ in range(2)]
    for request in requests:
        driver.client.send(request, now_ms())
    answers = b""
    for number in (1, 2):
        header = parse_request_header(read_frame(peer))
        body = InitProducerIdResponse(producer_id=number)
        answers += b"".join(encode_response_frame(body, header.api_version, header.correlation_id, 1))
    peer.sendall(answers)
    driver.poll_until(lambda: len(driver.responses) == 2, "both answers")
    assert [(item.request, item.body.producer_id) for item in driver.responses] == [(requests[0], 1), (requests[1], 2)]
