"""The network client on a mock selector and a manual clock: what Kafka's own NetworkClientTest asks for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.client.errors import ClientClosed, NodeNotReady, UnsupportedVersion
from barnabas.errors import ErrorCode, KafkaError
from barnabas.net.authenticator import AuthenticationFailed
from barnabas.net.channel import DisconnectReason
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.client.mock_selector import (
    ALL_VERSIONS,
    API_VERSIONS,
    INIT_PRODUCER_ID,
    METADATA,
    NODE,
    OTHER,
    Rig,
    api_versions,
    metadata_response,
    read_request,
)

PRODUCE = 0
INVALID_REQUEST = 42


@pytest.fixture
def rig() -> Rig:
    return Rig()


class TestSending:
    def test_a_request_to_a_node_that_is_not_ready_is_refused(self, rig: Rig) -> None:
        with pytest.raises(NodeNotReady, match="node 1"):
            rig.send()

    def test_a_request_gets_its_answer_and_its_callback(self, rig: Rig) -> None:
        """PP-20: the response of a request reaches its callback in poll."""
        channel = rig.connect()
        seen = []
        request = rig.send(callback=seen.append)
        rig.advance(7)
        rig.selector.respond(channel, InitProducerIdResponse(producer_id=12))
        (response,) = rig.poll()
        assert seen == [response]
        assert response.request is request
        assert response.was_answered
        assert (response.body.producer_id, response.latency_ms) == (12, 7)

    def test_a_callback_that_raises_disturbs_nobody(self, rig: Rig) -> None:
        channel = rig.connect()
        rig.send(callback=lambda response: 1 / 0)
        later = rig.send()
        rig.selector.respond(channel, InitProducerIdResponse())
        rig.selector.respond(channel, InitProducerIdResponse())
        rig.poll()
        assert rig.client.in_flight_count() == 0
        assert later.correlation_id > 0

    def test_the_header_carries_key_version_correlation_id_and_client_id(self, rig: Rig) -> None:
        """PP-13: header version 2 for flexible versions, 1 before them; correlation ids count up."""
        channel = rig.connect(versions={**ALL_VERSIONS, INIT_PRODUCER_ID: (0, 1)})
        first, second = rig.send(), rig.send()
        (old, _), (old_too, _) = map(read_request, channel.sent)
        assert (old.api_key, old.api_version, old.client_id) == (INIT_PRODUCER_ID, 1, "me")
        assert [old.correlation_id, old_too.correlation_id] == [first.correlation_id, second.correlation_id]
        assert second.correlation_id == first.correlation_id + 1
        other = rig.connect(OTHER)
        rig.send(OTHER)
        (new, _) = read_request(other.sent[0])
        assert new.api_version == ALL_VERSIONS[INIT_PRODUCER_ID][1] >= 2

    def test_batches_leave_from_their_own_memory(self, rig: Rig) -> None:
        """PP-14: the size is known first; the parts are framing and the batches themselves, not copies of them."""
        channel = rig.connect()
        batches = [bytearray(b"x" * 5000), bytearray(b"y" * 9000)]
        rows = [PartitionProduceData(index=i, records=memoryview(batch)) for i, batch in enumerate(batches)]
        rig.send(
            body=ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=rows)])
        )
        send = channel.sent[0]
        assert [part.obj for part in send.parts if isinstance(part, memoryview)] == batches
        assert sum(len(part) for part in send.parts if not isinstance(part, memoryview)) < 200
        assert send.size == sum(map(len, send.parts)) == 4 + int.from_bytes(bytes(send.parts[0])[:4], "big")
        _, body = read_request(send)
        assert [bytes(row.records) for row in body.topic_data[0].partition_data] == [bytes(b) for b in batches]

    def test_a_body_may_be_built_for_the_version_or_come_encoded(self, rig: Rig) -> None:
        channel = rig.connect()
        versions = []

        def build(version: int) -> Sequence[object]:
            versions.append(version)
            return encode(InitProducerIdRequest(transaction_timeout_ms=99), version)

        request = rig.request()
        request.body = build
        rig.client.send(request, rig.now)
        header, body = read_request(channel.sent[0])
        assert versions == [header.api_version]
        assert body.transaction_timeout_ms == 99

    def test_without_an_expected_response_a_request_ends_when_it_is_sent(self, rig: Rig) -> None:
        """PP-15: acks=0, also when the socket takes the bytes only later."""
        channel = rig.connect()
        at_once = rig.send(expect_response=False)
        (response,) = rig.poll(100)
        assert rig.selector.timeouts[-1] == 0
        assert (response.request, response.body, response.was_answered) == (at_once, None, True)
        rig.selector.partial = True
        late = rig.send(expect_response=False)
        assert rig.poll() == []
        rig.selector.finish_send(channel)
        (response,) = rig.poll()
        assert response.request is late
        assert rig.client.in_flight_count() == 0

    def test_requests_in_flight_are_limited(self) -> None:
        """PP-17: no second request while one is half sent, and never more than the limit."""
        rig = Rig({"max.in.flight.requests.per.connection": 2})
        channel = rig.connect()
        rig.selector.partial = True
        rig.send()
        assert not rig.ready()
        rig.selector.finish_send(channel)
        rig.poll()
        assert rig.ready()
        rig.selector.partial = False
        rig.send()
        assert not rig.ready()
        assert rig.client.in_flight_count(NODE) == 2
        rig.selector.respond(channel, InitProducerIdResponse())
        rig.poll()
        assert rig.ready()

    def test_a_closed_client_refuses(self, rig: Rig) -> None:
        rig.connect()
        rig.client.close()
        rig.client.close()
        with pytest.raises(ClientClosed):
            rig.poll()
        with pytest.raises(ClientClosed):
            rig.metadata.await_update(rig.metadata.update_version, 1)


class TestVersions:
    def test_the_highest_common_version_is_used(self, rig: Rig) -> None:
        """PP-18"""
        channel = rig.connect(versions={**ALL_VERSIONS, INIT_PRODUCER_ID: (0, 3)})
        rig.send()
        assert rig.requests(channel) == [(INIT_PRODUCER_ID, 3)]

    def test_an_api_that_the_broker_lacks_fails_that_call_only(self, rig: Rig) -> None:
        """PP-18: UnsupportedVersion for the one call, the connection stays."""
        channel = rig.connect(versions={**ALL_VERSIONS, PRODUCE: (90, 95)})
        refused = rig.send(body=ProduceRequest(acks=1, timeout_ms=1))
        fine = rig.send()
        (response,) = rig.poll()
        assert response.request is refused
        assert isinstance(response.version_mismatch, UnsupportedVersion)
        assert "90 to 95" in str(response.version_mismatch)
        assert not response.disconnected
        rig.selector.respond(channel, InitProducerIdResponse())
        assert [item.request for item in rig.poll()] == [fine]

    def test_a_request_may_narrow_the_versions(self, rig: Rig) -> None:
        channel = rig.connect()
        rig.send(max_version=2)
        assert rig.requests(channel) == [(INIT_PRODUCER_ID, 2)]
        rig.send(min_version=90)
        (response,) = rig.poll()
        assert response.version_mismatch is not None

    @pytest.mark.parametrize(("listed", "second"), [({}, 0), ({API_VERSIONS: (0, 2)}, 2)])
    def test_a_broker_that_refuses_the_newest_api_versions_is_asked_again(
        self, rig: Rig, listed: dict[int, tuple[int, int]], second: int
    ) -> None:
        """PP-18: the refusal comes in version 0; brokers from 2.4 on say what they know, older ones get version 0."""
        rig.ready()
        rig.poll()
        channel = rig.channel()
        assert rig.requests(channel) == [(API_VERSIONS, ALL_VERSIONS[API_VERSIONS][1])]
        rig.selector.respond(channel, api_versions(listed, int(ErrorCode.UNSUPPORTED_VERSION)), version=0)
        rig.poll()
        assert rig.requests(channel) == [(API_VERSIONS, second)]
        rig.selector.respond(channel, api_versions())
        rig.poll()
        assert rig.ready()

    def test_a_broker_that_refuses_even_version_0_is_left(self, rig: Rig) -> None:
        rig.ready()
        rig.poll()
        channel = rig.channel()
        for _ in range(2):
            rig.selector.respond(channel, api_versions({}, int(ErrorCode.UNSUPPORTED_VERSION)), version=0)
            rig.poll()
        assert rig.selector.closed == [channel]
        assert rig.client.connection_failed(NODE)

    def test_another_error_of_api_versions_ends_the_connection(self, rig: Rig) -> None:
        rig.ready()
        rig.poll()
        channel = rig.channel()
        rig.selector.respond(channel, api_versions({}, INVALID_REQUEST))
        rig.poll()
        assert rig.selector.closed == [channel]
        assert "42" in rig.client.connection_error(NODE)

    @pytest.mark.parametrize("by_us", [True, False])
    def test_a_disconnect_while_versions_are_asked_for_starts_over(self, rig: Rig, by_us: bool) -> None:
        rig.ready()
        rig.poll()
        channel = rig.channel()
        if by_us:
            rig.client.disconnect(NODE, rig.now)
        else:
            rig.selector.lose(channel)
        rig.poll()
        assert rig.client.connection_failed(NODE)
        assert rig.client.in_flight_count() == 0
        rig.advance(100)
        assert rig.connect() is not channel

    def test_a_connection_that_never_becomes_ready_does_not_hang(self, rig: Rig) -> None:
        """PP-16: the set-up time-out counts until ApiVersions can be asked for."""
        rig.selector.handshake = True
        rig.ready()
        rig.poll()
        assert rig.requests(rig.channel()) == []
        rig.advance(13_000)
        rig.poll()
        assert rig.client.connection_failed(NODE)


class TestDisconnects:
    def test_every_request_in_flight_ends_as_disconnected_in_order(self, rig: Rig) -> None:
        """PP-21: and metadata is asked for."""
        channel = rig.connect()
        requests = [rig.send() for _ in range(3)]
        rig.advance(200)
        assert rig.metadata.time_to_next_update(rig.now) > 0
        rig.selector.lose(channel)
        responses = rig.poll()
        assert [response.request for response in responses] == requests
        assert all(response.disconnected and not response.timed_out for response in responses)
        assert rig.metadata.time_to_next_update(rig.now) == 0

    def test_answers_that_came_before_the_disconnect_count(self, rig: Rig) -> None:
        """PP-20: receives are handled before disconnections."""
        channel = rig.connect()
        rig.send()
        rig.send()
        rig.selector.respond(channel, InitProducerIdResponse())
        rig.selector.lose(channel)
        assert [response.disconnected for response in rig.poll()] == [False, True]

    def test_other_connections_are_not_disturbed(self, rig: Rig) -> None:
        lost, kept = rig.connect(NODE), rig.connect(OTHER)
        rig.send(NODE)
        fine = rig.send(OTHER)
        rig.selector.lose(lost)
        rig.poll()
        rig.selector.respond(kept, InitProducerIdResponse())
        assert [response.request for response in rig.poll()] == [fine]

    def test_a_late_report_of_an_old_channel_does_not_end_the_new_connection(self, rig: Rig) -> None:
        old = rig.connect()
        rig.client.disconnect(NODE, rig.now)
        rig.poll()
        rig.advance(100)
        rig.metadata.update(rig.metadata.next_request(rig.now), metadata_response([NODE, OTHER]), rig.now)
        rig.connect()
        rig.selector.lose(old)
        rig.poll()
        assert rig.ready()

    def test_a_failed_send_ends_the_connection(self, rig: Rig) -> None:
        """PP-34: the selector records a send on a closing channel as failed; its request ends as disconnected."""
        channel = rig.connect()
        rig.selector.partial = True
        request = rig.send()
        rig.selector.fail_send(channel.sent[0])
        (response,) = rig.poll()
        assert (response.request, response.disconnected) == (request, True)

    @pytest.mark.parametrize("correlation_id", [-1, 0, 77])
    def test_a_wrong_correlation_id_ends_the_connection(self, rig: Rig, correlation_id: int) -> None:
        """PP-20: responses are matched in order; a mismatch closes that connection, and its requests fail."""
        channel = rig.connect()
        request = rig.send()
        rig.selector.respond(channel, InitProducerIdResponse(), correlation=correlation_id)
        (response,) = rig.poll()
        assert (response.request, response.disconnected) == (request, True)
        assert rig.selector.closed == [channel]
        assert "correlation id" in rig.client.connection_error(NODE)

    @pytest.mark.parametrize("payload", [b"", b"\0\0", b"\0\0\0\x02", b"\0\0\0\x02" + b"\xff" * 30])
    def test_garbage_ends_the_connection(self, rig: Rig, payload: bytes) -> None:
        """PP-39: whatever a server sends, only its own connection suffers."""
        channel = rig.connect()
        request = rig.send()
        request.correlation_id = 2
        rig.selector.receive(channel, payload)
        (response,) = rig.poll()
        assert response.disconnected
        assert rig.client.connection_failed(NODE)

    def test_a_response_that_nobody_asked_for_ends_the_connection(self, rig: Rig) -> None:
        channel = rig.connect()
        rig.selector.receive(channel, b"\0\0\0\x09\0")
        assert rig.poll() == []
        assert rig.selector.closed == [channel]

    def test_a_failed_authentication_is_fatal_for_who_waits_for_metadata(self) -> None:
        """PP-16: AUTHENTICATION_FAILED, also with a metadata request in flight."""
        rig = Rig(nodes=())
        rig.poll()
        rig.poll()
        channel = rig.selector.connects[0]
        rig.selector.respond(channel, api_versions())
        rig.poll()
        rig.poll()
        assert rig.requests(channel)[-1][0] == METADATA
        channel.error = AuthenticationFailed("wrong password")
        rig.selector.lose(channel, DisconnectReason.AUTHENTICATION_FAILED)
        rig.poll()
        with pytest.raises(KafkaError, match="wrong password"):
            rig.metadata.await_update(rig.metadata.update_version, 0.1)

    def test_closing_a_node_while_it_connects_forgets_it(self, rig: Rig) -> None:
        rig.selector.stalled = True
        rig.ready()
        rig.poll()
        rig.client.close_node(NODE)
        assert rig.selector.closed == [rig.channel()]
        assert not rig.client.connection_failed(NODE)
        assert rig.client.connection_delay(NODE, rig.now) == 0

    def test_what_happened_is_handled_in_this_order(self, rig: Rig) -> None:
        """PP-20: completed sends, receives, disconnections, requests that took too long."""
        channel, other = rig.connect(NODE), rig.connect(OTHER)
        slow = rig.send(NODE, timeout_ms=100)
        answered, lost = rig.send(OTHER), rig.send(OTHER)
        rig.selector.partial = True
        silent = rig.send(NODE, expect_response=False)
        rig.advance(101)
        rig.selector.finish_send(channel)
        rig.selector.respond(other, InitProducerIdResponse())
        rig.selector.lose(other)
        assert [response.request for response in rig.poll()] == [silent, answered, lost, slow]


class TestTimeOuts:
    def test_an_unanswered_request_closes_the_connection_and_fails_what_is_in_flight(self, rig: Rig) -> None:
        """PP-22"""
        channel = rig.connect()
        short = rig.send(timeout_ms=100)
        long = rig.send()
        rig.advance(100)
        assert rig.poll() == []
        rig.advance(1)
        responses = rig.poll()
        assert [(item.request, item.disconnected, item.timed_out) for item in responses] == [
            (short, True, True),
            (long, True, True),
        ]
        assert rig.selector.closed == [channel]

    def test_the_default_time_out_is_request_timeout_ms(self, rig: Rig) -> None:
        rig.connect()
        rig.send()
        rig.advance(1000)
        assert rig.poll() == []
        rig.advance(1)
        assert len(rig.poll()) == 1

    def test_poll_does_not_sleep_past_a_deadline(self, rig: Rig) -> None:
        rig.connect()
        rig.send(timeout_ms=100)
        rig.poll(60_000)
        assert rig.selector.timeouts[-1] == pytest.approx(0.101)

    def test_a_connect_that_takes_too_long_is_given_up(self) -> None:
        """PP-16: socket.connection.setup.timeout.ms, growing with each failure."""
        rig = Rig({"socket.connection.setup.timeout.ms": 1000, "socket.connection.setup.timeout.max.ms": 1000})
        rig.selector.stalled = True
        rig.ready()
        rig.poll()
        rig.advance(1000)
        rig.poll()
        assert not rig.client.connection_failed(NODE)
        rig.advance(1)
        rig.poll()
        assert rig.client.connection_failed(NODE)
        assert "1000 ms" in rig.client.connection_error(NODE)

    def test_throttled_time_does_not_count_as_waiting(self, rig: Rig) -> None:
        """PP-22 with a quota: requests that wait behind a throttled one get that time on top."""
        channel = rig.connect()
        rig.send(timeout_ms=100)
        waits = rig.send(timeout_ms=100)
        rig.selector.respond(channel, InitProducerIdResponse(throttle_time_ms=50))
        rig.poll()
        rig.advance(150)
        assert rig.poll() == []
        rig.advance(1)
        assert [item.request for item in rig.poll()] == [waits]


class TestThrottling:
    def test_a_throttled_node_is_not_ready_until_its_time_is_over(self, rig: Rig) -> None:
        """PP-16: throttle times are honoured (KIP-219)."""
        channel = rig.connect()
        rig.send(body=ProduceRequest(acks=1, timeout_ms=1))
        rig.selector.respond(channel, ProduceResponse(throttle_time_ms=100))
        rig.poll()
        assert not rig.ready()
        assert rig.client.throttle_delay_ms(NODE, rig.now) == 100
        assert rig.client.poll_delay_ms(NODE, rig.now) == 100
        rig.advance(99)
        assert not rig.ready()
        rig.advance(1)
        assert rig.ready()

    def test_old_brokers_that_wait_themselves_are_not_waited_for_twice(self, rig: Rig) -> None:
        channel = rig.connect(versions={**ALL_VERSIONS, PRODUCE: (3, 5)})
        rig.send(body=ProduceRequest(acks=1, timeout_ms=1))
        rig.selector.respond(channel, ProduceResponse(throttle_time_ms=100))
        rig.poll()
        assert rig.ready()


class TestLeastLoadedNode:
    def test_an_idle_ready_node_is_best(self, rig: Rig) -> None:
        """PP-19"""
        rig.connect(NODE)
        rig.connect(OTHER)
        rig.send(NODE)
        assert {rig.client.least_loaded_node(rig.now) for _ in range(20)} == {OTHER}
        rig.send(OTHER)
        rig.send(OTHER)
        assert {rig.client.least_loaded_node(rig.now) for _ in range(20)} == {NODE}

    def test_a_node_that_is_being_connected_to_is_better_than_a_new_one(self, rig: Rig) -> None:
        rig.selector.stalled = True
        rig.ready(OTHER)
        assert {rig.client.least_loaded_node(rig.now) for _ in range(20)} == {OTHER}

    def test_throttled_and_backing_off_nodes_are_left_out(self, rig: Rig) -> None:
        channel = rig.connect(NODE)
        rig.send(NODE, ProduceRequest(acks=1, timeout_ms=1))
        rig.selector.respond(channel, ProduceResponse(throttle_time_ms=1000))
        rig.poll()
        lost = rig.connect(OTHER)
        rig.selector.lose(lost)
        rig.poll()
        assert rig.client.least_loaded_node(rig.now) is None

    def test_among_unconnected_nodes_the_one_not_tried_for_longest_is_chosen(self, rig: Rig) -> None:
        for node in (OTHER, NODE):
            rig.ready(node)
            rig.poll()
            rig.selector.lose(rig.channel(node))
            rig.poll()
            rig.advance(10)
        rig.advance(5000)
        assert {rig.client.least_loaded_node(rig.now) for _ in range(20)} == {OTHER}


class TestBackOff:
    def test_the_wait_before_a_reconnect_grows_until_the_node_was_ready(self) -> None:
        """PP-16: reconnect.backoff.ms doubles up to reconnect.backoff.max.ms, 20 % more or less."""
        rig = Rig({"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 800, "metadata.recovery.strategy": "none"})
        for expected in (100, 200, 400, 800, 800):
            rig.selector.refuse = OSError("refused")
            assert not rig.ready()
            delay = rig.client.connection_delay(NODE, rig.now)
            assert expected * 0.8 <= delay <= min(expected * 1.2, 800)
            assert not rig.client.can_connect(NODE.id, rig.now + delay - 1)
            rig.advance(delay)
        rig.selector.refuse = None
        rig.metadata.update(rig.metadata.next_request(rig.now), metadata_response([NODE, OTHER]), rig.now)
        channel = rig.connect()
        rig.selector.lose(channel)
        rig.poll()
        assert rig.client.connection_delay(NODE, rig.now) <= 120

    def test_without_room_to_grow_the_wait_is_exact(self) -> None:
        rig = Rig({"reconnect.backoff.ms": 70, "reconnect.backoff.max.ms": 70})
        rig.selector.refuse = OSError("refused")
        for _ in range(5):
            rig.ready()
            assert rig.client.connection_delay(NODE, rig.now) == 70
            rig.advance(70)

    def test_the_delay_of_each_state(self) -> None:
        rig = Rig({"socket.connection.setup.timeout.ms": 500, "socket.connection.setup.timeout.max.ms": 500})
        assert rig.client.connection_delay(NODE, rig.now) == 0
        rig.selector.stalled = True
        rig.ready()
        rig.advance(100)
        assert rig.client.connection_delay(NODE, rig.now) == 400
        rig.selector.stalled = False
        rig.poll()
        assert rig.client.connection_delay(NODE, rig.now) > 10**15
        assert rig.client.poll_delay_ms(NODE, rig.now) > 10**15


class TestMetadataFirst:
    def test_no_node_is_ready_while_metadata_is_due(self, rig: Rig) -> None:
        """PP-3, PP-20: the metadata request goes first."""
        channel = rig.connect()
        rig.advance(200)
        rig.metadata.request_update()
        assert not rig.ready()
        rig.poll()
        assert METADATA in [key for key, _ in rig.requests(channel)] or len(rig.selector.connects) > 1
        assert rig.ready()

    def test_one_metadata_request_at_a_time(self, rig: Rig) -> None:
        channel = rig.connect(NODE)
        rig.connect(OTHER)
        rig.advance(200)
        for _ in range(5):
            rig.metadata.request_update()
            rig.poll()
            rig.advance(200)
        sent = rig.requests(channel) + rig.requests(rig.channel(OTHER))
        assert [key for key, _ in sent] == [METADATA]

    def test_wakeup_reaches_the_selector(self, rig: Rig) -> None:
        rig.client.wakeup()
        assert rig.selector.timeouts[-1] == -1
