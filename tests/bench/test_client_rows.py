"""The table of `make bench-clients`: every row has its works, and each is measured once per round."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bench.brokers import OURS
from bench.client_rows import GROUPS, ROWS, chosen, works_of
from bench.client_works import WORKS
from bench.clients import Harness
from bench.table import conclude, table_of


def test_every_row_has_its_works_and_every_group_a_row() -> None:
    assert {name for row in ROWS for name in (row.ours, row.peer) if name} == set(WORKS)
    assert {row.row.group for row in ROWS} == {group.name for group in GROUPS}
    names = [row.row.name for row in ROWS]
    assert len(set(names)) == len(names)


def test_a_peer_that_stands_in_two_rows_is_measured_once() -> None:
    read = next(group for group in GROUPS if group.name == "read")
    assert works_of(read, ROWS) == ["ours-poll", "confluent-read", "ours-poll-arrow", "confluent-long-queue"]
    assert works_of(read, chosen(("poll-arrow",))) == ["ours-poll-arrow", "confluent-read"]


def test_rows_are_chosen_by_their_name_or_by_their_group() -> None:
    assert [row.row.name for row in chosen(("latency", "poll"))] == ["poll", "latency"]
    with pytest.raises(KeyError, match="choose from"):
        chosen(("polls",))


def test_a_round_in_which_one_side_failed_has_no_ratio() -> None:
    text = io.StringIO()
    console = Console(file=text, width=140)
    harness = Harness(console, OURS, chosen(("read",)), 3, 1.0)
    harness.figures["read", "ours-poll"] = {0: 30.0, 1: 20.0, 2: 40.0}
    harness.figures["read", "confluent-read"] = {0: 10.0, 2: 40.0}
    (verdict,) = harness.verdicts()
    assert verdict.ratio == 2.0  # of 3 and 1
    console.print(table_of("Title", ("ours", "peer"), [verdict]))
    assert conclude(console, [verdict], {"round 2": "it broke\nlong"}) == 1
    assert "ratio ≥ 1.5" in text.getvalue()
    assert "round 2: it broke" in text.getvalue()
    assert conclude(console, [], {}) == 2
