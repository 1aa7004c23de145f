"""A running query moves from Spark's own connector to ours and back, on one checkpoint: every record once, whoever read it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from barnabas.client.admin import Admin
from barnabas.client.admin_results import NewTopic
from bench.brokers import BrokerProcess
from bench.peers.jars import PeerUnavailable
from bench.peers.spark_kafka import SparkPeer, find_spark_peer
from tests.spark.conftest import spark_environment
from tests.spark.moving_query import RECORDS_PER_RUN


@pytest.fixture(scope="module")
def peer() -> SparkPeer:
    try:
        return find_spark_peer()
    except PeerUnavailable as missing:
        pytest.skip(f"Spark's own connector is not here: {missing}")


@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    "connectors",
    [("kafka", "barnabas", "kafka", "barnabas"), ("barnabas", "kafka", "barnabas")],
    ids=["from theirs", "from ours"],
)
def test_a_query_moves_between_the_connectors_on_one_checkpoint(
    peer: SparkPeer, broker: BrokerProcess, tmp_path: Path, connectors: tuple[str, ...]
) -> None:
    topic = f"moving-{connectors[0]}"
    bootstrap = broker.bootstrap
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, partitions=2)])
    arguments = [peer.spark_jars, bootstrap, topic, str(tmp_path), *connectors]
    done = subprocess.run(
        [str(peer.python), "-m", "tests.spark.moving_query", *arguments],
        env={**peer.environment(), "PYTHONPATH": spark_environment()["PYTHONPATH"]},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == list(range(RECORDS_PER_RUN * len(connectors)))
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    seen = [json.loads(file.read_text().splitlines()[-1])[topic]["0"] for file in offsets]
    assert seen[-1] == RECORDS_PER_RUN * len(connectors) // 2
    assert seen == sorted(seen)
