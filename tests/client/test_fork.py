"""Consumer and admin client in a forked child: refused, and the parent's connections are left alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas import Admin, Consumer
from barnabas.client.errors import ForkedClient
from bench.brokers import BrokerProcess
from tests.live_broker import fresh_topic

Client = Admin | Consumer


def ask(client: Client, topic: str) -> object:
    return client.describe_topics([topic]) if isinstance(client, Admin) else client.partitions_for(topic)


@pytest.mark.parametrize("kind", [Admin, Consumer])
def test_a_client_is_refused_in_a_forked_child_and_goes_on_in_the_parent(
    live: BrokerProcess, tmp_path: Path, kind: Callable[..., Client]
) -> None:
    topic, report = fresh_topic(live, 1), tmp_path / "report"
    with kind({"bootstrap.servers": live.bootstrap}) as client:
        assert ask(client, topic)
        child = os.fork()
        if child == 0:
            try:
                ask(client, topic)
            except ForkedClient as error:
                client.close()
                report.write_text(str(error))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert "was made before this process was forked" in report.read_text()
        assert ask(client, topic)
