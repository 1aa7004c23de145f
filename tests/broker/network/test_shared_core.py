"""Threads of the request path share a core until somebody crowds it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from barnabas.broker.network.shared_core import LOOK_NS, PAUSE_NS, SharedCore, is_crowded
from barnabas.clock import ManualClock
from barnabas.testing import EmbeddedBroker

CORES = os.sched_getaffinity(0)
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be chosen among one")


@pytest.fixture(autouse=True)
def _all_cores_afterwards() -> Iterator[None]:
    yield
    os.sched_setaffinity(0, CORES)


def test_a_member_runs_on_the_shared_core_only() -> None:
    core = SharedCore()
    core.join()
    assert os.sched_getaffinity(0) == {core.core}
    core.leave()


def test_a_core_that_is_not_to_be_shared_moves_nobody() -> None:
    core = SharedCore(enabled=False)
    core.join()
    core.watch()
    assert os.sched_getaffinity(0) == CORES


def test_members_spread_out_when_others_crowd_the_core_and_gather_on_another_one_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    core = SharedCore(clock=clock)
    core.join()
    first = core.core
    half, all_of_it = LOOK_NS // 2, LOOK_NS
    figures = iter([(0, 0, 0), (half, half, all_of_it), (0, 0, 0), (all_of_it, half, all_of_it)])
    monkeypatch.setattr(core, "_figures", lambda: next(figures))
    core.watch()
    clock.advance(LOOK_NS / 1e9)
    core.watch()
    assert [core.spread] == [True]
    assert os.sched_getaffinity(0) == CORES
    clock.advance(PAUSE_NS / 1e9)
    core.watch()
    assert os.sched_getaffinity(0) == {core.core}
    assert core.core != first
    clock.advance(LOOK_NS / 1e9)
    core.watch()
    assert [core.spread] == [False], "members that wait only for each other are not crowded"
    core.leave()


def test_crowded_means_that_others_run_while_members_wait() -> None:
    assert is_crowded(0.5, 0.5)
    assert not is_crowded(0.0, 3.0)
    assert not is_crowded(0.9, 0.1)


def test_the_systems_figures_are_read() -> None:
    core = SharedCore()
    core.join()
    ran, waited, busy = core._figures()
    core.leave()
    assert ran > 0
    assert waited >= 0
    assert busy > 0


def test_only_processors_and_handlers_of_the_full_path_share_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedCore, "watch", lambda self: None)  # other tests may well crowd the core

    def placed(config: dict[str, object]) -> dict[str, set[int]]:
        with EmbeddedBroker(config=config):
            return {t.name: os.sched_getaffinity(t.native_id or 0) for t in threading.enumerate() if "plane" in t.name}

    full = placed({"num.network.threads": 3, "num.io.threads": 8})
    shared = {name for name, cores in full.items() if len(cores) == 1}
    assert len(shared) == 11
    assert all("network-thread" in name or "request-handler" in name for name in shared)
    for config in ({}, {"num.io.threads": 8, "barnabas.request.shared.core": "false"}):
        assert all(cores == CORES for cores in placed(config).values())
