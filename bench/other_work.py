"""What else the machine did while we measured: processor time that was neither ours nor our children's. Linux; main thread only.

A figure taken beside other work says little: with two cores a busy process takes up to half of a rate, and it was also seen to
raise the rate of a single connection (README.md).
"""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil

CALM_SHARE = 0.10


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds so far: by the clock, of all processes but the kernel's threads, of this process and the children it has waited for."""

    clock: float
    everyone: float
    ours: float


def kernel_seconds() -> float:
    """Time of the kernel's own threads, which write out what we wrote: work on our behalf, not other work."""
    try:
        threads = psutil.Process(2).children()
        return sum(thread.cpu_times().system for thread in threads)
    except psutil.Error:  # one has just ended, or this is a container that does not show them
        return 0.0


def read() -> Reading:
    """Interrupt time is left out: the network's share of it is ours, and the system does not charge it to a process."""
    times = psutil.cpu_times()
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ours = sum(each.ru_utime + each.ru_stime for each in usage)
    everyone = times.user + times.nice + times.system + getattr(times, "steal", 0.0) - kernel_seconds()
    return Reading(time.monotonic(), everyone, ours)


def descendants_seconds() -> float:
    """Time of our children that still run, and of theirs."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            total += sum(process.cpu_times()[:2])
    return total


def share_since(before: Reading, running: float = 0.0) -> float:
    """The share of other processes of all cores since `before`, 0 to 1. Children that still run count as others: stop them first, or say in
    `running` what they took since then."""
    now = read()
    capacity = (now.clock - before.clock) * (os.cpu_count() or 1)
    theirs = (now.everyone - before.everyone) - (now.ours - before.ours) - running
    return max(0.0, theirs / capacity) if capacity else 0.0


def wait_for_calm(seconds: float) -> float:
    """Returns as soon as other processes are quiet for two seconds, or after `seconds`; their share at the end."""
    deadline = time.monotonic() + seconds
    while True:
        before = read()
        time.sleep(2.0)
        share = share_since(before)
        if share <= CALM_SHARE or time.monotonic() > deadline:
            return share
