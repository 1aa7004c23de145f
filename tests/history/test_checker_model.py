"""The checker against a model: what a right broker would show has no anomaly, each damage done to it is found; and long histories."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.history import check_ops
from tests.history.cycles import cycles

Ops = list[dict[str, Any]]


class RightBroker:
    """A log of a few partitions with transactions, and clients that do as they like; all that it shows is right."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._logs: dict[str, list[list[Any] | None]] = {f"t-{number}": [] for number in range(2)}
        self._positions: dict[tuple[str, str], int] = {}
        self._seq: dict[str, int] = {}
        self.ops: Ops = []

    def run(self, steps: int) -> Ops:
        for _ in range(steps):
            self._random.choice((self._send, self._send, self._transaction, self._poll))()
        for partition in self._logs:
            self._record("poll", "final", "ok", self._read("final", partition, len(self._logs[partition])))
        return self.ops

    def _record(self, f: str, process: str, outcome: str, ops: list[list[Any]]) -> None:
        self.ops.append({"f": f, "process": process, "outcome": outcome, "start": 0, "end": 0, "ops": ops})

    def _append(self, producer: str, visible: bool) -> list[Any]:
        seq = self._seq[producer] = self._seq.get(producer, -1) + 1
        partition = self._random.choice(list(self._logs))
        self._logs[partition].append([producer, seq, seq] if visible else None)
        return ["send", partition, len(self._logs[partition]) - 1, [producer, seq, seq]]

    def _send(self) -> None:
        producer = self._random.choice("abc")
        written, outcome = self._random.choice(
            ((True, "ok"), (True, "ok"), (True, "info"), (False, "info"), (False, "fail"))
        )
        if written:
            op = self._append(producer, visible=True)
        else:
            seq = self._seq[producer] = self._seq.get(producer, -1) + 1
            op = ["send", "t-0", None, [producer, seq, seq]]
        self._record("send", producer, outcome, [op if outcome == "ok" else [*op[:2], None, op[3]]])

    def _transaction(self) -> None:
        commits = self._random.random() < 0.8
        read = self._read("copier", self._random.choice(list(self._logs)), 3)
        sent = [self._append("copier", commits) for _ in range(self._random.randint(1, 3))]
        for partition in {op[1] for op in sent}:
            self._logs[partition].append(None)  # the marker takes an offset and shows no record
        self._record("txn", "copier", "ok" if commits else "fail", read + sent)

    def _poll(self) -> None:
        consumer = self._random.choice(("r0", "r1"))
        if self._random.random() < 0.1:
            self._positions = {key: at for key, at in self._positions.items() if key[0] != consumer}
            self.ops.append({"f": "assign", "process": consumer})
        self._record("poll", consumer, "ok", self._read(consumer, self._random.choice(list(self._logs)), 5))

    def _read(self, consumer: str, partition: str, most: int) -> list[list[Any]]:
        first = self._positions.get((consumer, partition), 0)
        part = self._logs[partition][first : first + most]
        self._positions[consumer, partition] = first + len(part)
        return [["poll", partition, first + index, value] for index, value in enumerate(part) if value is not None]


def final_polls(ops: Ops) -> list[dict[str, Any]]:
    return [op for op in ops if op["process"] == "final" and len(op["ops"]) > 2]


def lose(ops: Ops) -> str:
    """The last acknowledged record of a partition that has one behind it disappears from all reads."""
    acked = {(m[1], m[2]) for op in ops if op.get("outcome") == "ok" for m in op.get("ops", ()) if m[0] == "send"}
    victim = next((m[1], m[2]) for op in final_polls(ops) for m in op["ops"][:-1] if (m[1], m[2]) in acked)
    for op in ops:
        if "ops" in op:
            op["ops"] = [m for m in op["ops"] if m[0] == "send" or (m[1], m[2]) != victim]
    return "lost-write"


def repeat(ops: Ops) -> str:
    """The last record stands in the log once more."""
    last = final_polls(ops)[0]["ops"][-1]
    final_polls(ops)[0]["ops"].append(["poll", last[1], last[2] + 1000, last[3]])
    return "duplicate"


