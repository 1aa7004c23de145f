"""One processor, driven turn by turn: its seven phases, and errors that stay within their channel (RP-12 … RP-22, RP-29)."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from barnabas import TRACE
from barnabas.broker.network import processor as processor_module
from barnabas.broker.network.mailbox import NEW_CONNECTIONS
from barnabas.broker.network.processor import MAX_INDEX
from barnabas.broker.network.request import Request
from barnabas.clock import ManualClock
from barnabas.net.mute import MuteState
from barnabas.net.send import Send
from barnabas.protocol.messages.metadata import MetadataResponse
from tests import wire
from tests.broker.network.toy_broker import (
    DrivenProcessor,
    correlation_of,
    driven,
    fail,
    gone,
    metadata,
    toy_apis,
)

# ---- connections -----------------------------------------------------------------------------------------------------


def test_a_connection_id_names_both_ends_and_an_index(one: DrivenProcessor) -> None:
    """RP-12."""
    clients = [one.connect(), one.connect()]
    for index, (client, channel) in enumerate(zip(clients, one.channels, strict=True)):
        host, port = client.getsockname()
        peer = client.getpeername()
        assert channel.id == f"127.0.0.1:{peer[1]}-{host}:{port}-{index}"
    assert one.quotas.listener_count("PLAINTEXT") == 2


def test_the_index_wraps_around(one: DrivenProcessor) -> None:
    one.processor._index = MAX_INDEX
    one.connect()
    one.connect()
    assert [channel.id.rpartition("-")[2] for channel in one.channels] == [str(MAX_INDEX), "0"]


def test_the_queue_of_new_connections_is_bounded(one: DrivenProcessor) -> None:
    """RP-6."""
    pairs = [socket.socketpair() for _ in range(NEW_CONNECTIONS + 1)]
    try:
        for here, _ in pairs[:NEW_CONNECTIONS]:
            one.quotas.acquire("PLAINTEXT", "peer")
            assert one.processor.accept(here, "peer")
        assert not one.processor.accept(pairs[-1][0], "peer")
        assert not one.processor.accept_waiting(pairs[-1][0], "peer", lambda: False)
    finally:
        one.processor._mailbox.close()
        for _ in range(NEW_CONNECTIONS):
            one.quotas.release("PLAINTEXT", "peer")
        for pair in pairs:
            for sock in pair:
                sock.close()


def test_a_socket_that_fails_to_register_is_closed_and_its_quota_returned(
    one: DrivenProcessor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-12, RP-11."""

    def fail(sock: socket.socket, index: int) -> str:
        raise RuntimeError("injected")

    with monkeypatch.context() as patch:
        patch.setattr(processor_module, "connection_id", fail)
        client = one.connect()
    assert gone(one, client)
    assert "injected" in caplog.text
    one.connect()
    assert one.quotas.total == 1


def test_a_processor_that_ends_takes_no_connection_and_closes_those_that_wait(one: DrivenProcessor) -> None:
    here, there = socket.socketpair()
    with here, there:
        one.quotas.acquire("PLAINTEXT", "peer")
        one.processor.accept(here, "peer")
        one.processor.on_stop()
        assert there.recv(1) == b""
        assert one.quotas.total == 0
        assert not one.processor.accept(here, "peer")
        assert not one.processor.accept_waiting(here, "peer", lambda: True)


# ---- requests and responses ------------------------------------------------------------------------------------------


def test_a_request_is_queued_and_its_channel_muted_until_the_response_is_sent(one: DrivenProcessor) -> None:
    """RP-15, RP-16, RP-19."""
    client = one.connect()
    client.sendall(metadata(41) + metadata(42))
    request = one.receive()
    assert (request.header.correlation_id, request.header.client_id) == (41, "wire")
    assert request.connection.client_address == "127.0.0.1"
    assert request.connection.principal == "User:ANONYMOUS"
    [channel] = one.channels
    assert channel.mute_state is MuteState.MUTED_AND_RESPONSE_PENDING
    one.turn(5)
    assert one.channel.depth() == 0  # the second one waits
    request.respond(MetadataResponse())
    one.turn()
    assert correlation_of(wire.read_frame(client)) == 41
    second = one.receive()
    assert second.header.correlation_id == 42
    second.respond(MetadataResponse())
    one.turn()
    assert correlation_of(wire.read_frame(client)) == 42
    assert channel.mute_state is MuteState.NOT_MUTED


