"""What a Python process of Spark imported need not be looked at for garbage.

Role: Spark's daemon has each process that it forked, a task's or a planner's, look for garbage after every piece of work, through all that
pyspark, pyarrow and pandas keep for good (some 15 ms, longer than a small piece of work takes). Frozen, they are left out.
Thread: that of the task or planner. Lock: none.
"""

from __future__ import annotations

import gc
import itertools
import sys

__all__ = ["settle"]

SETTLING_WORKS = 4
_works_to_settle = itertools.repeat(None, SETTLING_WORKS)


def settle() -> None:
    """At the start of a piece of work. The first ones of a process still import; later ones freeze nothing, so that what they leave behind
    is collected. A process of the user's is left alone."""
    if _forked_by_spark() and next(_works_to_settle, True) is None:
        gc.freeze()


def _forked_by_spark() -> bool:
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    return specification is not None and specification.name == "pyspark.daemon"
