"""Topic names: what Kafka allows."""

from __future__ import annotations

import pytest

from barnabas.broker.topic_names import check_name, collision_key
from barnabas.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "x" * 249, "__consumer_offsets"])
def test_good_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b", "a\0"])
def test_bad_names(name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_long_name_is_not_repeated_in_full() -> None:
    with pytest.raises(KafkaError) as caught:
        check_name("x" * 30_000)
    assert len(caught.value.message) < 300


def test_dots_and_underscores_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")
