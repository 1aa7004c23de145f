"""How the network client finds brokers: names and addresses, bootstrap servers, starting again."""

from __future__ import annotations

import pytest

from barnabas.client.cluster import Node
from barnabas.client.errors import ClientTimeout
from barnabas.errors import ErrorCode
from barnabas.net.channel import DisconnectReason
from tests.client.mock_selector import API_VERSIONS, NODE, OTHER, Rig, api_versions, metadata_response


@pytest.fixture
def rig() -> Rig:
    return Rig()


class TestAddresses:
    def test_a_name_that_does_not_resolve_backs_off_and_is_named(self, rig: Rig) -> None:
        del rig.addresses["one"]
        assert not rig.ready()
        assert rig.client.connection_failed(NODE)
        assert rig.client.connection_delay(NODE, rig.now) > 0
        with pytest.raises(ClientTimeout, match=r"one:9092 \(no such name: one\)"):
            rig.metadata.await_update(rig.metadata.update_version, 0.001)

    def test_all_addresses_of_a_name_are_tried_in_turn(self, rig: Rig) -> None:
        """PP-24: and DNS is asked again behind the last."""
        rig.addresses["one"] = ["10.0.0.1", "10.0.1.1"]
        tried = []
        for _ in range(3):
            rig.ready()
            tried.append(rig.channel().address)
            rig.selector.lose(rig.channel(), DisconnectReason.CONNECT_FAILED)
            rig.poll()
            rig.advance(2000)
        assert [address for address, _ in tried] == ["10.0.0.1", "10.0.1.1", "10.0.0.1"]
        assert rig.lookups.count("one") == 2

    def test_after_a_connection_stood_dns_is_asked_again(self, rig: Rig) -> None:
        channel = rig.connect()
        rig.addresses["one"] = ["10.0.7.7"]
        rig.selector.lose(channel)
        rig.poll()
        rig.advance(2000)
        rig.ready()
        assert rig.channel().address == ("10.0.7.7", 9092)

    def test_a_node_that_moved_to_another_host_is_found_there(self, rig: Rig) -> None:
        channel = rig.connect()
        rig.selector.lose(channel)
        rig.poll()
        rig.advance(2000)
        moved = Node(NODE.id, "three", 1234)
        rig.ready(moved)
        assert rig.channel().address == ("10.0.0.3", 1234)


class TestBootstrap:
    def bring_metadata(self, rig: Rig, nodes: list[Node], **fields: object) -> None:
        """Answer ApiVersions and metadata on the newest connection."""
        rig.poll()
        rig.poll()
        channel = rig.selector.connects[-1]
        if rig.requests(channel) and rig.requests(channel)[0][0] == API_VERSIONS:
            rig.selector.respond(channel, api_versions())
            rig.poll()
            rig.poll()
        rig.selector.respond(channel, metadata_response(nodes, **fields))
        rig.poll()

    def test_the_first_metadata_comes_from_a_bootstrap_server(self) -> None:
        """PP-24"""
        rig = Rig(nodes=())
        self.bring_metadata(rig, [NODE])
        assert rig.selector.connects[0].address == ("10.0.0.9", 9092)
        assert rig.metadata.fetch().nodes == (NODE,)

    def test_an_answer_without_brokers_is_asked_for_again(self) -> None:
        rig = Rig(nodes=())
        self.bring_metadata(rig, [])
        assert rig.metadata.fetch().is_bootstrap
        rig.advance(1500)
        self.bring_metadata(rig, [NODE])
        assert not rig.metadata.fetch().is_bootstrap

    @pytest.mark.parametrize(("strategy", "back"), [("rebootstrap", True), ("none", False)])
    def test_when_every_known_broker_is_gone_the_client_starts_again(self, strategy: str, back: bool) -> None:
        """PP-24: all known brokers were tried and are backing off."""
        rig = Rig({"metadata.recovery.strategy": strategy, "reconnect.backoff.ms": 1000}, nodes=[NODE, OTHER])
        rig.selector.refuse = OSError("connection refused")
        rig.metadata.request_update()
        for _ in range(30):
            rig.advance(100)
            rig.poll()
        assert rig.metadata.fetch().is_bootstrap is back
        assert ("boot" in rig.lookups) is back

    def test_that_nobody_answers_is_said_when_it_lasts_and_now_and_then(self, caplog: pytest.LogCaptureFixture) -> None:
        rig = Rig(nodes=())
        rig.selector.refuse = ConnectionRefusedError(111, "Connection refused")
        for _ in range(350):
            rig.poll()
            rig.advance(100)
        said = [record.getMessage() for record in caplog.records if "No broker can be reached" in record.getMessage()]
        assert said == ["No broker can be reached; tried boot:9092 (Connection refused); going on trying"] * 2

    def test_it_is_known_when_every_server_refuses(self) -> None:
        rig = Rig(nodes=())
        rig.addresses["boot"] = ["10.0.0.1", "10.0.0.2"]
        rig.selector.refuse = ConnectionRefusedError(111, "Connection refused")
        rig.poll()
        assert not rig.metadata.failures.all_refused(["boot:9092"]), "its second address was not tried yet"
        rig.advance(2000)
        rig.poll()
        assert rig.metadata.failures.all_refused(["boot:9092"])
        rig.selector.refuse = None
        rig.advance(2000)
        self.bring_metadata(rig, [NODE])
        assert not rig.metadata.failures.all_refused(["boot:9092"])

    def test_a_long_time_without_metadata_starts_again(self) -> None:
        """PP-24, KIP-1102: brokers that accept but never tell anything."""
        rig = Rig({"metadata.recovery.rebootstrap.trigger.ms": 20_000, "metadata.max.age.ms": 1000}, nodes=[NODE])
        rig.connect()
        for _ in range(60):
            rig.poll()
            rig.advance(1001)
        addresses = {channel.address[0] for channel in rig.selector.connects}
        assert addresses == {"10.0.0.1", "10.0.0.9"}

    def test_a_broker_may_ask_the_client_to_start_again(self) -> None:
        rig = Rig(nodes=())
        self.bring_metadata(rig, [NODE], error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED))
        assert rig.metadata.fetch().is_bootstrap
        assert rig.selector.closed == rig.selector.connects