def test_no_response_unmutes_the_channel(one: DrivenProcessor) -> None:
    """RP-13, RP-40."""
    client = one.connect()
    client.sendall(metadata(1) + metadata(2))
    one.receive().respond_nothing()
    assert one.receive().header.correlation_id == 2


def test_a_close_response_closes_the_connection_and_returns_the_quota(one: DrivenProcessor) -> None:
    """RP-13, RP-40."""
    client = one.connect()
    client.sendall(metadata())
    one.receive().close_connection()
    one.turn()
    assert gone(one, client)


def test_a_completion_callback_runs_after_the_bytes_have_left(one: DrivenProcessor) -> None:
    """RP-28."""
    client = one.connect()
    client.sendall(metadata())
    done: list[Request] = []
    request = one.receive()
    request.respond(MetadataResponse(), done.append)
    assert done == []
    one.turn()
    assert done == [request]
    assert wire.read_frame(client)


def big_response() -> MetadataResponse:
    return MetadataResponse(cluster_id="x" * 30_000)


def respond_with_more_than_the_socket_takes(one: DrivenProcessor, request: Request) -> None:
    """4 MiB to a client that does not read."""
    response = request.prepare(MetadataResponse())
    assert response is not None
    response.send = Send([b"x" * (1 << 22)])  # type: ignore[attr-defined]
    one.processor.enqueue_response(response)
    one.turn()


def test_a_response_that_the_socket_does_not_take_at_once_is_in_flight(one: DrivenProcessor) -> None:
    """RP-16."""
    client = one.connect()
    client.sendall(metadata(1) + metadata(2))
    request = one.receive()
    respond_with_more_than_the_socket_takes(one, request)
    assert one.processor.in_flight() == 1
    assert one.metrics.snapshot() == {}
    received = 0
    while received < 1 << 22:
        received += len(client.recv(1 << 20))
        one.turn()
    one.until(lambda: one.processor.in_flight() == 0)
    assert one.metrics.snapshot()["Metadata"].count == 1
    assert one.receive().header.correlation_id == 2


def test_a_disconnect_with_a_response_in_flight_is_recorded_and_returns_the_quota(one: DrivenProcessor) -> None:
    """RP-17."""
    client = one.connect()
    client.sendall(metadata())
    respond_with_more_than_the_socket_takes(one, one.receive())
    client.close()
    one.until(lambda: one.quotas.total == 0, "the disconnect")
    assert one.metrics.snapshot()["Metadata"].count == 1


def test_a_response_for_a_closed_connection_is_recorded_and_dropped(one: DrivenProcessor) -> None:
    """Request metrics on send after close."""
    client = one.connect()
    client.sendall(metadata())
    request = one.receive()
    one.processor._close_connection(request.connection)
    assert one.quotas.total == 0
    for answer in (request.respond,):
        answer(MetadataResponse())
    one.turn()
    assert one.metrics.snapshot()["Metadata"].count == 1
    assert one.quotas.total == 0


@pytest.mark.parametrize("kind", ["send", "no response"])
@pytest.mark.parametrize("throttle", ["in progress", "already done"])
def test_a_throttled_channel_is_read_when_both_response_and_delay_are_over(
    one: DrivenProcessor, kind: str, throttle: str
) -> None:
    """RP-20, RP-39."""
    client = one.connect()
    client.sendall(metadata(1) + metadata(2))
    request = one.receive()
    request.throttle(100, "Produce")
    if throttle == "already done":  # the delay ends before the response is queued
        one.channel.start_throttling(request)
        request.throttle_ms = 0
        one.turn()
        one.scheduled.pop()[1]()
        one.turn()
    request.respond(MetadataResponse()) if kind == "send" else request.respond_nothing()
    one.turn(3)
    if throttle == "in progress":
        assert one.channels[0].mute_state is MuteState.MUTED_AND_THROTTLED
        assert one.channel.depth() == 0
        [(delay, callback)] = one.scheduled
        assert delay == 100
        callback()
    assert one.receive().header.correlation_id == 2
    if kind == "send":
        assert correlation_of(wire.read_frame(client)) == 1


