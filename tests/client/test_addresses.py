"""Bootstrap servers, host names, back-off and settings: the small parts of the client."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas import Admin, Consumer, Producer
from barnabas.client.addresses import NodeAddresses, parse_bootstrap, resolve_all, resolved_bootstrap
from barnabas.client.backoff import ExponentialBackoff
from barnabas.client.cluster import Node
from barnabas.client.config import client_config
from barnabas.errors import ConfigError


class TestBootstrapServers:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a:1", [("a", 1)]),
            (" a:1 , b.example.org:9093,", [("a", 1), ("b.example.org", 9093)]),
            ("[::1]:9094", [("::1", 9094)]),
            ("PLAINTEXT://a:1", [("a", 1)]),
            ("a:1,a:1", [("a", 1)]),
            (("a:1", "b:2"), [("a", 1), ("b", 2)]),
        ],
    )
    def test_the_forms_that_users_write(self, text: str, expected: list[tuple[str, int]]) -> None:
        """PP-24"""
        assert parse_bootstrap(text) == expected

    @pytest.mark.parametrize(
        "text",
        ["", " , ", "a:0", "a:70000", "a:b", "a:1:2", "::1:9092", "a b:1", "http://", "9092", "a", "[::1]", "a:1,b"],
    )
    def test_what_cannot_be_a_server_is_refused_with_its_name(self, text: str) -> None:
        with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
            parse_bootstrap(text)

    def test_a_server_without_a_port_is_told_how_to_write_it(self) -> None:
        with pytest.raises(ConfigError, match=r"bootstrap\.servers = 'localhost': has no port; write localhost:9092"):
            parse_bootstrap("localhost")

    def test_a_name_that_means_nothing_is_refused_at_once_unless_another_one_does(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def resolve(host: str) -> list[str]:
            if host == "nobody":
                raise OSError(-2, "Name or service not known")
            return ["10.0.0.1"]

        with pytest.raises(ConfigError, match=r"nobody:1,nobody:2'.* \(nobody: Name or service not known\)"):
            resolved_bootstrap("nobody:1,nobody:2", resolve)
        assert resolved_bootstrap("nobody:1,there:2", resolve) == [("nobody", 1), ("there", 2)]
        assert "nobody: Name or service not known" in caplog.text

    @pytest.mark.parametrize("make", [Producer, Consumer, Admin])
    def test_every_client_says_it_when_it_is_made(self, make: type) -> None:
        with pytest.raises(ConfigError, match="no-such-host"):
            make({"bootstrap.servers": "no-such-host.invalid:9092"})

    def test_an_address_is_written_with_its_port(self) -> None:
        assert Node(1, "h", 2).address == "h:2"
        assert Node(1, "::1", 2).address == "[::1]:2"


class TestResolving:
    def test_numeric_hosts_need_no_dns(self) -> None:
        assert list(resolve_all("127.0.0.1")) == ["127.0.0.1"]
        assert list(resolve_all("::1")) == ["::1"]

    def test_all_addresses_of_one_family(self) -> None:
        found = resolve_all("localhost")
        assert found
        assert len({":" in address for address in found}) == 1

    def test_the_address_that_failed_last_is_not_the_first_of_the_next_round(self) -> None:
        answers = iter([["a"], ["a", "b"]])
        addresses = NodeAddresses("host", lambda _: next(answers))
        assert addresses.current() == "a"
        addresses.advance()
        assert addresses.current() == "b"

    def test_no_address_at_all_is_an_error(self) -> None:
        with pytest.raises(OSError, match="host"):
            NodeAddresses("host", lambda _: []).current()


class TestBackOff:
    @given(st.integers(1, 10_000), st.integers(1, 100_000), st.integers(0, 1000))
    def test_it_stays_within_its_limits(self, initial: int, maximum: int, attempts: int) -> None:
        wait = ExponentialBackoff(initial, maximum).after(attempts)
        assert 0 <= wait <= maximum
        assert wait >= int(min(initial, maximum) * 0.8)

    @pytest.mark.parametrize(("chance", "expected"), [(0.0, 320), (0.5, 400), (1.0, 480)])
    def test_the_jitter_is_a_fifth(self, chance: float, expected: int) -> None:
        assert ExponentialBackoff(100, 10_000, lambda: chance).after(2) == expected


class TestSettings:
    def test_an_unknown_key_is_warned_about_with_the_nearest_known_one(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            client_config("producer", {"bootstrap.servers": "a:1", "client.idd": "x"})
        assert "did you mean client.id?" in caplog.text

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"bootstrap.servers": "a:1", "security.protocol": "CARRIER_PIGEON"},
            {"bootstrap.servers": "a:1", "request.timeout.ms": 0},
            {"bootstrap.servers": "a:1", "reconnect.backoff.ms": 500, "reconnect.backoff.max.ms": 100},
            {"bootstrap.servers": "a:1", "metadata.recovery.strategy": "prayer"},
        ],
    )
    def test_what_cannot_work_is_an_error(self, given: dict[str, object]) -> None:
        with pytest.raises(ConfigError):
            client_config("producer", given)
