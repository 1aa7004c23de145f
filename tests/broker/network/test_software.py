"""Connections by client software (KIP-511)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.network.request import ConnectionContext
from barnabas.broker.network.software import MOST_NAMES, OTHER, SoftwareCounts


def test_the_number_of_names_is_bounded() -> None:
    """Issue 18: peers choose their names; at d6c2b90 each connection could add a line to the metrics page."""
    software, channel = SoftwareCounts(), _channel()
    contexts = [ConnectionContext(str(number), "127.0.0.1", "PLAINTEXT") for number in range(3 * MOST_NAMES)]
    for number, context in enumerate(contexts):
        context.client_software_name = f"name-{number}"
        software.note(context, channel)
        software.note(context, channel)
    assert len(software.counts) == MOST_NAMES + 1
    assert software.counts[OTHER] == 2 * MOST_NAMES
    assert channel.client_software_name == f"name-{len(contexts) - 1}"
    for context in contexts:
        software.forget(context)
    assert software.counts == {}


def _channel() -> Any:
    return SimpleNamespace(client_software_name="", client_software_version="")
