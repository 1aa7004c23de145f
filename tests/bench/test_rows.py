"""The benchmark's verdicts: per-round ratios, bounds of three kinds, and the choice of rows."""

from __future__ import annotations

import pytest

from bench.rows import GROUPS, ROWS, Bound, Row, judge, select_groups, selected_rows
from bench.workloads import WORKLOADS

RATIO = Row("r", "g", "work", "1/s", Bound.RATIO_AT_LEAST, 1.2)
AT_MOST = Row("r", "g", "work", "s", Bound.OURS_AT_MOST, 0.4)
AT_LEAST = Row("r", "g", "work", "×", Bound.OURS_AT_LEAST, 0.9)


def test_the_ratio_is_the_median_of_the_rounds_and_not_the_quotient_of_the_medians() -> None:
    verdict = judge(RATIO, ours=[130.0, 50.0, 300.0], peer=[100.0, 40.0, 100.0])
    assert verdict.ratio == pytest.approx(1.3)
    assert (verdict.ours, verdict.peer) == (130.0, 100.0)
    assert verdict.met


def test_a_ratio_below_its_bound_is_missed() -> None:
    assert not judge(RATIO, [119.0], [100.0]).met


def test_a_ratio_without_the_other_side_is_missed() -> None:
    assert not judge(RATIO, [119.0], []).met


def test_absolute_bounds_look_at_our_side_only() -> None:
    assert judge(AT_MOST, [0.3, 0.4, 9.0], [5.0, 5.0, 5.0]).met
    assert not judge(AT_MOST, [0.41], []).met
    assert judge(AT_LEAST, [0.95], [0.1]).met
    assert not judge(AT_LEAST, [0.89], []).met


def test_every_group_has_a_workload_and_every_name_is_unique() -> None:
    assert set(GROUPS) == set(WORKLOADS)
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)


def test_only_takes_rows_and_groups_and_names_what_it_does_not_know() -> None:
    assert select_groups(()) == GROUPS
    assert select_groups(("rr-64", "start")) == ("rr", "start")
    assert [row.name for row in selected_rows(("rr-64", "start"))] == ["rr-64", "start", "memory-idle"]
    with pytest.raises(KeyError, match="nonsense"):
        select_groups(("nonsense",))


def test_a_ratio_may_also_have_to_be_small_and_a_row_without_bound_is_always_met() -> None:
    at_most = Row("r", "g", "work", "ms", Bound.RATIO_AT_MOST, 1.0)
    assert judge(at_most, [3.0, 1.0, 9.0], [4.0, 1.0, 10.0]).met
    assert not judge(at_most, [3.0], [2.0]).met
    assert not judge(at_most, [3.0], []).met
    assert judge(Row("r", "g", "work", "1/s", Bound.NONE, 0), [1.0], [5.0]).met
