"""The budget of a request: what is light, what waits in the heavy lane, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.budget import Budget, NeedsHandler
from barnabas.broker.network.intake import Intake, OverBudget, decode_rest
from barnabas.broker.network.request import CloseConnectionResponse, Request, SendResponse
from barnabas.broker.network.request_channel import SHUTDOWN, RequestChannel
from barnabas.broker.network.slow_lane import PATIENCE_NS, SlowLane, Turns
from barnabas.clock import ManualClock
from barnabas.errors import MalformedRequest
from barnabas.protocol.codec import compile_decoder, decode_request, encode
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.wire import TooManyElements
from tests import wire
from tests.broker.network.toy_broker import (
    CollectingSink,
    ToyRow,
    client_of,
    serving,
    toy_apis,
    toy_request,
)
from tests.waiting import wait_until

LIGHT = 10
MOST = 50
BUDGET = Budget(light_elements=LIGHT, light_bytes=2_000, max_elements=MOST)


def metadata_of(names: Sequence[str]) -> bytes:
    """The payload of a Metadata v1."""
    body = len(names).to_bytes(4, "big") + b"".join(map(wire.string, names))
    return wire.request(wire.METADATA, 1, body)[4:]


def read(payload: bytes, weigh: Any = None) -> Any:
    """What a processor makes of these bytes."""
    row = ToyRow(wire.METADATA, lambda *_: None, (0, 13))
    row.weigh = weigh
    plane: Any = SimpleNamespace(
        budget=BUDGET, apis_of=lambda listener: {wire.METADATA: row}, services="services", request_channel=None
    )
    receive: Any = SimpleNamespace(payload=payload, buffer=None)
    return Intake(plane, "PLAINTEXT").read(receive, SimpleNamespace(), 0)  # type: ignore[arg-type]


def test_a_small_request_is_light_and_decoded_at_once() -> None:
    request = read(metadata_of(["a"] * LIGHT))
    assert not request.heavy
    assert len(request.body.topics) == LIGHT


@pytest.mark.parametrize(
    "names", [["a"] * (LIGHT + 1), ["a" * 2_000]], ids=["more elements than light", "more bytes than light"]
)
def test_a_larger_one_is_left_to_a_handler(names: list[str]) -> None:
    request = read(metadata_of(names))
    assert request.heavy
    assert not hasattr(request.body, "topics")
    decode_rest(request, MOST)
    assert [topic.name for topic in request.body.topics] == names
    assert request.payload is None


def test_more_elements_than_the_cap_are_refused() -> None:
    request = read(metadata_of(["a"] * (MOST + 1)))
    with pytest.raises(OverBudget, match=r"51 list elements; 50 are allowed \(barnabas.request.max.elements\)"):
        decode_rest(request, MOST)
    assert request.body is None


def test_a_small_request_for_much_is_heavy() -> None:
    asked: list[object] = []

    def weigh(body: Any, services: object) -> int:
        asked.append((body.topics, services))
        return LIGHT + 1

    request = read(metadata_of([]), weigh)
    assert request.heavy
    assert request.body is not None
    assert asked == [([], "services")]
    assert not read(metadata_of([]), lambda *_: LIGHT).heavy


@pytest.mark.parametrize("form", ["compiled or not", "plain"])
@pytest.mark.parametrize("announced", [6, 1 << 20, 2**31 - 1, -2])
def test_no_list_is_made_for_more_than_is_allowed(form: str, announced: int) -> None:
    """A length that the bytes cannot hold is malformed, one that they can hold counts."""
    body = encode(MetadataRequest(topics=[MetadataRequestTopic(name="a")] * 6), 1)
    payload = announced.to_bytes(4, "big", signed=True) + b"".join(cast(list[bytes], body))[4:]
    plain = compile_decoder(MetadataRequest, 1)
    decode = plain if form == "plain" else lambda data, at, most: decode_request(wire.METADATA, 1, data, at, most)
    with pytest.raises(TooManyElements if announced == 6 else MalformedRequest) as caught:
        decode(payload, 0, 5)
    assert isinstance(caught.value, TooManyElements) == (announced == 6)


# -- the lane ------------------------------------------------------------------------------------------------------------


def heavy(channel: RequestChannel, address: str = "10.0.0.1", client: str = "a", start_ns: int = 0) -> Request:
    request = toy_request(channel)
    request.heavy = True
    request.start_ns = start_ns
    request.connection.client_address = address
    request.header = SimpleNamespace(api_key=wire.METADATA, api_version=1, client_id=client, correlation_id=1, api=None)  # type: ignore[assignment]
    return request


def test_addresses_take_turns_and_so_do_the_clients_of_one() -> None:
    channel = RequestChannel()
    turns = Turns()
    flood = [heavy(channel, "10.0.0.1", "flood") for _ in range(4)]
    patient = heavy(channel, "10.0.0.1", "patient")
    other = heavy(channel, "10.0.0.2", "other")
    for request in (*flood, patient, other):
        turns.append(request)
    assert len(turns) == len(list(turns)) == 6
    order = []
    while turns:
        first = turns.first()
        assert turns.popleft() is first
        order.append(first)
    assert order == [flood[0], other, patient, *flood[1:]]


def test_a_quarter_of_the_handlers_runs_heavy_requests_and_light_ones_overtake() -> None:
    channel = RequestChannel()
    seats = [channel.sit_down() for _ in range(8)]
    for _ in range(5):
        channel.put(heavy(channel))
    light = toy_request(channel)
    light.start_ns = 1
    channel.put(light)
    taken = [channel.take(0, seat) for seat in seats]
    assert [request is not None and request.heavy for request in taken[:2]] == [True, True]  # type: ignore[union-attr]
    assert taken[2] is light
    assert taken[3:] == [None] * 5
    assert (channel.slow_running(), channel.slow_depth()) == (2, 3)
    next_one = channel.take_more(seats[0])
    assert isinstance(next_one, Request)
    assert next_one.heavy
    assert (channel.slow_running(), channel.slow_depth()) == (2, 2)


def admin(channel: RequestChannel, address: str = "10.0.0.1") -> Request:
    request = heavy(channel, address)
    request.heavy = False
    request.row.admin = True
    return request


def test_what_an_administrator_sends_leaves_handlers_to_the_others() -> None:
    """It may wait for a disk or a lock: all handlers would, and whatever is queued with them."""
    channel = RequestChannel(limit=2)
    seats = [channel.sit_down() for _ in range(2)]
    for _ in range(4):
        assert channel.put(admin(channel)), "they take no room of the others"
    light = toy_request(channel)
    light.start_ns = 1
    assert channel.put(light)
    first = channel.take(0, seats[0])
    assert isinstance(first, Request)
    assert first.row.admin
    assert channel.take(0, seats[1]) is light
    assert channel.take(0, seats[1]) is None
    assert (channel.slow_running(), channel.slow_depth(), channel.depth()) == (1, 3, 3)
    assert len(channel.clear()) == 3


def test_administrators_and_heavy_requests_alternate() -> None:
    channel = RequestChannel()
    seat = channel.sit_down()
    for _ in range(3):
        channel.put(heavy(channel))
    for _ in range(2):
        channel.put(admin(channel))
    taken = [channel.take(0, seat) for _ in range(5)]
    assert [isinstance(one, Request) and one.heavy for one in taken] == [True, False, True, False, True]


def test_with_three_handlers_administrators_do_not_wait_for_heavy_requests() -> None:
    channel = RequestChannel()
    seats = [channel.sit_down() for _ in range(3)]
    first, second = heavy(channel), heavy(channel)
    alter = admin(channel)
    for request in (first, second, alter):
        channel.put(request)
    light = toy_request(channel)
    light.start_ns = 1
    channel.put(light)
    assert [channel.take(0, seat) for seat in seats] == [first, alter, light]
    assert channel.take(0, seats[2]) is None
    assert channel.take(0, seats[0]) is second


def test_an_administrator_does_not_wait_for_the_memory_of_answers() -> None:
    channel = RequestChannel(budget=Budget(unsent_bytes=1_000))
    channel.add_processor(CollectingSink())
    seat = channel.sit_down()
    first, alter = heavy(channel), admin(channel)
    channel.put(first)
    assert channel.take(0, seat) is first
    channel.send_response(answer(first, 2_000))
    channel.put(heavy(channel))
    channel.put(alter)
    assert channel.take(0, seat) is alter
    assert channel.take(0, seat) is None


def test_a_single_handler_runs_one_heavy_request_at_a_time() -> None:
    channel = RequestChannel()
    seat = channel.sit_down()
    for _ in range(2):
        channel.put(heavy(channel))
    assert channel.take(0, seat) is not None
    assert channel.slow_running() == 1


def test_heavy_requests_that_wait_are_taken_before_a_handler_ends() -> None:
    channel = RequestChannel()
    seat = channel.sit_down()
    request = heavy(channel)
    channel.put_shutdown()
    channel.put(request)
    assert channel.take(0, seat) is request
    assert channel.take(0, seat) is SHUTDOWN


def answer(request: Request, size: int) -> SendResponse:
    response = request.prepare(MetadataResponse(topics=[MetadataResponseTopic(name="n" * size)]))
    assert isinstance(response, SendResponse)
    return response


def test_no_heavy_request_begins_while_others_do_not_take_their_answers() -> None:
    clock = ManualClock()
    channel = RequestChannel(clock=clock, budget=Budget(unsent_bytes=1_000))
    sink = CollectingSink()
    channel.add_processor(sink)
    seat = channel.sit_down()
    first, second = heavy(channel), heavy(channel)
    channel.put(first)
    channel.put(second)
    assert channel.take(0, seat) is first
    channel.send_response(answer(first, 2_000))
    assert channel.heavy_unsent() > 2_000
    assert channel.take(0, seat) is None, "the memory is taken"
    channel.drop_slow_answers()
    assert len(sink.responses) == 1, "the client still has time"
    clock.advance(PATIENCE_NS / 1e9)
    channel.drop_slow_answers()
    (_, closed) = sink.responses
    assert isinstance(closed, CloseConnectionResponse)
    assert closed.request is first
    channel.answer_gone(first.connection)
    channel.answer_gone(first.connection)
    assert channel.heavy_unsent() == 0
    assert channel.take(0, seat) is second


def test_an_address_that_does_not_take_its_answers_waits_alone() -> None:
    """Whoever holds a third of the memory begins no further heavy request, and others do not notice."""
    clock = ManualClock()
    channel = RequestChannel(clock=clock, budget=Budget(unsent_bytes=10_000))
    sink = CollectingSink()
    channel.add_processor(sink)
    seat = channel.sit_down()
    first, second, other = heavy(channel, "10.0.0.1"), heavy(channel, "10.0.0.1"), heavy(channel, "10.0.0.2")
    channel.put(first)
    channel.put(second)
    assert channel.take(0, seat) is first
    channel.send_response(answer(first, 4_000))
    channel.put(heavy(channel, "10.0.0.1"))
    channel.put(other)
    assert channel.take(0, seat) is other
    assert channel.take(0, seat) is None
    assert channel.slow_depth() == 2
    clock.advance(PATIENCE_NS / 1e9)
    channel.drop_slow_answers()
    assert isinstance(sink.responses[-1], CloseConnectionResponse)
    channel.drop_slow_answers()
    assert len(sink.responses) == 2, "the same one is not closed twice at once"
    channel.answer_gone(first.connection)
    assert channel.take(0, seat) is second
    channel.send_response(answer(second, 4_000))
    assert len(channel.clear()) == 1


def test_the_objects_of_a_heavy_request_do_not_wait_for_its_client() -> None:
    channel = RequestChannel()
    request = heavy(channel)
    request.body = MetadataRequest(topics=[])
    message = MetadataResponse(topics=[MetadataResponseTopic(name="a", error_code=3), MetadataResponseTopic(name="b")])
    assert request.prepare(message) is not None
    assert request.body is None
    assert request.response is None
    assert request.errors == {0: 2, 3: 1}
    light = toy_request(channel)
    assert light.prepare(message) is not None
    assert light.response is message


def test_an_empty_lane_is_never_short() -> None:
    lane = SlowLane(0)
    assert not lane.is_short()
    assert lane.overdue(PATIENCE_NS) is None
    assert lane.next_turns(8) is None


# -- the whole path --------------------------------------------------------------------------------------------------------


def test_who_names_too_much_is_disconnected_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with serving(barnabas_request_max_elements=MOST, barnabas_request_light_elements=LIGHT) as server:
        with client_of(server) as sock:
            assert wire.ask(sock, wire.frame(metadata_of(["a"] * MOST)))
            assert wire.ask(sock, wire.frame(metadata_of(["a"] * (MOST + 1)))) == b""
        with client_of(server) as sock:
            assert wire.ask(sock, wire.api_versions())
    (line,) = [record.getMessage() for record in caplog.records if "closing the connection" in record.getMessage()]
    assert "(Metadata)" in line
    assert "barnabas.request.max.elements" in line


@pytest.mark.parametrize("inline", ["true", "false"])
def test_an_api_that_finds_much_to_do_goes_on_in_the_heavy_lane(inline: str) -> None:
    """Whether a processor or a handler has begun with it."""
    ran: list[bool] = []

    def answer_metadata(request: Request, services: Any) -> MetadataResponse:
        ran.append(request.heavy)
        if request.inline:
            raise NeedsHandler
        return MetadataResponse(cluster_id="toy")

    apis = toy_apis(metadata=answer_metadata)
    apis[wire.METADATA].inline = True
    with serving(apis, barnabas_request_inline=inline) as server, client_of(server) as sock:
        assert wire.ask(sock, wire.frame(metadata_of(["a"])))
    assert ran == [False, True]


@pytest.mark.parametrize("kind", ["heavy", "admin"])
def test_a_stop_does_not_wait_for_slow_requests_that_have_not_begun(kind: str) -> None:
    """Issue 18: a client with many of them decided how long it took, which is no stop in order when the time is over."""
    entered, gate = threading.Semaphore(0), threading.Event()

    def answer_metadata(request: Request, services: Any) -> MetadataResponse:
        entered.release()
        assert gate.wait(30)
        return MetadataResponse(cluster_id="toy")

    apis = toy_apis(metadata=answer_metadata)
    apis[wire.METADATA].admin = kind == "admin"
    names = [f"name-{number}" for number in range(3000 if kind == "heavy" else 1)]
    with serving(apis, num_io_threads=4, queued_max_request_bytes=10_000_000) as server, ExitStack() as stack:
        clients = [stack.enter_context(client_of(server)) for _ in range(8)]
        clients[0].sendall(wire.frame(metadata_of(names)))
        assert entered.acquire(timeout=30)
        for client in clients[1:]:
            client.sendall(wire.frame(metadata_of(names)))
        wait_until(lambda: server.data_plane.request_channel.slow_depth() == 7)
        ended: list[bool] = []
        stopping = threading.Thread(target=lambda: ended.append(server.shutdown(30)))
        stopping.start()
        assert all(wire.is_closed(client) for client in clients[1:]), "while the first one is still in work"
        gate.set()
        assert wire.read_frame(clients[0])
        stopping.join(30)
        assert ended == [True]
        assert not entered.acquire(blocking=False)
        assert server.memory_pool.used() == 0


def test_no_slow_request_is_queued_after_the_stop_has_begun() -> None:
    channel = RequestChannel()
    waiting = heavy(channel)
    assert channel.put(waiting)
    assert channel.drop_slow() == [waiting]
    assert not channel.put(heavy(channel))
    assert not channel.put(admin(channel))
    assert channel.put(toy_request(channel))
    assert channel.depth() == 1


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROL"])
def test_a_heavy_request_leaves_a_handler_to_the_others_whatever_the_settings(listener: str) -> None:
    """Issue 18: with num.io.threads=1 it had the only one."""
    entered, gate = threading.Event(), threading.Event()

    def answer_metadata(request: Request, services: Any) -> MetadataResponse:
        if request.heavy:
            entered.set()
            assert gate.wait(30)
        return MetadataResponse(cluster_id="toy")

    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
        "control.plane.listener.name": "CONTROL",
        "num.io.threads": 1,
    }
    with (
        serving(toy_apis(metadata=answer_metadata), **settings) as server,
        client_of(server, listener) as slow,
        client_of(server, listener, 10) as quick,
    ):
        try:
            slow.sendall(wire.frame(metadata_of([f"name-{number}" for number in range(3000)])))
            assert entered.wait(30)
            assert wire.ask(quick, wire.frame(metadata_of(["a"])))
        finally:
            gate.set()
        assert wire.read_frame(slow)
