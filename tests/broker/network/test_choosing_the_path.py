"""Which path a request takes: the short cut, or the full path as soon as somebody sets a thread count."""

from __future__ import annotations

import pytest

from barnabas.testing import EmbeddedBroker


@pytest.mark.parametrize("key", ["num.io.threads", "num.network.threads"])
def test_a_thread_count_that_is_set_at_run_time_turns_the_short_cut_off(key: str) -> None:
    with EmbeddedBroker() as broker:
        server = broker.server
        plane = server.socket_server.data_plane
        before = plane.inline
        server.config.set_dynamic({key: "4"})
        assert not plane.inline
        server.config.set_dynamic({})
        assert plane.inline == before
