"""The metrics page under good and bad requests."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

import pytest

from barnabas.broker import metrics_http
from barnabas.broker.metrics_http import MAX_HEAD_BYTES, MAX_HEADS, MetricsServer, metrics_address
from barnabas.broker.settings import broker_config
from barnabas.clock import ManualClock
from barnabas.errors import ConfigError
from tests.waiting import wait_until


class Pages:
    """What the server shows; tests change it."""

    def __init__(self) -> None:
        self.text = "kafka_server_kafkaserver_brokerstate 3\n"
        self.healthy = True
        self.failure: Exception | None = None

    def render(self) -> Iterator[str]:
        if self.failure:
            raise self.failure
        yield self.text


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(pages: Pages, clock: ManualClock) -> Iterator[MetricsServer]:
    server = MetricsServer(pages.render, lambda: pages.healthy, ("127.0.0.1", 0), clock)
    server.start()
    yield server
    server.shutdown()


def get(server: MetricsServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def exchange(server: MetricsServer, request: bytes) -> bytes:
    """Send raw bytes, read until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
        sock.sendall(request)
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
        return answer


def test_metrics_are_served_as_prometheus_text(server: MetricsServer, pages: Pages) -> None:
    """RP-31, RP-32: the registry's text, with the content type that Prometheus expects."""
    status, content_type, text = get(server, "/metrics")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert text == pages.text


def test_a_query_string_does_not_hide_the_page(server: MetricsServer) -> None:
    assert get(server, "/metrics?name=x")[0] == 200


def test_a_large_page_arrives_whole(server: MetricsServer, pages: Pages) -> None:
    pages.text = "x" * 5_000_000
    assert len(get(server, "/metrics")[2]) == 5_000_000


def test_health_follows_the_broker(server: MetricsServer, pages: Pages) -> None:
    assert get(server, "/health")[0] == 200
    pages.healthy = False
    assert get(server, "/health")[0] == 503


def test_head_has_no_body(server: MetricsServer) -> None:
    assert get(server, "/metrics", "HEAD")[2] == ""


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("POST", "/metrics", 405)])
def test_other_paths_and_methods_are_refused(server: MetricsServer, method: str, path: str, status: int) -> None:
    assert get(server, path, method)[0] == status


def test_a_page_that_fails_is_answered_with_500_and_the_server_goes_on(server: MetricsServer, pages: Pages) -> None:
    pages.failure = RuntimeError("a gauge broke")
    assert get(server, "/metrics")[0] == 500
    pages.failure = None
    assert get(server, "/metrics")[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"G" * (MAX_HEAD_BYTES + 1), b"414"),
        (b"GET / HTTP/1.1\r\n" + b"h: v\r\n" * MAX_HEAD_BYTES, b"431"),
    ],
)
def test_bad_requests_get_a_short_answer(server: MetricsServer, request_bytes: bytes, status: bytes) -> None:
    try:
        answer = exchange(server, request_bytes)
    except ConnectionResetError:  # the server closed while we were still sending: as good an answer
        return
    assert answer.split(b" ")[1] == status


def test_a_peer_that_sends_nothing_is_closed_at_the_deadline(server: MetricsServer, clock: ManualClock) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as silent:
        silent.sendall(b"GET /met")
        wait_until(lambda: len(server._heads) == 1)
        clock.advance(metrics_http.HEAD_NS / 1e9)
        server.wakeup()
        assert silent.recv(1) == b""


def test_beyond_the_places_the_newest_is_served_and_the_oldest_goes(server: MetricsServer) -> None:
    """Issue 18: at d6c2b90 it waited for one of the others to leave."""
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(MAX_HEADS)]
    try:
        wait_until(lambda: len(server._heads) == MAX_HEADS)
        assert get(server, "/health")[0] == 200
        assert silent[0].recv(1) == b""
        silent[-1].sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert silent[-1].recv(65536).startswith(b"HTTP/1.1 200 OK")
    finally:
        for sock in silent:
            sock.close()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET http://localhost/health HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n", b"200"),
        (b"GET http://elsewhere.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"421"),
        (b"GET /health HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /health HTTP/1.1\n\n", b"200"),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost: a b\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nA: b\r\n continued\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nA: b\rc\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nA: b\0\r\n\r\n", b"400"),
        (b"GET  /health HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /health HTTP/2.0\r\n\r\n", b"400"),
        (b"GET health HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /../health HTTP/1.1\r\n\r\n", b"404"),
        (b"GET //health HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /%68ealth HTTP/1.1\r\n\r\n", b"404"),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", b"405"),
        (b"CONNECT localhost:443 HTTP/1.1\r\n\r\n", b"405"),
        (b"get /health HTTP/1.1\r\n\r\n", b"405"),
    ],
)
def test_heads_are_read_strictly(server: MetricsServer, head: bytes, status: bytes) -> None:
    assert exchange(server, head).split(b" ")[1] == status


def test_a_refused_method_says_which_ones_are_served(server: MetricsServer) -> None:
    assert b"Allow: GET, HEAD\r\n" in exchange(server, b"DELETE / HTTP/1.1\r\n\r\n")


def test_what_follows_a_request_does_not_cost_its_answer(server: MetricsServer) -> None:
    """Pipelining: one request per connection is answered, and its answer arrives although the others are not read."""
    answer = exchange(server, b"GET /health HTTP/1.1\r\n\r\n" * 200)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.count(b"HTTP/1.1") == 1


def test_who_does_not_close_after_the_answer_is_closed(server: MetricsServer, clock: ManualClock) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as open_one:
        open_one.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        wait_until(lambda: any(each.dropped == 0 for each in list(server._heads.values())))
        clock.advance(metrics_http.LINGER_NS / 1e9)
        server.wakeup()
        wait_until(lambda: not server._heads)


def test_a_port_that_is_taken_is_reported_to_the_starter(server: MetricsServer) -> None:
    """RP-1: a thread that cannot start says so to whoever starts it."""
    second = MetricsServer(lambda: iter(()), lambda: True, ("127.0.0.1", server.port))
    with pytest.raises(ConfigError, match=rf"barnabas.metrics.listener.*{server.port}.*in use"):
        second.start()


def test_a_host_that_is_not_ours_is_named() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:0.*cannot be listened on"):
        MetricsServer(lambda: iter(()), lambda: True, ("192.0.2.1", 0)).start()


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9404", ("127.0.0.1", 9404)), (":1", ("", 1)), ("[::1]:0", ("::1", 0)), ("", None)],
)
def test_the_address_is_read_from_the_setting(text: str, address: tuple[str, int] | None) -> None:
    assert metrics_address(broker_config({"barnabas.metrics.listener": text})) == address


@pytest.mark.parametrize("text", ["9404", "host:", "host:many", "host:70000"])
def test_an_address_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be host:port"):
        metrics_address(broker_config({"barnabas.metrics.listener": text}))


def test_shutdown_closes_open_connections(server: MetricsServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as open_one:
        wait_until(lambda: len(server._heads) == 1)
        assert server.shutdown(5)
        assert open_one.recv(1) == b""