def test_throttling_of_a_closed_connection_changes_nothing(one: DrivenProcessor) -> None:
    client = one.connect()
    client.sendall(metadata())
    request = one.receive()
    request.throttle(100, "Produce")
    one.processor._close_connection(request.connection)
    request.respond(MetadataResponse())
    one.turn()
    one.scheduled.pop()[1]()
    one.turn()
    assert one.quotas.total == 0


def test_what_was_received_before_the_peer_closed_is_still_handled(one: DrivenProcessor) -> None:
    """RP-21."""
    client = one.connect()
    client.sendall(metadata(1) + metadata(2))
    client.shutdown(socket.SHUT_WR)
    for correlation in (1, 2):
        request = one.receive()
        assert request.header.correlation_id == correlation
        request.respond(MetadataResponse())
        one.turn()
        assert correlation_of(wire.read_frame(client)) == correlation
    one.until(lambda: one.quotas.total == 0, "the disconnect")


def test_idle_connections_are_closed_and_their_quota_returned() -> None:
    """RP-22, RP-11."""
    clock = ManualClock()
    with driven(clock=clock) as one:
        first = one.connect()
        first.sendall(metadata())
        one.receive().respond(MetadataResponse())
        one.turn()
        clock.advance(599)
        one.turn()
        assert one.quotas.total == 1
        clock.advance(2)
        one.until(lambda: one.quotas.total == 0, "the expiry")


def test_a_connection_whose_request_is_being_handled_is_not_idle() -> None:
    """RP-22: a long poll may last."""
    clock = ManualClock()
    with driven(clock=clock) as one:
        client = one.connect()
        client.sendall(metadata())
        request = one.receive()
        clock.advance(10_000)
        one.turn(3)
        assert one.quotas.total == 1
        request.respond(MetadataResponse())
        one.turn()
        assert wire.read_frame(client)


def test_a_connection_that_sends_no_first_request_is_closed() -> None:
    """RP-42."""
    clock = ManualClock()
    with driven(clock=clock) as one:
        one.connect()
        clock.advance(11)
        one.until(lambda: one.quotas.total == 0, "the deadline")


# ---- excess, software, trace -----------------------------------------------------------------------------------------


def test_the_connection_idle_longest_is_closed_when_there_are_too_many() -> None:
    """RP-18."""
    clock = ManualClock()
    with driven(clock=clock) as one:
        idle, active, third = one.connect(), one.connect(), one.connect()
        clock.advance(1)
        one.turn()
        for client in (active, third):
            client.sendall(metadata())
            one.receive().respond(MetadataResponse())
            one.turn()
        one.config.set_dynamic({"max.connections": "2"})
        one.quotas.configure(one.config)
        one.turn()
        assert wire.is_closed(idle)
        assert one.quotas.total == 2
        assert wire.read_frame(active)
        one.turn(3)
        assert one.quotas.total == 2


def flexible_api_versions(name: str, version: str) -> bytes:
    body = b"".join(bytes([len(text) + 1]) + text.encode() for text in (name, version)) + b"\0"
    return wire.frame(struct.pack(">hhihs", wire.API_VERSIONS, 3, 1, 1, b"c") + b"\0" + body)


