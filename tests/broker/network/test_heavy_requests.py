"""The budget of a request: what is light, what waits in the heavy lane, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.budget import Budget, NeedsHandler
from barnabas.broker.network.heavy_lane import PATIENCE_NS, HeavyLane, Turns
from barnabas.broker.network.intake import Intake, OverBudget, decode_rest
from barnabas.broker.network.request import CloseConnectionResponse, Request, SendResponse
from barnabas.broker.network.request_channel import SHUTDOWN, RequestChannel
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
    assert (channel.heavy_running(), channel.heavy_depth()) == (2, 3)
    next_one = channel.take_more(seats[0])
    assert isinstance(next_one, Request)
    assert next_one.heavy
    assert (channel.heavy_running(), channel.heavy_depth()) == (2, 2)


def test_a_single_handler_runs_one_heavy_request_at_a_time() -> None:
    channel = RequestChannel()
    seat = channel.sit_down()
    for _ in range(2):
        channel.put(heavy(channel))
    assert channel.take(0, seat) is not None
    assert channel.heavy_running() == 1


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
    lane = HeavyLane(0)
    assert not lane.is_short()
    assert lane.overdue(PATIENCE_NS) is None
    assert not lane.may_begin(8)


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
