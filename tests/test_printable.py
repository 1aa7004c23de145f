"""Text of peers as it may stand in a log line or a label."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.printable import MOST, printable


@pytest.mark.parametrize("text", ["", "consumer-1", "größer ☃ 😀", "a" * MOST])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("\u2028", "\\u2028"), ("\ud800", "\\ud800"), ("\u202e", "\\u202e")],
)
def test_the_rest_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(), max_size=400))
def test_the_outcome_is_one_line_of_bounded_size_that_can_be_encoded(text: str) -> None:
    shown = printable(text, 100)
    assert shown.isprintable()
    assert len(shown.encode()) <= 10 * 101
