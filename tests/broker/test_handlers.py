"""Request handlers (RP-34, RP-35, RP-37): errors, buffers, idle time, and resizing under load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.handlers import RequestHandler, RequestHandlerPool, execute
from barnabas.broker.network.baton import Baton
from barnabas.broker.network.request import CloseConnectionResponse, NoOpResponse, Request, SendResponse
from barnabas.broker.network.request_channel import RequestChannel
from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError, ErrorCode, FatalBrokerError, KafkaError
from barnabas.net.memory_pool import SimpleMemoryPool
from barnabas.protocol.codec import decode_request
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.threads import ThreadFailedToStart
from tests import wire
from tests.broker.network.toy_broker import CollectingSink, ToyRow, toy_plane, toy_request
from tests.waiting import wait_until

Handle = Callable[[Request, Any], Any]


def channel_with(sink: CollectingSink, limit: int = 100) -> RequestChannel:
    channel = RequestChannel(limit)
    channel.add_processor(sink)
    return channel


def metadata_row(handle: Handle, inline: bool = False) -> ToyRow:
    return ToyRow(wire.METADATA, handle, (0, 13), inline)


def failing(error: BaseException) -> Handle:
    def handle(request: Request, services: Any) -> Any:
        raise error

    return handle


def produce_request(channel: RequestChannel, handle: Handle, acks: int) -> Request:
    data = wire.produce("t", wire.batch([b"x"]), acks)
    request = toy_request(channel, data, ToyRow(wire.PRODUCE, handle, (3, 13)))
    request.body = decode_request(wire.PRODUCE, 7, data[4:], request.header.body_offset)
    return request


def test_a_message_becomes_the_response_and_none_means_later() -> None:
    channel = channel_with(CollectingSink())
    answered = toy_request(channel, row=metadata_row(lambda request, services: MetadataResponse(cluster_id=services)))
    response = execute(answered, "the services")
    assert isinstance(response, SendResponse)
    assert answered.response.cluster_id == "the services"
    later = toy_request(channel, row=metadata_row(lambda request, services: None))
    assert execute(later, None) is None
    assert later.local_done_ns > 0
    assert not later.answered


def test_a_kafka_error_becomes_the_apis_error_response() -> None:
    request = toy_request(
        channel_with(CollectingSink()), row=metadata_row(failing(KafkaError(ErrorCode.INVALID_REQUEST)))
    )
    assert isinstance(execute(request, None), SendResponse)
    assert request.response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("error", [RuntimeError("injected"), MemoryError()], ids=["RuntimeError", "MemoryError"])
def test_an_unexpected_error_is_logged_and_answered(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """RP-34."""
    request = toy_request(channel_with(CollectingSink()), row=metadata_row(failing(error)))
    assert isinstance(execute(request, None), SendResponse)
    assert request.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "unexpected error while handling api=Metadata" in caplog.text


@pytest.mark.parametrize(("acks", "kind"), [(0, CloseConnectionResponse), (1, SendResponse)])
def test_an_error_of_a_produce_without_acks_closes_the_connection(acks: int, kind: type) -> None:
    """RP-40."""
    sink = CollectingSink()
    request = produce_request(channel_with(sink), failing(KafkaError(ErrorCode.INVALID_RECORD)), acks)
    response = execute(request, None)
    [found] = [one for one in (response, *sink.responses) if one is not None]
    assert isinstance(found, kind)


def test_an_api_without_an_error_response_has_its_connection_closed(caplog: pytest.LogCaptureFixture) -> None:
    sink = CollectingSink()
    row = metadata_row(failing(RuntimeError("injected")))
    row.error_response = failing(RuntimeError("again"))  # type: ignore[assignment]
    request = toy_request(channel_with(sink), row=row)
    assert execute(request, None) is None
    assert [type(response) for response in sink.responses] == [CloseConnectionResponse]


def test_an_error_after_the_answer_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    def answer_and_fail(request: Request, services: Any) -> Any:
        request.respond_nothing()
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    sink = CollectingSink()
    assert execute(toy_request(channel_with(sink), row=metadata_row(answer_and_fail)), None) is None
    assert [type(response) for response in sink.responses] == [NoOpResponse]
    assert "failed after it was answered" in caplog.text


def driven_handler(channel: RequestChannel) -> RequestHandler:
    """A handler without a thread, on a clock that stands still."""
    handler = RequestHandler(0, toy_plane(channel, ManualClock()))
    handler.on_start()
    return handler


@pytest.mark.parametrize(
    "handle", [lambda request, services: None, failing(RuntimeError("injected"))], ids=["later", "error"]
)
def test_the_buffer_goes_back_to_the_pool_on_every_path(handle: Handle) -> None:
    """RP-25, RP-34."""
    pool = SimpleMemoryPool(100)
    channel = channel_with(CollectingSink())
    request = toy_request(channel, row=metadata_row(handle))
    request.buffer = pool.try_allocate(50)
    channel.put(request)
    handler = driven_handler(channel)
    handler.run_once()
    assert pool.used() == 0
    handler.on_stop()


def test_the_buffer_goes_back_also_when_the_broker_ends() -> None:
    pool = SimpleMemoryPool(100)
    channel = channel_with(CollectingSink())
    request = toy_request(channel, row=metadata_row(failing(FatalBrokerError("injected"))))
    request.buffer = pool.try_allocate(50)
    channel.put(request)
    handler = driven_handler(channel)
    with pytest.raises(FatalBrokerError):
        handler.run_once()
    assert pool.used() == 0
    handler.on_stop()


def test_a_turn_handles_what_is_queued_and_wakes_the_processor_once() -> None:
    sink = CollectingSink()
    channel = channel_with(sink)
    for _ in range(5):
        channel.put(toy_request(channel, row=metadata_row(lambda request, services: MetadataResponse(), inline=True)))
    handler = driven_handler(channel)
    handler.run_once()
    assert len(sink.responses) == 5
    assert sink.woken == 1
    assert handler.handled == 5
    handler.on_stop()


def test_a_finished_response_does_not_wait_for_a_request_that_may_block() -> None:
    sink = CollectingSink()
    channel = channel_with(sink)
    woken: list[int] = []

    def may_block(request: Request, services: Any) -> Any:
        woken.append(sink.woken)
        return MetadataResponse()

    channel.put(toy_request(channel, row=metadata_row(lambda request, services: MetadataResponse(), inline=True)))
    channel.put(toy_request(channel, row=metadata_row(may_block)))
    handler = driven_handler(channel)
    handler.run_once()
    assert woken == [1]
    assert sink.woken == 2
    handler.on_stop()


def test_a_processor_is_woken_also_when_the_next_request_ends_the_broker() -> None:
    sink = CollectingSink()
    channel = channel_with(sink)
    channel.put(toy_request(channel, row=metadata_row(lambda request, services: MetadataResponse(), inline=True)))
    channel.put(toy_request(channel, row=metadata_row(failing(FatalBrokerError("injected")), inline=True)))
    handler = driven_handler(channel)
    with pytest.raises(FatalBrokerError):
        handler.run_once()
    assert sink.woken == 1
    handler.on_stop()


def test_a_handler_holds_the_baton_for_what_cannot_block_and_lets_go_of_it_for_the_rest() -> None:
    channel = channel_with(CollectingSink())
    handler = RequestHandler(0, toy_plane(channel, baton=Baton()))
    handler.on_start()
    held: list[bool] = []

    def look(request: Request, services: Any) -> Any:
        held.append(handler._baton_turn.held)
        return MetadataResponse()

    for inline in (True, True, False, True):
        channel.put(toy_request(channel, row=metadata_row(look, inline)))
    handler.run_once()
    assert held == [True, True, False, True]
    assert not handler._baton_turn.held
    handler.on_stop()


def test_throttling_starts_before_a_response_that_a_handler_delivers() -> None:
    sink = CollectingSink()
    channel = RequestChannel(10, schedule=lambda delay, callback: None)
    channel.add_processor(sink)

    def throttled(request: Request, services: Any) -> Any:
        request.throttle(10, "Request")
        return MetadataResponse()

    channel.put(toy_request(channel, row=metadata_row(throttled)))
    handler = driven_handler(channel)
    handler.run_once()
    assert [type(response).__name__ for response in sink.responses] == ["StartThrottlingResponse", "SendResponse"]
    handler.on_stop()


def test_idle_time_is_measured() -> None:
    """RP-34."""
    clock = ManualClock()
    channel = RequestChannel(10, clock=clock)
    pool = RequestHandlerPool(toy_plane(channel, clock))
    assert pool.idle_share() == 1
    pool.start(2)
    try:
        wait_until(lambda: channel.idle_handlers() == 2)
        clock.advance(10)
        for _ in range(2):
            channel.put_shutdown()
        wait_until(lambda: not pool.handlers)
    finally:
        pool.shutdown(5)


def test_a_fatal_error_in_a_handler_tells_the_broker() -> None:
    """RP-34: and the others go on until it ends."""
    told: list[BaseException] = []
    sink = CollectingSink()
    channel = channel_with(sink)
    pool = RequestHandlerPool(toy_plane(channel, on_fatal=lambda name, error: told.append(error)))
    pool.start(2)
    try:
        channel.put(toy_request(channel, row=metadata_row(failing(FatalBrokerError("injected")))))
        wait_until(lambda: told)
        assert isinstance(told[0], FatalBrokerError)
        channel.put(toy_request(channel, row=metadata_row(lambda request, services: MetadataResponse())))
        wait_until(lambda: sink.responses)
    finally:
        pool.shutdown(5)


def test_handlers_have_kafkas_names_and_reuse_free_ids() -> None:
    """RP-2."""
    pool = RequestHandlerPool(toy_plane(RequestChannel(10)))
    pool.start(3)
    try:
        assert [handler.name for handler in pool.handlers] == [
            f"data-plane-kafka-request-handler-{i}" for i in range(3)
        ]
        pool.resize(1)
        wait_until(lambda: len(pool.handlers) == 1)
        pool.resize(3)
        assert {handler.id for handler in pool.handlers} == {0, 1, 2}
        assert pool.size == 3
        assert "target=3" in repr(pool)
    finally:
        assert pool.shutdown(10)
    assert pool.handlers == []


def test_resizing_under_load_loses_no_request() -> None:
    """RP-35."""
    sink = CollectingSink()
    channel = channel_with(sink, 50)
    pool = RequestHandlerPool(toy_plane(channel))
    pool.start(4)
    row = metadata_row(lambda request, services: MetadataResponse())
    requests = [toy_request(channel, row=row) for _ in range(3000)]
    putter = threading.Thread(target=lambda: [channel.put(request) for request in requests])
    putter.start()
    try:
        for size in (1, 8, 2, 6, 1, 4):
            pool.resize(size)
            seen = len(sink.responses)
            wait_until(lambda seen=seen: len(sink.responses) > seen + 100 or len(sink.responses) == 3000)
        putter.join(20)
        wait_until(lambda: len(sink.responses) == 3000, 20)
        wait_until(lambda: len(pool.handlers) == 4)
        assert {response.request for response in sink.responses} == set(requests)
    finally:
        assert pool.shutdown(10)


def test_shutdown_reports_a_handler_that_does_not_end() -> None:
    channel = channel_with(CollectingSink())
    release = threading.Event()
    entered = threading.Event()

    def stuck(request: Request, services: Any) -> Any:
        entered.set()
        release.wait(20)
        return MetadataResponse()

    pool = RequestHandlerPool(toy_plane(channel))
    pool.start(1)
    channel.put(toy_request(channel, row=metadata_row(stuck)))
    assert entered.wait(5)
    assert pool.shutdown(0.1) is False
    release.set()
    wait_until(lambda: not pool.handlers)


def test_a_handler_that_cannot_be_started_leaves_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 18, C2: the system has no thread left for the fifth one."""
    pool = RequestHandlerPool(toy_plane(RequestChannel(10)))
    pool.start(2)
    start = RequestHandler.start

    def refuse_from_four(handler: RequestHandler, timeout: float = 30.0) -> None:
        if handler.id >= 4:
            raise ThreadFailedToStart("can't start new thread")
        start(handler, timeout)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(RequestHandler, "start", refuse_from_four)
            with pytest.raises(ThreadFailedToStart):
                pool.resize(8)
        assert pool.size == len(pool.handlers) == 4
        pool.resize(2)
        wait_until(lambda: len(pool.handlers) == 2)
        pool.resize(5)
        assert {handler.id for handler in pool.handlers} == {0, 1, 2, 3, 4}
    finally:
        assert pool.shutdown(10)
    assert pool.handlers == []


def test_shutdown_does_not_wait_for_a_handler_that_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 18, C2: the stop needed the lock under which threads were started."""
    pool = RequestHandlerPool(toy_plane(RequestChannel(10)))
    pool.start(1)
    start, entered, go_on = RequestHandler.start, threading.Event(), threading.Event()

    def slow(handler: RequestHandler, timeout: float = 30.0) -> None:
        entered.set()
        go_on.wait(30)
        start(handler, timeout)

    monkeypatch.setattr(RequestHandler, "start", slow)
    refused: list[Exception] = []

    def resize() -> None:
        try:
            pool.resize(3)
        except BarnabasError as error:
            refused.append(error)

    resizing = threading.Thread(target=resize)
    resizing.start()
    assert entered.wait(30)
    assert pool.shutdown(10)
    go_on.set()
    resizing.join(30)
    assert [str(error) for error in refused] == ["the broker is stopping"]
    wait_until(lambda: not pool.handlers, what="the end of the handler that came late")
