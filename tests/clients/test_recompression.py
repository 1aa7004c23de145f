"""A topic with its own `compression.type`: the broker compresses anew, and every client reads what it wrote."""

from __future__ import annotations

import shutil

import pytest

from barnabas.records.batch import iterate_batches
from bench.brokers import BrokerProcess
from tests.clients.round_trip import CLIENTS, CODECS, confluent_write
from tests.live_broker import fresh_topic


@pytest.mark.parametrize("kept", CODECS)
def test_every_client_reads_what_the_broker_compressed_anew(broker: BrokerProcess, kept: str) -> None:
    topic = fresh_topic(broker, config={"compression.type": "uncompressed" if kept == "none" else kept})
    sent = "gzip" if kept != "gzip" else "zstd"
    written = confluent_write(broker.bootstrap, topic, sent)
    [segment] = (broker.place.directory / "data" / f"{topic}-0").glob("*.log")
    assert {CODECS[header.codec] for header, _ in iterate_batches(segment.read_bytes())} == {kept}
    for reader in CLIENTS:
        if reader.name != "kcat" or shutil.which("kcat") is not None:
            assert reader.read(broker.bootstrap, topic, len(written)) == written, reader.name