def swap(ops: Ops) -> str:
    """Two records have changed places, for one consumer."""
    first, second = final_polls(ops)[0]["ops"][:2]
    first[3], second[3] = second[3], first[3]
    return "inconsistent-offsets"


def turn(ops: Ops) -> str:
    final_polls(ops)[0]["ops"].reverse()
    return "int-nonmonotonic-poll"


def abort(ops: Ops) -> str:
    """A record of a send that was acknowledged is said to have failed."""
    victim = final_polls(ops)[0]["ops"][0][3]
    send = next(op for op in ops if any(m[0] == "send" and m[3] == victim for m in op.get("ops", ())))
    send["outcome"] = "fail"
    return "G1a"


def skip(ops: Ops) -> str:
    """The final read leaves out a record that another consumer got."""
    poll = final_polls(ops)[0]
    ops.append({**poll, "process": "other"})
    poll["ops"] = [*poll["ops"][:1], *poll["ops"][2:]]
    return "int-poll-skip"


DAMAGES: list[Callable[[Ops], str]] = [lose, repeat, swap, turn, abort, skip]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 120))
def test_what_a_right_broker_shows_has_no_anomaly(seed: int, steps: int) -> None:
    report = check_ops(RightBroker(seed).run(steps))
    assert not report.failures, report.text()
    assert {"nonmonotonic-poll", "poll-skip"}.isdisjoint(report.found)


@pytest.mark.parametrize("damage", DAMAGES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_damage_to_a_right_history_is_found(damage: Callable[[Ops], str], seed: int) -> None:
    ops = RightBroker(seed).run(100)
    assert damage(ops) in check_ops(ops).failures


@settings(max_examples=40, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(lambda edge: edge[0] != edge[1]), max_size=40))
def test_cycles_are_found_exactly_where_nodes_reach_each_other(edges: set[tuple[int, int]]) -> None:
    reached = {node: {node} for edge in edges for node in edge}
    for _ in reached:
        for source, target in edges:
            for reach in reached.values():
                if source in reach:
                    reach.add(target)
    mutual = {frozenset(b for b in reached[a] if a in reached[b]) for a in reached}
    found = list(cycles(edges))
    assert {frozenset(group) for group, _ in found} == {group for group in mutual if len(group) > 1}
    for group, cycle in found:
        assert set(cycle) <= group
        assert all(edge in edges for edge in zip(cycle, cycle[1:] + cycle[:1], strict=True))


def long_history(sends: int) -> Iterator[dict[str, Any]]:
    """As many sends as asked for, all read twice, in polls of 500."""
    for seq in range(sends):
        value = [f"w{seq % 4}", seq // 4, seq & 0xFFFFFFFF]
        yield {
            "f": "send",
            "process": value[0],
            "outcome": "ok",
            "start": seq,
            "end": seq,
            "ops": [["send", f"t-{seq % 4}", seq // 4, value]],
        }
    for reader in ("r0", "r1"):
        for first in range(0, sends, 500):
            ops = [
                ["poll", f"t-{seq % 4}", seq // 4, [f"w{seq % 4}", seq // 4, seq]]
                for seq in range(first, min(sends, first + 500))
            ]
            yield {"f": "poll", "process": reader, "outcome": "ok", "start": 0, "end": 0, "ops": ops}


def memory_to_check(sends: int) -> int:
    """The most bytes that the checker had at once."""
    tracemalloc.start()
    try:
        assert check_ops(long_history(sends)).ok
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds_to_check(sends: int) -> float:
    """Processor time, which others on the machine do not take part in."""
    began = time.process_time()
    assert check_ops(long_history(sends)).ok
    return time.process_time() - began


def test_memory_and_time_grow_with_the_number_of_values_only() -> None:
    """By value and not in all: measured with few, a million take less than 400 MB; and eight times the values take about eight times as
    long, far from the sixty-four times of what looks at each pair."""
    few, many = 2_500, 20_000
    assert memory_to_check(many) < 400 * many
    short, long = (min(seconds_to_check(sends) for _ in range(3)) for sends in (few, many))
    assert long < 3 * (many / few) * short
