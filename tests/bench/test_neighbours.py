"""`make bench-neighbours`: two rows in small, so that it cannot rot, and what it makes of its figures."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from barnabas.broker.apis.table import ROWS as APIS
from barnabas.protocol.codec import decode_request
from barnabas.protocol.header import parse_request_header
from bench.brokers import OURS
from bench.neighbours import payloads, probe
from bench.neighbours.attacks import Frames, Hold, Target
from bench.neighbours.measure import Memory, Outcome, Stage
from bench.neighbours.report import as_json, goal_missed, judge, remarks_of, table_of
from bench.neighbours.rows import ROWS, row_named, selected
from bench.rows import Side

ROW = row_named("H1-hang-up")


def outcome(p99: float = 5.0, peak_mb: float = 60.0, failed: float = 0, **tally: object) -> Outcome:
    figures = {"p50_ms": 1.0, "p99_ms": p99, "max_ms": p99 + 1, "failed": failed, "late_ms": 2.0}
    return Outcome(figures, figures, {"sent_bytes": 0, **tally}, Memory(50_000_000, int(peak_mb * 1e6), 50_000_000))


def missed(*measured: Outcome) -> list[str]:
    (judged,) = judge([ROW], {(ROW.name, Side.OURS): measured})
    return [verdict.row.name.rpartition(" ")[2] for verdict in judged.verdicts() if not verdict.met]


@contextmanager
def server(answer: bytes) -> Iterator[int]:
    """Accepts one connection and gives it an answer as soon as it has sent something."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(30)


class TestRows:
    def test_each_api_has_a_row_and_every_name_is_unique(self) -> None:
        names = [row.name for row in ROWS]
        assert len(set(names)) == len(names)
        asked = {row.asked[0] for row in ROWS if row.worst and row.asked}
        assert {api.key for api in APIS} <= asked

    def test_only_takes_names_and_beginnings_and_says_what_it_does_not_know(self) -> None:
        assert selected(()) == ROWS
        assert [row.name for row in selected(("h1", "M5"))] == ["H1-wait", "H1-hang-up", "M5"]
        with pytest.raises(KeyError, match="nonsense"):
            selected(("nonsense",))

    @pytest.mark.parametrize(
        "frames",
        [payloads.endless_fetch, payloads.topics_that_are_created, payloads.broker_again_and_again, payloads.many_keys],
        ids=lambda build: build.__name__,
    )
    def test_the_requests_are_well_formed(self, frames: Frames) -> None:
        read(frames()[0])

    def test_the_fetches_that_are_packed_by_hand_are_well_formed(self) -> None:
        assert len(read(payloads.fetch(1000)).topics[0].partitions) == 1000
        later = read(payloads.fetch(0, session=7, epoch=3))
        assert (later.session_id, later.session_epoch, later.topics) == (7, 3, [])


def read(frame: bytes) -> Any:
    payload = frame[4:]
    assert len(payload) == int.from_bytes(frame[:4], "big")
    header = parse_request_header(payload)
    return decode_request(header.api_key, header.api_version, payload, header.body_offset)


class TestVerdicts:
    def test_what_keeps_every_must_is_met(self) -> None:
        assert missed(outcome()) == []

    def test_each_must_is_judged_by_itself(self) -> None:
        assert missed(outcome(p99=101.0)) == ["p99"]
        assert missed(outcome(p99=600.0)) == ["p99", "max"]
        assert missed(outcome(peak_mb=260.0)) == ["memory"]
        assert missed(outcome(failed=3)) == ["others"]
        assert missed(outcome(suffered="1000 connects took up to 15.0 s")) == ["others"]

    def test_memory_may_grow_with_what_was_really_sent(self) -> None:
        assert missed(outcome(peak_mb=400.0, sent_bytes=60_000_000)) == []

    def test_descriptors_that_are_kept_are_told(self) -> None:
        kept = outcome()
        kept.descriptors_kept = 420
        assert missed(kept) == ["others"]

    def test_the_median_of_the_rounds_counts_but_the_longest_of_the_longest_waits(self) -> None:
        assert missed(outcome(), outcome(p99=700.0), outcome()) == ["max"]

    def test_a_broker_that_died_has_missed_everything_that_is_about_time(self) -> None:
        dead = outcome()
        dead.fate = "killed at 4 GiB"
        (judged,) = judge([ROW], {(ROW.name, Side.OURS): [dead]})
        assert judged.ours is not None
        assert judged.ours.longest == math.inf
        assert missed(dead) == ["p99", "max", "others"]

    def test_the_goal_is_a_short_wait_and_none_that_is_longer_than_kafkas(self) -> None:
        both = judge([ROW], {(ROW.name, Side.OURS): [outcome(p99=15.0)], (ROW.name, Side.KAFKA): [outcome(p99=9.0)]})
        assert both[0].goal() == "worse than Kafka"
        assert goal_missed(both) == [ROW.name]
        assert not judge([ROW], {(ROW.name, Side.OURS): [outcome(p99=10.0)]})[0].goal()

    def test_what_refuses_the_attack_is_said_below_the_table(self) -> None:
        refused = outcome(closed=12, answers=0)
        judged = judge([ROW], {(ROW.name, Side.KAFKA): [refused]})
        assert remarks_of(judged) == [f"{ROW.name}, Kafka: refuses: closed all 12 connections"]


class TestProbe:
    def test_times_of_requests_without_an_answer_count_and_so_do_they(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "PATIENCE_SECONDS", 0.1)
        monkeypatch.setattr(probe, "told_to_end", lambda: False)
        with server(b"") as port:
            silent = probe.Pipeline(port)
            figures = probe.run(silent, 0.1)
            silent.close()
        assert figures["failed"] == figures["count"] > 0
        assert figures["max_ms"] >= 100

    def test_a_page_that_answers_is_a_visit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "told_to_end", lambda: False)
        with server(b"HTTP/1.1 200 OK\r\n\r\n") as port:
            figures = probe.run(probe.Visits(port, probe.HEALTH, interval=60.0), 0.1)
        assert (figures["count"], figures["failed"]) == (1, 0)


def test_connections_that_are_held_are_open_until_the_end_of_the_attack() -> None:
    with server(b"") as port:
        held = Hold(payloads.announced_only, 1)
        held.prepare(Target(port, port))
        tally = held.run(Target(port, port), 0.2)
    assert (tally.requests, tally.closed, tally.sent_bytes) == (1, 0, 8)


@pytest.mark.timeout(180)
def test_two_rows_in_small(tmp_path: Path) -> None:
    """The bounds are not looked at: that takes the full time, and a machine that does nothing else."""
    rows = [row_named("H1-hang-up"), row_named("H2-keys")]
    with Stage(OURS, tmp_path, lambda step: None) as stage:
        outcomes = {(row.name, Side.OURS): [stage.measure(row, 0.1)] for row in rows}
    judged = judge(rows, outcomes)
    for (measured,) in outcomes.values():
        assert measured.fate == ""
        assert measured.attacked["count"] > 0
        assert measured.attacked["failed"] == 0
        assert measured.tally["requests"] > 0
        assert measured.memory.peak >= measured.memory.before > 0
    console = Console(width=200, file=StringIO())
    with console.capture() as printed:
        console.print(table_of(judged))
    assert "H2-keys" in printed.get()
    assert json.loads(as_json(judged, outcomes, {}))["figures"]["H1-hang-up"]["ours"][0]["tally"]["requests"] > 0
