"""kill -9 while a process appends: nothing acknowledged is lost, nothing is there twice (faults.md row 1, small count)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.log.stores import Store, read_all
from tests.records.batches import sequenced

ROOT = Path(__file__).resolve().parents[3]

WRITER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[3], sys.argv[3] + "/src"]
from tests.broker.log.stores import Store
from tests.records.batches import sequenced

store = Store(Path(sys.argv[1]), segment_bytes=20_000, index_interval_bytes=300)
sequence = int(sys.argv[2])
print("ready", flush=True)
while True:
    count = 1 + sequence % 3
    result = store.log.append(sequenced(1, 0, sequence, count))
    print(sequence, count, result.base_offset, int(result.duplicate), flush=True)
    sequence += count
    if sequence % 40 == 0:
        store.log.flush()
        for directory in store.manager._dirs:
            directory.write_checkpoints()
"""


def test_acknowledged_batches_survive_kill_9(tmp_path: Path) -> None:
    rng = random.Random(7)
    acknowledged: dict[int, tuple[int, int]] = {}
    next_sequence = 0
    for _ in range(5):
        answers = _write_until_killed(tmp_path, next_sequence, rng.randint(1, 400))
        for sequence, count, offset, _ in answers:
            assert acknowledged.get(sequence, (count, offset)) == (count, offset), "no offset is used twice"
            acknowledged[sequence] = (count, offset)
        # The writer retries the batch that it has no answer for, as a client does; a batch that was written is recognised.
        sequence, count, _, _ = answers[-1]
        next_sequence = sequence + count
    with Store(tmp_path, segment_bytes=20_000, index_interval_bytes=300) as store:
        found = {header.base_sequence: (header.record_count, header.base_offset) for header in read_all(store.log)}
        offsets = [header.base_offset for header in read_all(store.log)]
        assert acknowledged.items() <= found.items()
        assert len(found) == len(offsets), "each sequence once"
        last = max(found)
        assert store.log.append(sequenced(1, 0, last, found[last][0])).duplicate


def _write_until_killed(path: Path, sequence: int, after: int) -> list[tuple[int, ...]]:
    """Let a process append; kill it after some answers. The answers that it gave, each a whole line."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(sequence), str(ROOT)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    answers: list[tuple[int, ...]] = []
    try:
        ready = writer.stdout.readline()
        if ready != "ready\n":
            pytest.fail("the writer did not start")
        for line in writer.stdout:
            if line.endswith("\n"):
                answers.append(tuple(map(int, line.split())))
            if len(answers) == after:
                os.kill(writer.pid, signal.SIGKILL)
    finally:
        writer.kill()
        writer.wait(10)
        writer.stdout.close()
    assert len(answers) >= after
    return answers
