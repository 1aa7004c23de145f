"""Real clients write and read back keys, values, headers and timestamps, with every codec.

What one client has written every other client must read as well: a codec that only its own writer understands would show here.
"""

from __future__ import annotations

import shutil

import pytest

from barnabas.records.batch import iterate_batches
from bench.brokers import BrokerProcess
from tests.clients.round_trip import CLIENTS, CODECS, Client, Record, without_time

CLOCK_SLACK_MS = 60_000


def _installed(client: Client) -> bool:
    return client.name != "kcat" or shutil.which("kcat") is not None


def _client_parameter(client: Client) -> object:
    missing = pytest.mark.skipif(not _installed(client), reason="kcat is not installed (Debian package kcat)")
    return pytest.param(client, id=client.name, marks=missing)


def _same(found: list[Record], written: list[Record], writer: Client) -> None:
    if writer.sets_timestamps:
        assert found == written
        return
    assert without_time(found) == without_time(written)
    assert all(
        abs(mine.timestamp_ms - its.timestamp_ms) < CLOCK_SLACK_MS for mine, its in zip(found, written, strict=True)
    )


def _stored_codecs(broker: BrokerProcess, topic: str) -> set[str]:
    """The codecs of the batches in the log file, as they are on disk."""
    [segment] = (broker.place.directory / "data" / f"{topic}-0").glob("*.log")
    return {CODECS[batch.codec] for batch, _ in iterate_batches(segment.read_bytes())}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", [_client_parameter(client) for client in CLIENTS])
def test_every_client_reads_what_one_client_wrote(
    broker: BrokerProcess, topic: str, writer: Client, codec: str
) -> None:
    written = writer.write(broker.bootstrap, topic, codec)
    assert _stored_codecs(broker, topic) == {codec}, "the client fell back to another codec"
    for reader in filter(_installed, CLIENTS):
        _same(reader.read(broker.bootstrap, topic, len(written)), written, writer)