def test_client_software_is_counted_by_connection(one: DrivenProcessor) -> None:
    """KIP-511, RP-32."""
    clients = [one.connect() for _ in range(3)]
    for client, version in zip(clients, ("1.0", "1.0", "2.0"), strict=True):
        client.sendall(flexible_api_versions("toy-client", version))
        request = one.receive()
        request.respond(request.row.handle(request, None))
        one.turn()
    assert one.processor.software == {("toy-client", "1.0"): 2, ("toy-client", "2.0"): 1}
    clients[0].sendall(flexible_api_versions("toy-client", "2.0"))
    request = one.receive()
    request.respond(request.row.handle(request, None))
    one.turn()
    assert one.processor.software == {("toy-client", "1.0"): 1, ("toy-client", "2.0"): 2}
    for client in clients:
        client.close()
    one.until(lambda: not one.processor.software, "the end of the connections")


def test_oldest_api_versions_leaves_the_software_unknown(one: DrivenProcessor) -> None:
    client = one.connect()
    client.sendall(wire.api_versions())
    request = one.receive()
    request.respond(request.row.handle(request, None))
    one.turn()
    assert one.processor.software == {("unknown", "unknown"): 1}


def test_at_trace_level_one_line_says_what_happens_to_each_response(
    one: DrivenProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-29."""
    caplog.set_level(TRACE, processor_module.log.name)
    one.turn(64)  # the level is looked at now and then only
    client = one.connect()
    expected = []
    for answer in ("respond", "throttled", "nothing", "close"):
        client.sendall(metadata())
        request = one.receive()
        if answer == "respond":
            request.respond(MetadataResponse())
            expected.append(f"sending {request.response_bytes} bytes")
        elif answer == "throttled":
            request.throttle(5, "Produce")
            request.respond(MetadataResponse())
            one.scheduled.pop()[1]()
            expected += ["throttling starts for 5 ms", "sending", "throttling ends"]
        elif answer == "nothing":
            request.respond_nothing()
            expected.append("no response is needed")
        else:
            request.close_connection()
            expected.append("the connection is closed")
        one.turn()
    lines = [record.getMessage() for record in caplog.records if record.levelno == TRACE]
    assert len(lines) == len(expected)
    for what in expected:
        assert any(line.startswith(what) and "api=Metadata client=wire connection=127." in line for line in lines)


# ---- the inline short cut --------------------------------------------------------------------------------------------


def test_a_request_that_cannot_block_is_run_and_answered_in_the_same_turn() -> None:
    with driven() as one:
        one.plane.inline = True
        client = one.connect()
        client.sendall(wire.api_versions(5))
        one.until(lambda: one.processor.inline_runs == 1)
        assert correlation_of(wire.read_frame(client)) == 5
        assert one.metrics.snapshot()["ApiVersions"].count == 1
        assert one.channel.depth() == 0
        client.sendall(metadata())  # its row does not promise not to block
        one.receive()
        assert one.processor.inline_runs == 1


def test_inline_an_api_may_answer_nothing_later_or_throttled() -> None:
    with driven() as one:
        one.plane.inline = True
        client = one.connect()
        client.sendall(wire.produce("t", b"", acks=0) + wire.api_versions(6))
        one.until(lambda: one.processor.inline_runs == 2)
        assert correlation_of(wire.read_frame(client)) == 6

    def throttled(request: Request, services: Any) -> Any:
        request.throttle(50, "Request")
        return MetadataResponse()

    apis = toy_apis(metadata=throttled)
    apis[wire.METADATA].inline = True
    with driven(apis) as one:
        one.plane.inline = True
        client = one.connect()
        client.sendall(metadata(8))
        one.until(lambda: one.scheduled)
        one.turn()
        assert correlation_of(wire.read_frame(client)) == 8
        assert one.channels[0].mute_state is MuteState.MUTED_AND_THROTTLED


def test_a_request_waits_behind_those_of_its_kind_and_not_behind_what_only_handlers_run() -> None:
    with driven() as one:
        first, second, third = one.connect(), one.connect(), one.connect()
        first.sendall(metadata())
        one.until(lambda: one.channel.depth() == 1)
        one.plane.inline = True
        second.sendall(wire.api_versions())
        one.until(lambda: one.processor.inline_runs == 1)
        one.plane.inline = False
        second.sendall(wire.api_versions())
        one.until(lambda: one.channel.depth() == 2)
        one.plane.inline = True
        third.sendall(wire.api_versions())
        one.until(lambda: one.channel.depth() == 3)
        for _ in range(3):
            one.receive()
        one.connect().sendall(wire.api_versions())
        one.until(lambda: one.processor.inline_runs == 2)


def test_an_api_that_takes_too_long_inline_turns_the_short_cut_off_for_a_while() -> None:
    clock = ManualClock()

    def slow(request: Request, services: Any) -> Any:
        clock.advance(0.021)
        return MetadataResponse()

    apis = toy_apis(metadata=slow)
    apis[wire.METADATA].inline = True
    with driven(apis, clock) as one:
        one.plane.inline = True
        client = one.connect()
        client.sendall(metadata())
        one.until(lambda: one.processor.inline_runs == 1)
        client.sendall(wire.api_versions())
        one.receive().respond_nothing()
        clock.advance(1.1)
        client.sendall(wire.api_versions())
        one.until(lambda: one.processor.inline_runs == 2)


def test_an_error_of_an_api_inline_is_answered_as_its_error() -> None:
    apis = toy_apis(api_versions=fail)
    with driven(apis) as one:
        one.plane.inline = True
        client = one.connect()
        client.sendall(wire.api_versions())
        one.until(lambda: one.processor.inline_runs == 1)
        assert struct.unpack_from(">ih", wire.read_frame(client)) == (1, -1)


# ---- waking and ending -----------------------------------------------------------------------------------------------


def test_a_backlog_that_nobody_takes_wakes_a_further_handler(one: DrivenProcessor) -> None:
    """The processor polls for a millisecond only and nudges."""
    idle, blocked = one.channel.sit_down(), one.channel.sit_down()
    with one.channel._lock:
        idle.parked = True
        one.channel._idle.append(idle)
        one.channel._awake -= 1
    client = one.connect()
    client.sendall(metadata())
    one.until(lambda: one.channel.depth() == 1)
    clock = one.clock
    assert isinstance(clock, ManualClock)
    one.until(lambda: clock.advance(0.001) or not idle.parked, "the nudge")
    assert blocked.blocked
    assert idle.bell.acquire(timeout=5)


def test_after_stop_reading_responses_go_out_but_nothing_is_read(one: DrivenProcessor) -> None:
    """RP-3."""
    client, other = one.connect(), one.connect()
    client.sendall(metadata(1) + metadata(2))
    request = one.receive()
    one.processor.stop_reading()
    one.turn()
    other.sendall(metadata(3))
    request.respond(MetadataResponse())
    one.turn(5)
    assert correlation_of(wire.read_frame(client)) == 1
    assert one.channel.depth() == 0


def test_ending_flushes_the_responses_and_returns_every_quota(one: DrivenProcessor) -> None:
    """RP-3, RP-11."""
    clients = [one.connect() for _ in range(3)]
    clients[0].sendall(metadata(9))
    one.receive().respond(MetadataResponse())
    one.processor.on_stop()
    assert correlation_of(wire.read_frame(clients[0])) == 9
    assert all(wire.is_closed(client) for client in clients)
    assert one.quotas.total == 0
    assert one.metrics.snapshot()["Metadata"].count == 1


def test_the_thread_has_kafkas_name(one: DrivenProcessor) -> None:
    """RP-2."""
    assert one.processor.name == "data-plane-kafka-network-thread-1-ListenerName(PLAINTEXT)-PLAINTEXT-0"
    assert "connections=0" in repr(one.processor)


def test_a_poll_waits_300_ms_or_not_at_all_when_something_waits(
    one: DrivenProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RP-14."""
    waits: list[float] = []
    monkeypatch.setattr(one.processor.selector, "poll", waits.append)
    one.processor.poll()
    ours, theirs = socket.socketpair()
    with theirs:
        assert one.quotas.acquire("PLAINTEXT", "127.0.0.1") >= 0
        assert one.processor.accept(ours, "127.0.0.1")
        one.processor.poll()
    assert waits == [0.3, 0.0]
