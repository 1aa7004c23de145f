"""The values, and the workload with a broker in this process: a history of it is clean, and one that was tampered with is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.testing.embedded import EmbeddedBroker
from tests.history import Workload, WorkloadPlan, check_file, decode_value, encode_value
from tests.history.values import DAMAGED


@given(st.integers(0, 1 << 40), st.integers(100, 1024))
def test_a_value_is_found_again_in_its_bytes(seq: int, size: int) -> None:
    value, data = encode_value("w0", seq, size)
    assert len(data) == size
    assert decode_value(data) == value


@given(st.data())
def test_a_value_with_a_damaged_byte_is_nobodys(data: st.DataObject) -> None:
    value, good = encode_value("w0", 17)
    at = data.draw(st.integers(0, len(good) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != good[at]))
    damaged = decode_value(good[:at] + bytes([byte]) + good[at + 1 :])
    assert damaged != value
    assert damaged.producer == DAMAGED
    cut = data.draw(st.integers(0, len(good) - 1))
    assert decode_value(good[:cut]).producer == DAMAGED


@given(st.binary(max_size=200) | st.none())
def test_any_bytes_are_read_without_an_error(data: bytes | None) -> None:
    assert decode_value(data).producer == DAMAGED


def test_the_history_of_a_healthy_broker_is_clean_and_shows_what_is_taken_from_it(tmp_path: Path) -> None:
    plan = WorkloadPlan(writers=2, readers=1, partitions=2, key=lambda seq: str(seq % 10))
    with EmbeddedBroker() as broker:
        with Workload(broker.bootstrap_servers, tmp_path / "history.jsonl", plan) as load:
            load.await_acked(200)
            load.fault("none, in truth")
            load.await_resumed()
        report = load.check()
    assert report.ok, report.text()
    assert not report.found, report.text()
    assert report.acked == report.read >= 200
    assert report.faults == 1
    assert_a_lost_record_is_found(tmp_path / "history.jsonl")


def test_a_failed_test_does_not_wait_for_a_broker_that_is_gone(tmp_path: Path) -> None:
    """Standing sends are given up at once, threads end, and the error of the test is the one that is seen."""
    broker = EmbeddedBroker().start()
    load = Workload(broker.bootstrap_servers, tmp_path / "history.jsonl")

    def fail() -> None:
        with load:
            load.await_acked(50)
            broker.stop()
            load.await_acked(10_000, seconds=1)

    with pytest.raises(AssertionError, match="acknowledged in 1 s"):
        fail()
    assert load.ended


def assert_a_lost_record_is_found(path: Path) -> None:
    """Nobody has got the last record of a partition."""
    ops = [json.loads(line) for line in path.read_text().splitlines()]
    last = max(micro[2] for op in ops for micro in op.get("ops", ()) if micro[:2] == ["poll", ops[-1]["ops"][-1][1]])
    victim = ["poll", ops[-1]["ops"][-1][1], last]
    for op in ops:
        op["ops"] = [micro for micro in op.get("ops", ()) if micro[:3] != victim]
    path.write_text("".join(json.dumps(op) + "\n" for op in ops if op["ops"]))
    assert check_file(path).failures == {"unseen": 1}
