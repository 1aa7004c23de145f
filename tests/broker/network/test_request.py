"""Request and responses: answered exactly once, in the form that the client can read (RP-28, RP-29, RP-37)."""

from __future__ import annotations

import logging
import struct
import threading
from typing import Any

import pytest

from barnabas.broker.network.request import (
    CloseConnectionResponse,
    EndThrottlingResponse,
    NoOpResponse,
    SendResponse,
    StartThrottlingResponse,
    frame_response,
)
from barnabas.broker.network.request_channel import RequestChannel
from barnabas.clock import ManualClock
from barnabas.net.memory_pool import SimpleMemoryPool
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from tests import wire
from tests.broker.network.toy_broker import CollectingSink, ToyRow, header_of, metadata, toy_request


@pytest.fixture
def sink() -> CollectingSink:
    return CollectingSink()


@pytest.fixture
def channel(sink: CollectingSink) -> RequestChannel:
    channel = RequestChannel(10, clock=ManualClock(), schedule=lambda delay, callback: callback())
    channel.add_processor(sink)
    return channel


def test_a_response_goes_to_the_processor_of_its_request(channel: RequestChannel, sink: CollectingSink) -> None:
    request = toy_request(channel)
    request.respond(MetadataResponse())
    [response] = sink.responses
    assert isinstance(response, SendResponse)
    assert response.request is request
    assert request.complete_ns > 0
    assert request.response_bytes == response.send.size


def test_a_second_answer_is_logged_and_never_sent(
    channel: RequestChannel, sink: CollectingSink, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-37: every request gets exactly one response."""
    request = toy_request(channel)
    request.respond(MetadataResponse())
    request.respond(MetadataResponse())
    request.respond_nothing()
    request.close_connection()
    assert len(sink.responses) == 1
    assert len([record for record in caplog.records if "was answered twice" in record.message]) == 3


def test_of_racing_answers_exactly_one_is_sent(channel: RequestChannel, sink: CollectingSink) -> None:
    logging.disable(logging.CRITICAL)
    try:
        for _ in range(50):
            request = toy_request(channel)
            sink.responses.clear()
            barrier = threading.Barrier(4)

            def answer(request: Any = request, barrier: threading.Barrier = barrier) -> None:
                barrier.wait(5)
                request.respond_nothing()

            threads = [threading.Thread(target=answer) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(5)
            assert len(sink.responses) == 1
    finally:
        logging.disable(logging.NOTSET)


def test_an_answer_that_cannot_be_encoded_becomes_the_apis_error(
    channel: RequestChannel, sink: CollectingSink, caplog: pytest.LogCaptureFixture
) -> None:
    request = toy_request(channel)
    request.respond(MetadataResponse(controller_id="no number"))  # type: ignore[arg-type]
    [response] = sink.responses
    assert isinstance(response, SendResponse)
    assert request.response.error_code == -1
    assert "could not be encoded" in caplog.text


def test_when_even_the_error_cannot_be_encoded_the_connection_is_closed(
    channel: RequestChannel, sink: CollectingSink, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(ToyRow):
        def error_response(self, body: Any, version: int, error: Any) -> Any:
            raise RuntimeError("no error either")

    request = toy_request(channel, row=Broken(wire.METADATA, lambda request, services: None, (0, 13)))
    request.respond(object())
    assert [type(response) for response in sink.responses] == [CloseConnectionResponse]
    assert "closing the connection" in caplog.text


def test_no_response_and_close_are_kinds_of_their_own(channel: RequestChannel, sink: CollectingSink) -> None:
    toy_request(channel).respond_nothing()
    toy_request(channel).close_connection()
    assert [type(response) for response in sink.responses] == [NoOpResponse, CloseConnectionResponse]


def test_throttling_starts_before_the_response_and_ends_after_the_delay() -> None:
    """RP-39: the longest of several throttle times counts."""
    sink = CollectingSink()
    scheduled: list[Any] = []
    channel = RequestChannel(10, schedule=lambda delay, callback: scheduled.append((delay, callback)))
    channel.add_processor(sink)
    request = toy_request(channel)
    request.throttle(100, "Produce")
    request.throttle(250, "Request")
    request.throttle(50, "Fetch")
    request.respond(MetadataResponse())
    assert [type(response) for response in sink.responses] == [StartThrottlingResponse, SendResponse]
    [(delay, callback)] = scheduled
    assert (delay, request.throttle_kind) == (250, "Request")
    callback()
    assert isinstance(sink.responses[-1], EndThrottlingResponse)


def test_without_a_scheduler_throttling_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    sink = CollectingSink()
    channel = RequestChannel(10)
    channel.add_processor(sink)
    request = toy_request(channel)
    request.throttle(100, "Produce")
    request.respond_nothing()
    kinds = [type(response) for response in sink.responses]
    assert kinds == [StartThrottlingResponse, EndThrottlingResponse, NoOpResponse]
    assert "no scheduler" in caplog.text


def test_a_connection_that_is_closed_is_not_throttled(channel: RequestChannel, sink: CollectingSink) -> None:
    request = toy_request(channel)
    request.throttle(100, "Produce")
    request.close_connection()
    assert [type(response) for response in sink.responses] == [CloseConnectionResponse]


def test_the_frame_has_size_correlation_id_and_for_flexible_versions_tags() -> None:
    plain = b"".join(frame_response(header_of(wire.request(wire.METADATA, 1, correlation=77)), MetadataResponse()))
    assert struct.unpack_from(">ii", plain) == (len(plain) - 4, 77)
    data = struct.pack(">hhihs", wire.METADATA, 12, 78, 1, b"c") + b"\0"
    flexible = b"".join(frame_response(header_of(wire.frame(data)), MetadataResponse()))
    assert struct.unpack_from(">iib", flexible) == (len(flexible) - 4, 78, 0)


def test_api_versions_of_an_unknown_version_is_answered_in_v0_form() -> None:
    """RP-29: error code, then an array with a 4-byte length, and nothing else."""
    header = header_of(wire.request(wire.API_VERSIONS, 99, correlation=5))
    data = b"".join(frame_response(header, ApiVersionsResponse(error_code=35)))
    assert data == struct.pack(">iihi", 10, 5, 35, 0)


def test_releasing_the_buffer_twice_gives_the_bytes_back_once(channel: RequestChannel) -> None:
    """RP-25."""
    pool = SimpleMemoryPool(100)
    request = toy_request(channel)
    request.buffer = pool.try_allocate(60)
    request.release_buffer()
    request.release_buffer()
    assert pool.available() == 100


def test_a_request_describes_who_asked_for_what(channel: RequestChannel) -> None:
    text = repr(toy_request(channel, metadata(9)))
    for part in ("Metadata", "key=3", "version=1", "correlation=9", "client=wire", "PLAINTEXT", "User:ANONYMOUS"):
        assert part in text


def test_a_client_id_cannot_forge_a_line_of_the_log(channel: RequestChannel) -> None:
    """Issue 18."""
    request = toy_request(channel)
    request.header.client_id = "a\nERROR forged\x1b[2J" + "x" * 30_000
    assert repr(request).isprintable()
    assert len(repr(request)) < 1000
