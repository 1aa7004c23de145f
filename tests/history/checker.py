"""The checker: one pass over the operations, which notes where every value is and what is wrong at first sight; then the questions
that only the whole history answers: what was never read, what was read and should not be, what was left out, where there are cycles.

Role: history in, report out. The history is read line by line; memory grows with the number of values, not with the number of polls.
Thread: one. Lock: none.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.history.anomalies import Report
from tests.history.cycles import Edge, cycles
from tests.history.value_table import ABORTED, FAILED, INFO, NOWHERE, OK, READ, READ_COMMITTED, UNSENT, ValueTable

Op = Mapping[str, Any]
OUTCOMES = {"ok": OK, "info": INFO, "fail": FAILED}
READ_UNCOMMITTED = "read_uncommitted"


class MalformedHistory(ValueError):
    """The history itself is no good: nothing can be said about the broker."""


def check_file(path: Path, final_read: bool = True) -> Report:
    """Check a file. Without a final read of everything at its end, what was not read yet is no anomaly."""
    with path.open("rb") as lines:
        return check_ops(_parsed(lines), final_read)


def check_ops(ops: Iterable[Op], final_read: bool = True) -> Report:
    """Check operations as a file has them, one object per line."""
    checker = _Checker()
    for line, op in enumerate(ops, 1):
        try:
            checker.take(line, op)
        except MalformedHistory:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedHistory(f"line {line} is no operation: {op!r}") from error
    return checker.finish(final_read)


def _parsed(lines: Iterable[bytes]) -> Iterator[Op]:
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise MalformedHistory(f"line {number} is not JSON: {line[:100]!r}") from error


class _Jump(NamedTuple):
    """Two offsets that follow each other in somebody's eyes and not in the log. Whether one was left out is known at the end."""

    anomaly: str
    who: str
    partition: int
    before: int
    after: int
    allowed: bool
    line: int


