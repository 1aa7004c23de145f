"""docs/limits.md names every limit of our own, and no setting that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.broker.settings import BROKER
from barnabas.broker.topic_settings import TOPIC

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "limits.md").read_text()
NO_LIMITS = {
    "barnabas.metrics.listener",
    "barnabas.request.inline",
    "barnabas.request.log.threshold.ms",
    "barnabas.request.shared.core",
}
"""Settings of our own that limit nothing."""
LISTENER_PREFIX = "listener.name.<name>."


@pytest.mark.parametrize("key", sorted({row.name for row in BROKER if row.name.startswith("barnabas.")} - NO_LIMITS))
def test_every_limit_of_our_own_is_on_the_page(key: str) -> None:
    assert re.search(rf"`{re.escape(key)}[`=]", PAGE), f"docs/limits.md does not say what happens beyond {key}"


def test_no_setting_on_the_page_is_unknown() -> None:
    known = {row.name for row in BROKER} | {row.name for row in TOPIC}
    named = {name.removeprefix(LISTENER_PREFIX) for name in re.findall(r"`([a-z][a-z.<>]*\.[a-z.]+)(?:=[^`]*)?`", PAGE)}
    assert named
    assert named <= known
