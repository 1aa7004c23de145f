"""What Spark's processes need not look at for garbage: frozen there, for the first pieces of work, and nowhere else."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest

from barnabas.spark import settling


@pytest.fixture(autouse=True)
def _thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(settling, "_works_to_settle", itertools.repeat(None, settling.SETTLING_WORKS))
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_a_process_of_the_users_is_left_alone() -> None:
    settling.settle()
    assert gc.get_freeze_count() == 0


def test_a_process_that_spark_forked_freezes_for_its_first_pieces_of_work_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    for _ in range(settling.SETTLING_WORKS):
        gc.unfreeze()
        settling.settle()
        assert gc.get_freeze_count() > 0
    gc.unfreeze()
    settling.settle()
    assert gc.get_freeze_count() == 0
