"""Error codes against an independent table."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as Oracle

from barnabas.errors import ConfigError, ErrorCode, KafkaError


def test_codes_names_and_retriability_are_those_of_an_independent_implementation() -> None:
    for theirs in Oracle:
        ours = ErrorCode(theirs.value)
        assert ours.name.lower() == theirs.name
        assert ours.retriable == theirs.retriable
        assert ours.text


def test_an_api_error_carries_its_code_and_a_message_for_people() -> None:
    error = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert str(error) == "OFFSET_OUT_OF_RANGE: the offset is outside the range that the partition holds"
    assert not error.retriable


def test_a_config_error_names_key_value_and_what_is_allowed() -> None:
    assert str(ConfigError("a.b", "x", "must be a number")) == "a.b = 'x': must be a number"


def test_the_message_of_an_api_error_fits_a_string_of_the_protocol() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "begin" + "€" * 32767)
    assert len(error.message.encode()) <= 32767
    assert error.message.startswith("begin")