class _Partition:
    """What is known of one partition."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.at: dict[int, int] = {}
        """The value at each offset."""
        self.last_read = NOWHERE
        self.trimmed = 0
        self.last_of_key: dict[str, int] = {}


class _Checker:
    """The state of one check; `take` every operation, then `finish`."""

    def __init__(self) -> None:
        self._report = Report()
        self._values = ValueTable()
        self._partitions: dict[str, _Partition] = {}
        self._by_number: list[_Partition] = []
        self._keys: dict[int, str] = {}
        self._subscribed: set[str] = set()
        self._uncommitted: set[str] = set()
        self._may_duplicate: set[str] = set()
        self._positions: dict[tuple[str, int], tuple[int, int]] = {}
        """By consumer and partition: the last offset it got, and in which line."""
        self._jumps: list[_Jump] = []
        self._told: set[tuple[str, int, int, int]] = set()
        self._writers: dict[int, str] = {}
        """Operations of several parts that wrote, by line: with them there can be cycles."""
        self._reads_of_writers: list[tuple[int, int, bool]] = []
        """Line, value read, at read_committed or not."""

    # The pass over the operations

    def take(self, line: int, op: Op) -> None:
        kind = op["f"]
        if "ops" in op:
            self._operation(line, op)
        elif kind in ("assign", "subscribe"):
            self._set_anew(op["process"], kind == "subscribe", op.get("isolation"))
        elif kind == "open":
            if not op["idempotent"]:
                self._may_duplicate.add(op["process"])
        elif kind == "trim":
            partition = self._partition(op["partition"])
            partition.trimmed = max(partition.trimmed, op["before"])
        elif kind == "fault":
            self._report.faults += 1
        else:
            raise MalformedHistory(f"line {line}: unknown operation {kind!r}")

    def _set_anew(self, process: str, subscribed: bool, isolation: str | None) -> None:
        for position in [position for position in self._positions if position[0] == process]:
            del self._positions[position]
        (self._subscribed.add if subscribed else self._subscribed.discard)(process)
        (self._uncommitted.add if isolation == READ_UNCOMMITTED else self._uncommitted.discard)(process)

    def _operation(self, line: int, op: Op) -> None:
        self._report.operations += 1
        process = op["process"]
        state = OUTCOMES[op["outcome"]]
        if state == FAILED and op["f"] == "txn":
            state = ABORTED
        sent: list[int] = []
        polled: list[int] = []
        last_sent: dict[int, int] = {}
        for kind, name, offset, value, *key in op["ops"]:
            partition = self._partition(name)
            number = self._values.number(value)
            if kind == "poll":
                self._poll(line, process, partition, offset, number)
                polled.append(number)
            else:
                self._send(line, state, partition, offset, number)
                self._note_key(partition, offset, number, key)
                if offset is not None:
                    self._send_skip(_Jump("int-send-skip", process, partition.number, 0, offset, True, line), last_sent)
                sent.append(number)
        if sent and len(op["ops"]) > 1:
            self._transaction(line, process, state, sent, polled)

    def _partition(self, name: str) -> _Partition:
        partition = self._partitions.get(name)
        if partition is None:
            partition = self._partitions[name] = _Partition(name, len(self._by_number))
            self._by_number.append(partition)
        return partition

    def _send(self, line: int, state: int, partition: _Partition, offset: int | None, number: int) -> None:
        values = self._values
        if values.state[number] != UNSENT:
            raise MalformedHistory(
                f"line {line}: {values.value(number)} was sent in line {values.line[number]} already"
            )
        values.state[number] = state
        values.line[number] = line
        if offset is not None:
            self._place(line, partition, offset, number)

    def _note_key(self, partition: _Partition, offset: int | None, number: int, key: Sequence[str]) -> None:
        if key and offset is not None:
            self._keys[number] = key[0]
            partition.last_of_key[key[0]] = max(partition.last_of_key.get(key[0], NOWHERE), offset)

    def _send_skip(self, jump: _Jump, last_sent: dict[int, int]) -> None:
        before = last_sent.get(jump.partition, jump.after)
        if jump.after > before + 1:
            self._jumps.append(jump._replace(before=before))
        last_sent[jump.partition] = jump.after

    def _poll(self, line: int, process: str, partition: _Partition, offset: int, number: int) -> None:
        committed = process not in self._uncommitted
        self._values.reads[number] |= READ | (READ_COMMITTED if committed else 0)
        partition.last_read = max(partition.last_read, offset)
        self._place(line, partition, offset, number)
        before, in_line = self._positions.get((process, partition.number), (offset - 1, line))
        self._positions[process, partition.number] = (offset, line)
        if offset == before + 1:
            return
        inside = "int-" if in_line == line else ""
        allowed = not inside and process in self._subscribed
        if offset > before:
            self._jumps.append(_Jump(f"{inside}poll-skip", process, partition.number, before, offset, allowed, line))
        else:
            went = f"{process} got {partition.name}@{offset} after @{before} (line {line})"
            self._report.add(f"{inside}nonmonotonic-poll", went, allowed)

    def _place(self, line: int, partition: _Partition, offset: int, number: int) -> None:
        """Note that this value is at this offset; complain, once, if the offset has another or the value is elsewhere."""
        values = self._values
        there = partition.at.setdefault(offset, number)
        if there != number and self._first("inconsistent-offsets", partition, offset, number):
            both = f"{values.value(there)} and {values.value(number)}"
            self._report.add("inconsistent-offsets", f"{partition.name}@{offset} has {both} (line {line})")
        if values.offset[number] == NOWHERE:
            values.partition[number], values.offset[number] = partition.number, offset
        elif self._is_elsewhere(partition, offset, number) and self._first("duplicate", partition, offset, number):
            where = f"{values.value(number)} is at {self._where(number)} and {partition.name}@{offset} (line {line})"
            self._report.add("duplicate", where, values.value(number).producer in self._may_duplicate)

    def _is_elsewhere(self, partition: _Partition, offset: int, number: int) -> bool:
        return (self._values.partition[number], self._values.offset[number]) != (partition.number, offset)

    def _first(self, anomaly: str, partition: _Partition, offset: int, number: int) -> bool:
        """Several consumers see the same thing: it counts once."""
        told = (anomaly, partition.number, offset, number)
        new = told not in self._told
        self._told.add(told)
        return new

    def _where(self, number: int) -> str:
        return f"{self._by_number[self._values.partition[number]].name}@{self._values.offset[number]}"

    def _transaction(self, line: int, process: str, state: int, sent: list[int], polled: list[int]) -> None:
        committed = process not in self._uncommitted
        for own in set(sent).intersection(polled):
            text = f"{process} read its own {self._values.value(own)} (line {line})"
            self._report.add("precommitted-read", text, not committed)
        if state in (OK, INFO):
            self._writers[line] = process
            self._reads_of_writers += [(line, number, committed) for number in polled]

    # The questions at the end

    def finish(self, final_read: bool) -> Report:
        self._count()
        self._sends_in_order()
        self._never_read(final_read)
        self._read_but_not_written()
        self._left_out()
        self._cycles()
        return self._report

    def _count(self) -> None:
        states = self._values.state
        self._report.acked = states.count(OK)
        self._report.unknown = states.count(INFO)
        self._report.failed = states.count(FAILED) + states.count(ABORTED)
        self._report.read = len(states) - self._values.reads.count(0)

    def _sends_in_order(self) -> None:
        values = self._values
        last: dict[tuple[int, int], int] = {}
        for number in values.in_send_order():
            if values.state[number] != OK or values.offset[number] == NOWHERE:
                continue
            stream = (values.producer(number), values.partition[number])
            before = last.get(stream)
            if before is not None and values.offset[number] < values.offset[before]:
                inside = "int-" if values.line[number] == values.line[before] else ""
                text = f"{values.value(before)} is at {self._where(before)}, the later {values.value(number)} at {self._where(number)}"
                self._report.add(f"{inside}nonmonotonic-send", text)
            last[stream] = number

    def _never_read(self, final_read: bool) -> None:
        values = self._values
        for number, (state, read) in enumerate(zip(values.state, values.reads, strict=True)):
            if state != OK or read or self._may_be_gone(number):
                continue
            where = f"{values.value(number)} was acknowledged (line {values.line[number]})"
            if values.offset[number] == NOWHERE:
                if final_read:
                    self._report.add("unseen", where)
                continue
            furthest = self._by_number[values.partition[number]].last_read
            if furthest > values.offset[number]:
                self._report.add("lost-write", f"{where} at {self._where(number)}; @{furthest} was read")
            elif final_read:
                self._report.add("unseen", f"{where} at {self._where(number)}")

    def _may_be_gone(self, number: int) -> bool:
        """Retention, DeleteRecords and compaction remove records, and say so in the history."""
        offset = self._values.offset[number]
        if offset == NOWHERE:
            return False
        partition = self._by_number[self._values.partition[number]]
        key = self._keys.get(number)
        return offset < partition.trimmed or (key is not None and partition.last_of_key[key] > offset)

    def _read_but_not_written(self) -> None:
        reasons = {UNSENT: "which nobody has sent", FAILED: "whose send failed", ABORTED: "which was aborted"}
        values = self._values
        for number, (state, read) in enumerate(zip(values.state, values.reads, strict=True)):
            if read and state in reasons:
                allowed = state == ABORTED and not read & READ_COMMITTED
                text = f"{values.value(number)} was read at {self._where(number)}, {reasons[state]}"
                self._report.add("G1a", text, allowed)

    def _left_out(self) -> None:
        visible: dict[int, array[int]] = {}
        for jump in self._jumps:
            partition = self._by_number[jump.partition]
            if jump.partition not in visible:
                visible[jump.partition] = self._visible(partition)
            offsets = visible[jump.partition]
            index = bisect_right(offsets, jump.before)
            if index < len(offsets) and offsets[index] < jump.after:
                missed = f"{self._values.value(partition.at[offsets[index]])} at @{offsets[index]}"
                went = f"{jump.who} went from {partition.name}@{jump.before} to @{jump.after} over {missed} (line {jump.line})"
                self._report.add(jump.anomaly, went, jump.allowed)

    def _visible(self, partition: _Partition) -> array[int]:
        """The offsets that every consumer must see: acknowledged and committed, or seen by a consumer of committed records."""
        states, reads = self._values.state, self._values.reads
        return array(
            "q",
            sorted(
                offset
                for offset, number in partition.at.items()
                if (states[number] == OK or reads[number] & READ_COMMITTED) and not self._may_be_gone(number)
            ),
        )

    # Cycles

    def _cycles(self) -> None:
        reads = [
            (self._values.line[number], reader, committed)
            for reader, number, committed in self._reads_of_writers
            if self._values.state[number] in (OK, INFO) and self._values.line[number] != reader
        ]
        nodes = set(self._writers).union(writer for writer, _, _ in reads)
        writes = [edge for partition in self._by_number for edge in self._writes_in_order(partition, nodes)]
        circular: set[int] = set()
        for group, cycle in cycles((writer, reader) for writer, reader, committed in reads if committed):
            circular |= group
            self._report.add("G1c", f"each read what the one before wrote: {self._chain(cycle)}")
        for _, cycle in cycles(writes):
            self._report.add("G0", f"each wrote behind the one before: {self._chain(cycle)}", allowed=True)
        self._mixed_cycles(writes, [(writer, reader) for writer, reader, _ in reads if reader not in circular])

    def _mixed_cycles(self, writes: list[Edge], reads: list[Edge]) -> None:
        """Cycles that need an edge of writes, or a read of what was not committed."""
        for group, cycle in cycles(writes + reads):
            if any(writer in group and reader in group for writer, reader in reads):
                text = f"each read what the one before wrote, or wrote behind it: {self._chain(cycle)}"
                self._report.add("G1c", text, allowed=True)

    def _writes_in_order(self, partition: _Partition, nodes: set[int]) -> Iterator[Edge]:
        """Who wrote behind whom. Operations that wrote one record and were read by no writer are stepped over, as they cannot be part of
        a cycle of others; that one stands between two records of a single operation is a cycle of the two."""
        before, between = NOWHERE, NOWHERE
        for offset in sorted(partition.at) if nodes else ():
            line = self._values.line[partition.at[offset]]
            if line not in nodes:
                between = line
                continue
            if before not in (NOWHERE, line):
                yield before, line
            elif before == line and between != NOWHERE:
                yield from ((line, between), (between, line))
            before, between = line, NOWHERE

    def _chain(self, cycle: list[int]) -> str:
        shown = [f"line {line} ({self._writers.get(line, 'one send')})" for line in cycle[:6]]
        return " -> ".join([*shown, "..."] if len(cycle) > 6 else shown)
