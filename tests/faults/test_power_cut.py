"""Row 2 of faults.md: the power goes. What survives is computed by a model of a disk (power_cut.py); what must be there is what a client
was told (storage.py). In `make test` 50 cuts per mode, in `make faults` 1000.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.broker.catalog import CATALOG_FILE_NAME
from barnabas.broker.log.files import FileSystem
from tests.faults.conftest import Report
from tests.faults.power_cut import PowerCutDisk
from tests.faults.storage import Storage, Truth, Workload, check

CUTS_PER_RUN = 25
STEPS_BETWEEN_CUTS = 150
"""So many calls of the file system lie between two cuts, on average."""


class Cutter:
    """Takes a picture of the disk at random moments, with what the client had been told just then."""

    def __init__(self, disk: PowerCutDisk, live: Path, target: Path, seed: int) -> None:
        self._disk = disk
        self._live = live
        self._target = target
        self._rng = random.Random(seed)
        self._busy = False
        self.told: Callable[[], Truth] = Truth
        self.pictures: list[tuple[Path, Truth]] = []

    def __call__(self) -> None:
        if self._busy or self._rng.random() * STEPS_BETWEEN_CUTS > 1:
            return
        self._busy = True
        truth = self.told()
        picture = self._target / str(len(self.pictures))
        self._disk.cut(picture)
        # SQLite syncs its own files (synchronous=FULL) and is not part of the model: it is found as it is.
        for file in (self._live / "a").glob(f"{CATALOG_FILE_NAME}*"):
            shutil.copy(file, picture / "a" / file.name)
        self.pictures.append((picture, truth))
        self._busy = False


def run_until_cut(root: Path, seed: int, durable: bool, cuts: int) -> Iterator[tuple[Path, Truth]]:
    """Use a storage until so many pictures of its disk were taken; gives them one after the other and removes them."""
    live, pictures = root / "live", root / "pictures"
    live.mkdir(parents=True)
    pictures.mkdir()
    disk = PowerCutDisk(live, seed)
    workload = Workload(live, disk, seed, durable)
    cutter = Cutter(disk, live, pictures, seed)
    cutter.told = lambda: workload.truth.frozen(workload.clock.monotonic_ns())
    disk.on_step = cutter
    try:
        for _ in range(cuts):
            while not cutter.pictures:
                workload.step()
            while cutter.pictures:
                picture, truth = cutter.pictures.pop()
                yield picture, truth
                shutil.rmtree(picture)
    finally:
        disk.on_step = lambda: None
        workload.storage.stop()
        shutil.rmtree(root)


def recover_and_check(picture: Path, truth: Truth, durable: bool, seed: int) -> int:
    """Start on what was left. One time in four the power goes again while the start is at work, and a third start must mend all."""
    if seed % 4 == 0:
        disk = PowerCutDisk(picture, seed)
        cutter = Cutter(disk, picture, picture.with_name(f"{picture.name}-cuts"), seed)
        cutter._target.mkdir()
        cutter.told = lambda: truth
        disk.on_step = cutter
        Storage(picture, disk).kill()
        disk.on_step = lambda: None
        for cut, _ in cutter.pictures:
            _start_and_check(cut, truth, durable)
        shutil.rmtree(cutter._target)
    return _start_and_check(picture, truth, durable)


def _start_and_check(picture: Path, truth: Truth, durable: bool) -> int:
    storage = Storage(picture, FileSystem())
    try:
        return check(storage, truth, durable)
    finally:
        storage.kill()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("durable", [True, False], ids=["sync", "async"])
def test_a_power_cut_at_any_moment_keeps_what_was_promised(
    tmp_path: Path, report: Report, full: bool, durable: bool
) -> None:
    """Row 2, RP-41: durable acks lose nothing; without them, nothing that is older than the interval of the flusher."""
    cuts, looked_for = 1000 if full else 50, 0
    for run in range(cuts // CUTS_PER_RUN):
        pictures = run_until_cut(tmp_path / f"run-{run}", run, durable, CUTS_PER_RUN)
        for number, (picture, truth) in enumerate(pictures):
            looked_for += recover_and_check(picture, truth, durable, run * CUTS_PER_RUN + number)
    mode, lost = ("sync", "0 acknowledged lost") if durable else ("async", "0 lost older than the flush interval")
    report(2, f"{mode}: {cuts} power cuts, {lost} ({looked_for} batches looked for), every log a valid prefix")
