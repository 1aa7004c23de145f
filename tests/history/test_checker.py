"""The checker finds each anomaly of the table in the smallest history that has it, and nothing in clean histories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.history import TABLE, History, Value, check_file, check_ops
from tests.history.checker import MalformedHistory

Ops = list[dict[str, Any]]


def operation(f: str, process: str, ops: list[list[object]], outcome: str = "ok") -> dict[str, Any]:
    return {"f": f, "process": process, "outcome": outcome, "start": 0, "end": 1, "ops": ops}


def micro(kind: str, partition: str, offset: int | None, seq: int, by: str = "w") -> list[object]:
    return [kind, partition, offset, [by, seq, seq * 7]]


def send(seq: int, offset: int | None, outcome: str = "ok", partition: str = "t-0", by: str = "w") -> dict[str, Any]:
    return operation("send", by, [micro("send", partition, offset, seq, by)], outcome)


def poll(*records: tuple[int, int], who: str = "r", partition: str = "t-0", by: str = "w") -> dict[str, Any]:
    """(offset, seq) each."""
    return operation("poll", who, [micro("poll", partition, offset, seq, by) for offset, seq in records])


def txn(who: str, *ops: list[object], outcome: str = "ok") -> dict[str, Any]:
    return operation("txn", who, list(ops), outcome)


def sent(seq: int, offset: int, partition: str = "t-0", by: str = "w") -> list[object]:
    return micro("send", partition, offset, seq, by)


def got(seq: int, offset: int, partition: str = "t-0", by: str = "w") -> list[object]:
    return micro("poll", partition, offset, seq, by)


SUBSCRIBE = {"f": "subscribe", "process": "r"}
UNCOMMITTED = {"f": "assign", "process": "r", "isolation": "read_uncommitted"}
THREE = [send(0, 0), send(1, 1), send(2, 2)]
# Two transactions, each of which read what the other wrote.
READ_CYCLE = [
    txn("a", sent(0, 0, "x-0", "a"), got(0, 0, "y-0", "b")),
    txn("b", sent(0, 0, "y-0", "b"), got(0, 0, "x-0", "a")),
]
INTERLEAVED = [
    txn("a", sent(0, 0, "t-0", "a"), sent(1, 2, "t-0", "a")),
    txn("b", sent(0, 1, "t-0", "b"), sent(1, 3, "t-0", "b")),
    operation("poll", "r", [got(0, 0, by="a"), got(0, 1, by="b"), got(1, 2, by="a"), got(1, 3, by="b")]),
]

BAD: list[tuple[str, str, Ops]] = [
    ("lost-write", "a hole in what was read", [*THREE, poll((0, 0), (2, 2))]),
    ("unseen", "the end was not read", [*THREE, poll((0, 0), (1, 1))]),
    ("unseen", "acknowledged without an offset, and never read", [send(0, 0), send(1, None), poll((0, 0))]),
    ("duplicate", "read at two offsets", [send(0, 0), poll((0, 0), (1, 0))]),
    ("duplicate", "acknowledged here, read there", [send(0, 5), poll((6, 0))]),
    ("duplicate", "in two partitions", [send(0, 5), poll((5, 0)), poll((5, 0), partition="t-1")]),
    ("inconsistent-offsets", "two sends", [send(0, 0), send(1, 0), poll((0, 0))]),
    ("inconsistent-offsets", "send and poll", [send(0, 0), send(1, None, "info"), poll((0, 1))]),
    (
        "inconsistent-offsets",
        "two polls",
        [send(0, None, "info"), send(1, None, "info"), poll((0, 0)), poll((0, 1), who="s")],
    ),
    ("G1a", "a send that failed", [send(0, None, "fail"), poll((0, 0))]),
    ("G1a", "a transaction that was aborted", [txn("a", sent(0, 0, by="a"), outcome="fail"), poll((0, 0), by="a")]),
    ("G1a", "read before the abort was recorded", [poll((0, 0), by="a"), txn("a", sent(0, 0, by="a"), outcome="fail")]),
    ("G1a", "nobody sent it", [send(0, 0), poll((0, 0), (1, 99))]),
    ("G1a", "a byte was damaged", [operation("poll", "r", [["poll", "t-0", 0, ["damaged", 100, 1]]])]),
    ("G1a", "a failed send, also for read_uncommitted", [UNCOMMITTED, send(0, None, "fail"), poll((0, 0))]),
    ("precommitted-read", "its own write", [txn("a", sent(0, 0, by="a"), got(0, 0, by="a"))]),
    ("int-poll-skip", "one left out", [*THREE, poll((0, 0), (2, 2)), poll((1, 1), who="s")]),
    ("int-nonmonotonic-poll", "back", [*THREE, poll((0, 0), (1, 1), (2, 2), (1, 1))]),
    ("int-nonmonotonic-poll", "the same again", [*THREE, poll((0, 0), (0, 0), (1, 1), (2, 2))]),
    ("poll-skip", "one left out", [*THREE, poll((0, 0)), poll((2, 2)), poll((1, 1), who="s")]),
    ("nonmonotonic-poll", "back", [*THREE, poll((0, 0), (1, 1), (2, 2)), poll((1, 1))]),
    ("nonmonotonic-send", "lower", [send(0, 1), send(1, 0), poll((0, 1), (1, 0))]),
    ("nonmonotonic-send", "lower, answered the other way round", [send(1, 0), send(0, 1), poll((0, 1), (1, 0))]),
    ("int-nonmonotonic-send", "lower", [txn("w", sent(0, 1), sent(1, 0)), poll((0, 1), (1, 0))]),
    ("G1c", "each read the other", READ_CYCLE),
]
ALLOWED: list[tuple[str, str, Ops]] = [
    (
        "duplicate",
        "not idempotent",
        [{"f": "open", "process": "w", "idempotent": False}, send(0, 0), poll((0, 0), (1, 0))],
    ),
    ("G1a", "read_uncommitted", [UNCOMMITTED, txn("a", sent(0, 0, by="a"), outcome="fail"), poll((0, 0), by="a")]),
    ("poll-skip", "subscribed", [SUBSCRIBE, *THREE, poll((0, 0)), poll((2, 2)), poll((1, 1), who="s")]),
    ("nonmonotonic-poll", "subscribed", [SUBSCRIBE, *THREE, poll((0, 0), (1, 1), (2, 2)), poll((1, 1))]),
    ("int-send-skip", "interleaved", INTERLEAVED),
    ("G0", "interleaved", INTERLEAVED),
    (
        "G0",
        "a single send in between",
        [
            txn("a", sent(0, 0, by="a"), sent(1, 2, by="a")),
            send(0, 1),
            operation("poll", "r", [got(0, 0, by="a"), got(0, 1), got(1, 2, by="a")]),
        ],
    ),
    (
        "G1c",
        "with an edge of writes",
        [
            txn("a", sent(0, 0, "x-0", "a"), got(1, 0, "y-0", "b")),
            txn("b", sent(0, 1, "x-0", "b"), sent(1, 0, "y-0", "b")),
        ],
    ),
    ("G1c", "at read_uncommitted", [{**UNCOMMITTED, "process": "a"}, *READ_CYCLE]),
]
CLEAN: list[tuple[str, Ops]] = [
    ("nothing", []),
    ("all read", [*THREE, poll((0, 0), (1, 1), (2, 2))]),
    ("an unknown send that was not written", [send(0, 0), send(1, None, "info"), send(2, 1), poll((0, 0), (1, 2))]),
    ("an unknown send that was written", [send(0, 0), send(1, None, "info"), send(2, 2), poll((0, 0), (1, 1), (2, 2))]),
    (
        "an aborted transaction, stepped over",
        [send(0, 0), txn("a", sent(0, 1, by="a"), outcome="fail"), send(1, 3), poll((0, 0), (3, 1))],
    ),
    (
        "the same from the beginning after assign",
        [*THREE, poll((0, 0), (1, 1), (2, 2)), {"f": "assign", "process": "r"}, poll((0, 0))],
    ),
    ("retention", [*THREE, {"f": "trim", "partition": "t-0", "before": 2}, poll((2, 2))]),
    (
        "retention under a consumer",
        [*THREE, poll((0, 0)), {"f": "trim", "partition": "t-0", "before": 2}, poll((2, 2))],
    ),
    ("a fault is only a note", [{"f": "fault", "text": "kill"}, send(0, 0), poll((0, 0))]),
    (
        "compaction",
        [
            operation("send", "w", [["send", "t-0", 0, ["w", 0, 0], "k"]]),
            operation("send", "w", [["send", "t-0", 1, ["w", 1, 7], "k"]]),
            poll((1, 1)),
        ],
    ),
    (
        "copying",
        [
            send(0, 0, partition="in-0"),
            txn("c", got(0, 0, "in-0"), sent(0, 0, "out-0", "c")),
            poll((0, 0), partition="out-0", by="c"),
        ],
    ),
]


@pytest.mark.parametrize(("anomaly", "ops"), [pytest.param(key, ops, id=f"{key}, {what}") for key, what, ops in BAD])
def test_an_anomaly_is_found_and_fails(anomaly: str, ops: Ops) -> None:
    report = check_ops(ops, final_read=anomaly == "unseen")
    assert anomaly in report.failures, report.text()
    assert anomaly in report.text()
    with pytest.raises(AssertionError, match=anomaly):
        report.demand_clean()


@pytest.mark.parametrize(
    ("anomaly", "ops"), [pytest.param(key, ops, id=f"{key}, {what}") for key, what, ops in ALLOWED]
)
def test_an_allowed_anomaly_is_found_and_does_not_fail(anomaly: str, ops: Ops) -> None:
    report = check_ops(ops, final_read=False)
    assert report.found[anomaly].allowed, report.text()
    assert report.ok, report.text()


@pytest.mark.parametrize("ops", [pytest.param(ops, id=what) for what, ops in CLEAN])
def test_clean_histories_have_no_anomaly(ops: Ops) -> None:
    report = check_ops(ops)
    assert not report.found, report.text()


def test_every_anomaly_of_the_table_has_a_history_that_shows_it() -> None:
    assert {key for key, _, _ in BAD} | {key for key, _, _ in ALLOWED} == set(TABLE)
    assert {key for key, (_, verdict) in TABLE.items() if verdict != "allowed"} == {key for key, _, _ in BAD}


def test_what_was_not_read_yet_is_no_anomaly_without_a_final_read() -> None:
    assert check_ops([*THREE, poll((0, 0))], final_read=False).ok


def test_one_thing_seen_by_many_consumers_counts_once() -> None:
    report = check_ops([send(0, 0), *[poll((0, 0), (1, 0), who=f"r{number}") for number in range(5)]])
    assert report.failures == {"duplicate": 1}


@pytest.mark.parametrize(
    "op",
    [
        {"f": "send"},
        {"f": "dance"},
        send(0, 0) | {"outcome": "perhaps"},
        send(0, 0) | {"ops": [["send", "t-0"]]},
        ["send"],
    ],
)
def test_what_is_no_history_is_refused_with_its_line(op: Any) -> None:
    with pytest.raises(MalformedHistory, match="line 2"):
        check_ops([send(1, 1), op])


def test_a_value_that_was_sent_twice_is_the_fault_of_the_workload() -> None:
    with pytest.raises(MalformedHistory, match="w:0 was sent in line 1 already"):
        check_ops([send(0, 0), send(0, 1)])


def test_a_torn_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "h.jsonl").write_text('{"f":"fault","text":"x"}\n{"f":"fa')
    with pytest.raises(MalformedHistory, match="line 2 is not JSON"):
        check_file(tmp_path / "h.jsonl")


def test_the_recorder_writes_what_the_checker_reads(tmp_path: Path) -> None:
    value, lost = Value("w", 0, 1), Value("w", 1, 2)
    with History(tmp_path / "h.jsonl") as history:
        history.opened("w", idempotent=True)
        history.assigned("r")
        history.sent("w", "ok", 0, ("t-0", 4, value))
        history.sent("w", "ok", 0, ("t-0", 5, lost), key="k")
        history.trimmed("t-0", 2)
        history.fault("kill -9")
        history.polled("r", 0, [("t-0", 4, value)])
    report = check_file(tmp_path / "h.jsonl")
    assert (report.operations, report.acked, report.read, report.faults) == (3, 2, 1, 1)
    assert report.failures == {"unseen": 1}
    assert report.figures() == "2 acked, 1 lost, 0 duplicates, 1 anomalies"


def test_the_command_tells_what_it_found_and_fails(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    value = Value("w", 0, 1)
    for path, offset in ((good, 4), (bad, 5)):
        with History(path) as history:
            history.sent("w", "ok", 0, ("t-0", 4, value))
            history.polled("r", 0, [("t-0", offset, value)])
    command = [sys.executable, "-m", "tests.history"]
    assert subprocess.run([*command, good], check=True, capture_output=True, timeout=30).returncode == 0
    done = subprocess.run([*command, good, bad], check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "duplicate: 1 FAIL - one value at two offsets" in done.stdout
    assert "w:0 is at t-0@4 and t-0@5 (line 2)" in done.stdout
