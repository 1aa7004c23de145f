"""The settings of a producer (PP-4)."""

from __future__ import annotations

import logging

import pytest

from barnabas.errors import ConfigError
from barnabas.producer import Producer
from barnabas.producer.config import (
    acks_of,
    batch_size,
    delivery_timeout_ms,
    is_idempotent,
    producer_config,
    take_objects,
)
from barnabas.producer.serializers import string_serializer

SERVERS = {"bootstrap.servers": "localhost:9092"}


def test_kafkas_defaults() -> None:
    config = producer_config(SERVERS)
    wanted = {
        "acks": "all",
        "buffer.memory": 33_554_432,
        "compression.type": "none",
        "delivery.timeout.ms": 120_000,
        "enable.idempotence": True,
        "linger.ms": 5,
        "max.block.ms": 60_000,
        "max.in.flight.requests.per.connection": 5,
        "max.request.size": 1_048_576,
        "request.timeout.ms": 30_000,
        "retries": 2_147_483_647,
    }
    assert {key: config[key] for key in wanted} == wanted


def test_the_delivery_time_out_has_a_lower_bound() -> None:
    """PP-4: `delivery.timeout.ms` is at least linger.ms + request.timeout.ms, and the error says so."""
    given = {**SERVERS, "delivery.timeout.ms": 1000, "linger.ms": 100, "request.timeout.ms": 901}
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms = 1000: must be at least .* = 100 \+ 901 = 1001"):
        producer_config(given)
    assert delivery_timeout_ms(producer_config({**given, "request.timeout.ms": 900})) == 1000


def test_a_delivery_time_out_that_nobody_chose_follows() -> None:
    """PP-4: as in Kafka."""
    config = producer_config({**SERVERS, "request.timeout.ms": 200_000})
    assert delivery_timeout_ms(config) == 200_005


def test_an_unknown_key_is_warned_about_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        producer_config({**SERVERS, "linger.msec": 5})
    assert "linger.msec is not known; did you mean linger.ms?" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [("acks", "2"), ("compression.type", "brotli"), ("batch.size", "-1"), ("linger.ms", "soon"), ("retries", -1)],
)
def test_impossible_values_are_refused_with_their_name(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        producer_config({**SERVERS, key: value})


def test_no_servers_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        producer_config({})


def test_settings_that_are_no_dict() -> None:
    with pytest.raises(TypeError, match=r"settings of a producer are a dict, for example \{.*, not str"):
        Producer("localhost:9092")


def test_transactions_are_refused_rather_than_left_out() -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id = 'x': this producer has no transactions yet"):
        producer_config({"bootstrap.servers": "a:1", "transactional.id": "x"})


def test_a_batch_must_fit_into_the_memory() -> None:
    with pytest.raises(ConfigError, match=r"must be at most buffer\.memory = 2048"):
        producer_config({**SERVERS, "buffer.memory": 2048, "batch.size": 4096})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, 131_072),
        ({"buffer.memory": 1 << 30}, 131_072),
        ({"buffer.memory": 1 << 24}, 65_536),  # room for 256
        ({"buffer.memory": 1 << 20}, 16_384),  # never smaller than Kafka's
        ({"buffer.memory": 2048}, 2048),  # unless that does not fit
        ({"max.request.size": 100_000}, 100_000),
        ({"max.request.size": 1000}, 16_384),
        ({"batch.size": 16_384}, 16_384),
        ({"batch.size": 500_000}, 500_000),
        ({"batch.size": 0}, 0),
    ],
)
def test_a_batch_size_that_nobody_chose_fits_the_memory(given: dict[str, object], wanted: int) -> None:
    """ADR 10; what was chosen is left alone."""
    assert batch_size(producer_config({**SERVERS, **given})) == wanted


class TestIdempotence:
    """PP-31: on by default."""

    @pytest.mark.parametrize(("given", "wanted"), [({}, True), ({"acks": 1}, False), ({"retries": 0}, False)])
    def test_it_gives_way_to_settings_that_rule_it_out(self, given: dict[str, object], wanted: bool) -> None:
        """PP-31."""
        assert is_idempotent(producer_config({**SERVERS, **given})) is wanted

    @pytest.mark.parametrize(
        "given", [{"acks": "1"}, {"retries": 0}, {"max.in.flight.requests.per.connection": 6}], ids=str
    )
    def test_chosen_together_with_them_it_is_an_error(self, given: dict[str, object]) -> None:
        """PP-31."""
        with pytest.raises(ConfigError, match=r"with enable\.idempotence"):
            is_idempotent(producer_config({**SERVERS, "enable.idempotence": True, **given}))

    def test_it_can_be_off(self) -> None:
        """PP-31."""
        assert not is_idempotent(producer_config({**SERVERS, "enable.idempotence": "false", "acks": 0}))


@pytest.mark.parametrize(("text", "number"), [("all", -1), ("-1", -1), ("1", 1), (0, 0)])
def test_acks(text: object, number: int) -> None:
    """PP-15."""
    assert acks_of(producer_config({**SERVERS, "acks": text})) == number


class TestObjects:
    def test_functions_and_dotted_names_are_taken(self) -> None:
        plain, objects = take_objects(
            {"value.serializer": "barnabas.producer.serializers.string_serializer", "key.serializer": bytes, "acks": 1}
        )
        assert plain == {"acks": 1}
        assert objects["value.serializer"] is string_serializer
        assert objects["key.serializer"] is bytes

    def test_a_class_by_name_is_made(self) -> None:
        _, objects = take_objects({"interceptor.classes": "barnabas.producer.interceptors.ProducerInterceptor"})
        assert [type(item).__name__ for item in objects["interceptor.classes"]] == ["ProducerInterceptor"]

    def test_what_cannot_be_loaded_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match=r"key\.serializer = 'no\.such\.thing': cannot be loaded"):
            take_objects({"key.serializer": "no.such.thing"})
