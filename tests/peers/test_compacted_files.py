"""Kafka's own dump tool reads what our compaction wrote: every batch valid, every index right."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.broker.log.results import AppendOrigin
from bench.peers.tools import run_tool
from tests.broker.log.compacted import CompactedStore, batches
from tests.records.batches import NOW_MS, Batch, end_marker


def fill(store: CompactedStore) -> None:
    """Every codec, tombstones, an idempotent producer, and transactions of both ends."""
    for number in range(120):
        value = None if number % 9 == 0 else b"value-%d" % number * 3
        pairs = [(b"k%d" % (number % 13), value), (b"only-%d" % number, b"x" * 20)]
        sequence = {"producer_id": 9, "producer_epoch": 1, "base_sequence": number * 2} if number < 30 else {}
        store.put(*pairs, codec=number % 5, timestamp=NOW_MS + number, **sequence)
    for number in range(10):
        producer = 100 + number % 3
        batch = Batch([b"t"], [b"txn-%d" % (number % 4)], producer_id=producer, producer_epoch=0, attributes=0x10)
        batch.base_sequence = number // 3
        store.log.append(batch.build(), origin=AppendOrigin.COORDINATOR)
        store.log.append(end_marker(producer, commit=bool(number % 2)), origin=AppendOrigin.COORDINATOR)


def test_kafkas_dump_tool_finds_nothing_wrong_in_compacted_segments(tmp_path: Path) -> None:
    with CompactedStore(tmp_path, segment_bytes=4000, index_interval_bytes=300) as store:
        fill(store)
        store.clean_all()
        store.clock.advance(2 * 86_400)
        fill_again = [(b"k%d" % number, b"new") for number in range(5)]
        store.put(*fill_again, timestamp=NOW_MS + 500)
        store.clean_all()
        left = batches(store.log)
    logs = sorted(str(path) for path in store.directory.glob("*.log"))
    indexes = [
        str(path) for ending in ("index", "timeindex", "txnindex") for path in store.directory.glob(f"*.{ending}")
    ]
    assert len(logs) > 2
    dumped = run_tool("DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", ",".join(logs), timeout=50)
    assert "isvalid: false" not in dumped
    assert len(re.findall(r"^baseOffset: ", dumped, re.MULTILINE)) == len(left)
    assert len(re.findall(r"^\| offset: ", dumped, re.MULTILINE)) == sum(header.record_count for header, _ in left)
    assert "deleteHorizonMs: OptionalLong[" in dumped
    checked = run_tool("DumpLogSegments", "--index-sanity-check", "--files", ",".join(indexes), timeout=50)
    good = checked.count("passed sanity check") + checked.count("is empty")
    assert good == 2 * len(logs)
    verified = run_tool("DumpLogSegments", "--verify-index-only", "--files", ",".join(indexes), timeout=50)
    for complaint in ("Mismatches in", "out of order", "not found", "Error"):
        assert complaint not in verified
