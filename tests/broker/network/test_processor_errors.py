"""One processor and what goes wrong: bad input closes its connection, an injected error only its channel (RP-15, RP-22, RP-29)."""

from __future__ import annotations

import logging
import re
import struct
from typing import Any

import pytest

from barnabas.broker.network import intake as intake_module
from barnabas.broker.network import processor as processor_module
from barnabas.broker.network.request import Response
from barnabas.errors import FatalBrokerError
from barnabas.net.memory_pool import SimpleMemoryPool
from barnabas.protocol.messages.metadata import MetadataResponse
from tests import wire
from tests.broker.network.toy_broker import DrivenProcessor, correlation_of, driven, fail, gone, metadata

# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size", [-1, -(2**31), 2**31 - 1, 104_857_601], ids=["minus one", "min", "max", "one above the limit"]
)
def test_a_frame_of_impossible_size_closes_only_its_connection(one: DrivenProcessor, size: int) -> None:
    """RP-22, fault row 17."""
    good, bad = one.connect(), one.connect()
    bad.sendall(struct.pack(">i", size))
    one.until(lambda: one.quotas.total == 1, "the close")
    assert wire.is_closed(bad)
    good.sendall(metadata())
    one.receive()


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (b"", "api key -1"),
        (b"\0", "api key -1"),
        (struct.pack(">hhi", 3, 1, 7), r"api key 3 \(Metadata\) version 1"),
        (struct.pack(">hhih", 3, 1, 7, 9) + b"short", "api key 3"),
        (struct.pack(">hhih", 3, 1, 7, -1) + b"\x7f\xff\xff\xff", r"api key 3 \(Metadata\) version 1"),
        (struct.pack(">hhih", 3, 1, 7, -1) + b"\0\0\0\1\0\2\xff\xfe", "api key 3"),
        (struct.pack(">hhih", 999, 0, 7, -1), r"api key 999 \(999\) version 0.*not enabled on listener PLAINTEXT"),
        (struct.pack(">hhih", 3, 99, 7, -1), "version 99.*only versions 0 to 13"),
        (struct.pack(">hhih", 3, -1, 7, -1), "version -1"),
        (struct.pack(">hhih", 18, -1, 7, -1), "version -1"),
        (struct.pack(">hhih", 0, 2, 7, -1), "version 2.*only versions 3 to 13"),
    ],
    ids=[
        "empty",
        "one byte",
        "no client id",
        "client id too short",
        "array too long",
        "no UTF-8",
        "unknown key",
        "unknown version",
        "negative version",
        "negative ApiVersions",
        "Produce before v3",
    ],
)
def test_a_malformed_request_closes_only_its_connection_with_one_line(
    one: DrivenProcessor, payload: bytes, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-29, fault rows 17 and 18: the line names key, version, connection, listener and principal."""
    good, bad = one.connect(), one.connect()
    bad_id = one.channels[1].id
    bad.sendall(wire.frame(payload))
    one.until(lambda: one.quotas.total == 1, "the close")
    assert wire.is_closed(bad)
    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.search(named, line)
    assert f"from {bad_id} on listener PLAINTEXT, principal User:ANONYMOUS" in line
    errors = {code for stats in one.metrics.snapshot().values() for code in stats.errors}
    assert errors == {42}
    good.sendall(metadata())
    one.receive()


def test_many_malformed_requests_are_counted_and_make_one_line_a_second(
    one: DrivenProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-29: who sends rubbish in a loop must not fill the disk."""

    def reject(times: int) -> None:
        for _ in range(times):
            bad = one.connect()
            bad.sendall(wire.frame(b"rubbish!"))
            one.until(lambda: one.quotas.total == 0, "the close")
            assert wire.is_closed(bad)

    reject(30)
    one.clock.advance(1)  # type: ignore[attr-defined]
    reject(5)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert ["left out" in line for line in lines] == [False, True]
    assert lines[1].endswith("(29 more like it were left out before)")
    assert sum(stats.errors[42] for stats in one.metrics.snapshot().values()) == 35


def test_connections_that_cannot_be_registered_make_one_line_a_second(
    one: DrivenProcessor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that is gone already, in a loop."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(107, "not connected")

    monkeypatch.setattr(one.processor.selector, "register", refuse)
    for _ in range(10):
        assert wire.is_closed(one.connect())
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "not connected" in record.getMessage()
    assert record.exc_info is None, "a peer that is gone is no bug of ours"
    assert one.quotas.total == 0


def test_a_null_client_id_is_accepted(one: DrivenProcessor) -> None:
    client = one.connect()
    client.sendall(wire.frame(struct.pack(">hhih", 3, 1, 7, -1) + b"\0\0\0\0"))
    assert one.receive().header.client_id is None


def test_api_versions_of_an_unknown_version_reaches_its_handler_without_a_body(one: DrivenProcessor) -> None:
    """RP-29."""
    client = one.connect()
    client.sendall(wire.request(wire.API_VERSIONS, 99, b"whatever comes"))
    request = one.receive()
    assert (request.body, request.header.api_version) == (None, 99)
    request.respond(request.row.handle(request, None))
    one.turn()
    assert struct.unpack_from(">ihi", wire.read_frame(client)) == (1, 35, 0)


def test_an_api_that_is_not_enabled_on_this_listener_closes_the_connection() -> None:
    with driven() as one:
        one.plane.enabled_apis = {"PLAINTEXT": frozenset({wire.API_VERSIONS})}
        one.processor._intake.rows = one.plane.apis_of("PLAINTEXT")
        client = one.connect()
        client.sendall(metadata())
        one.until(lambda: one.quotas.total == 0, "the close")


def test_a_malformed_request_gives_its_pooled_memory_back() -> None:
    """RP-25."""
    pool = SimpleMemoryPool(10_000)
    with driven() as one:
        one.plane.memory_pool = pool
        one.processor.selector.close_all()
        one.processor = processor_module.Processor(1, one.processor.listener, one.plane)
        client = one.connect()
        client.sendall(wire.frame(struct.pack(">hhih", 3, 1, 7, -1) + b"\0\0\0\7short"))
        one.until(lambda: one.quotas.total == 0, "the close")
        assert pool.used() == 0


# ---- injected errors: only that channel dies -------------------------------------------------------------------------


def serves(one: DrivenProcessor) -> bool:
    """Whether a new connection is served from the first byte to the last."""
    client = one.connect()
    client.sendall(metadata(77))
    one.receive().respond(MetadataResponse())
    one.turn()
    return correlation_of(wire.read_frame(client)) == 77


def test_an_error_while_sending_closes_that_channel(one: DrivenProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    client = one.connect()
    client.sendall(metadata())
    request = one.receive()
    with monkeypatch.context() as patch:
        patch.setattr(one.processor.selector, "send", fail)
        request.respond(MetadataResponse())
        one.turn()
    assert gone(one, client)
    assert serves(one)


def test_an_unknown_kind_of_response_closes_that_channel(one: DrivenProcessor) -> None:
    class Strange(Response):
        __slots__ = ()

    client = one.connect()
    client.sendall(metadata())
    one.processor.enqueue_response(Strange(one.receive()))
    one.turn()
    assert gone(one, client)
    assert serves(one)


def test_an_error_while_processing_a_receive_closes_that_channel(
    one: DrivenProcessor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other, client = one.connect(), one.connect()
    client.sendall(metadata())
    with monkeypatch.context() as patch:
        patch.setattr(intake_module, "decode_request", fail)
        one.until(lambda: one.quotas.total == 1, "the close")
    assert wire.is_closed(client)
    assert "closing 127.0.0.1" in caplog.text
    other.sendall(metadata())
    one.receive()


def test_an_error_while_completing_a_send_closes_that_channel(one: DrivenProcessor) -> None:
    client = one.connect()
    client.sendall(metadata())
    one.receive().respond(MetadataResponse(), fail)
    one.turn()
    assert wire.read_frame(client)
    assert gone(one, client)
    assert serves(one)


def test_an_error_while_processing_a_disconnect_is_contained(
    one: DrivenProcessor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = one.connect()
    with monkeypatch.context() as patch:
        patch.setattr(one.quotas, "release", fail)
        client.close()
        one.until(lambda: "an error after the end of" in caplog.text)
    one.quotas.release("PLAINTEXT", "127.0.0.1")
    assert serves(one)


def test_an_error_in_poll_is_logged_and_the_loop_goes_on(
    one: DrivenProcessor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(one.processor.selector, "poll", fail)
        one.turn(3)
    assert "poll failed" in caplog.text
    assert serves(one)


def test_an_error_while_closing_still_returns_the_quota(one: DrivenProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    """RP-11."""
    client = one.connect()
    client.sendall(metadata())
    request = one.receive()
    channel = one.channels[0]
    with monkeypatch.context() as patch:
        patch.setattr(one.processor.selector, "close", fail)
        request.close_connection()
        one.turn()
    assert one.quotas.total == 0
    one.processor.selector.close(channel)


def test_a_fatal_error_is_not_contained(one: DrivenProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    client = one.connect()
    client.sendall(metadata())

    def fatal(*arguments: Any) -> Any:
        raise FatalBrokerError("injected")

    monkeypatch.setattr(intake_module, "decode_request", fatal)
    with pytest.raises(FatalBrokerError):
        one.until(lambda: False)
