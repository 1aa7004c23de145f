"""The collector of a broker's own process: it looks at what is new, and never for long."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import pytest

from barnabas.broker.garbage import GarbageKeeper

pytestmark = pytest.mark.skipif(not GarbageKeeper().needed, reason="this Python collects in small steps by itself")


def in_a_process(work: str) -> str:
    """The tests' own process keeps its collector as it is."""
    code = (
        "import gc, weakref\nfrom barnabas.broker import garbage\nkeeper = garbage.GarbageKeeper()\n"
        + textwrap.dedent(work)
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_itself_never_looks_at_everything_and_what_stayed_is_left_out() -> None:
    in_a_process("""
        looks = []
        gc.callbacks.append(lambda phase, info: looks.append(info["generation"]))
        keeper.start()
        kept = []
        for _ in range(20):
            kept += [[] for _ in range(20_000)]
            looks.clear()
        assert 2 not in looks, looks
        keeper.settle()
        assert keeper.settled == 1, keeper
        assert gc.get_freeze_count() > 400_000
        assert len(gc.get_objects()) < 1_000
        keeper.settle()
        assert keeper.settled == 1, "nothing is new"
    """)


def test_garbage_among_the_new_objects_is_collected() -> None:
    in_a_process("""
        class Node: pass
        keeper.start()
        node = Node()
        node.self, watched = node, weakref.ref(node)
        kept = [[] for _ in range(200_000)]
        del node
        keeper.settle()
        assert watched() is None
    """)


def test_garbage_that_was_frozen_goes_when_the_frozen_have_doubled() -> None:
    in_a_process("""
        class Node: pass
        garbage._LEAST_FROZEN = 10
        keeper.start()
        node = Node()
        node.self, watched = node, weakref.ref(node)
        kept = [[] for _ in range(80_000)]
        keeper.settle()
        del node
        gc.collect()
        assert watched() is not None, "frozen"
        kept += [[] for _ in range(300_000)]
        keeper.settle()
        assert watched() is None
        assert keeper.full_looks == 1, keeper
    """)


def test_the_end_leaves_the_collector_as_it_was() -> None:
    in_a_process("""
        thresholds = gc.get_threshold()
        keeper.start()
        assert gc.get_threshold() != thresholds
        keeper.stop()
        assert gc.get_threshold() == thresholds
        assert gc.get_freeze_count() == 0
    """)


def test_this_process_is_left_alone() -> None:
    assert gc.get_freeze_count() == 0


def test_a_busy_broker_looks_later_but_not_never() -> None:
    in_a_process("""
        keeper.start()
        kept = [[] for _ in range(200_000)]
        for _ in range(60):
            keeper.settle(busy=True)
        assert keeper.settled == 0, "a look among the objects of a heavy request"
        keeper.settle(busy=True)
        assert keeper.settled == 1, "garbage grows without end"
    """)
