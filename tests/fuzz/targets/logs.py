"""A partition's directory with damaged files: the log, its indexes, the snapshot of producers, the transaction index, the checkpoints.

Recovery must load it, without an error; what it then holds is whole, and a second load finds the same.

Input: a byte of choices, then the files, each with its length in front.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
import tempfile
import uuid
from pathlib import Path

from barnabas.broker.log import checkpoints
from barnabas.broker.log.checkpoints import PropertiesDamaged
from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.file_kinds import NotAFile
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.index import IndexDamaged
from barnabas.broker.log.producer_state import CorruptSnapshot, ProducerStates
from barnabas.broker.log.recovery import LoadedLog, LoadRequest, load_log
from barnabas.records.batch import crc32c
from tests.fuzz.target import Reader, must, outcome, piece
from tests.fuzz.target_records import repaired_all
from tests.fuzz.targets import fetched
from tests.records.batches import NOW_MS

MAX_LENGTH = 4096
CLEAN, REPAIR, KNOWN, FLUSHED, SECOND = 1, 2, 4, 8, 16
BASE = "00000000000000000000"
FILES = (f"{BASE}.log", f"{BASE}.index", f"{BASE}.timeindex", f"{BASE}.txnindex", f"{4:020}.snapshot")
SMALL = (checkpoints.LEADER_EPOCH_FILE, checkpoints.PARTITION_METADATA_FILE)
ALONE = ("recovery-point-offset-checkpoint", checkpoints.META_PROPERTIES_FILE)

logging.disable(logging.ERROR)  # every input is damaged, and recovery says so
_files = FileSystem()
_parent = tempfile.mkdtemp(prefix="barnabas-fuzz-")


def run(data: bytes) -> None:
    reader = Reader(data)
    choices = reader.byte()
    contents = [reader.piece() for _ in (*FILES, *SMALL, *ALONE)]
    if choices & REPAIR:
        contents[0], contents[4] = repaired_all(contents[0]), _repaired_snapshot(contents[4])
    directory = os.path.join(_parent, "fuzz-0")
    os.mkdir(directory)
    try:
        _write(directory, contents, choices)
        _read_alone(contents[4], directory)
        first = _load(directory, 4 if choices & FLUSHED else 0, 0, choices)
        if first is not None:
            again = _load(directory, first.recovery_point, first.start, KNOWN)
            # What comes from elsewhere may keep a gap at first that counts as damage once the directory is ours.
            same = again is not None and (not choices & KNOWN or _summary(again) == _summary(first))
            must(same, f"loaded again it is {again}, not {first}")
    finally:
        shutil.rmtree(directory)


def _repaired_snapshot(data: bytes) -> bytes:
    return data[:2] + struct.pack(">I", crc32c(data[6:])) + data[6:] if len(data) >= 6 else data


def _write(directory: str, contents: list[bytes], choices: int) -> None:
    for name, content in zip((*FILES, *SMALL, *ALONE), contents, strict=True):
        if content or name in FILES[:3]:
            Path(directory, name).write_bytes(content)
    if choices & SECOND:
        Path(directory, f"{4:020}.log").write_bytes(contents[0][:400])


def _load(directory: str, point: int, start: int, choices: int) -> LoadedLog | None:
    config, known = LogConfig(index_interval_bytes=100), bool(choices & KNOWN)
    request = LoadRequest(directory, "fuzz-0", config, point, start, bool(choices & CLEAN), NOW_MS, known, known)
    found = outcome((NotAFile,), load_log, _files, request)
    loaded: LoadedLog | None = found.value
    if loaded is None:
        return None
    must(0 <= loaded.start <= loaded.end, f"the log goes from {loaded.start} to {loaded.end}")
    must(loaded.segments, "the log has no segment")
    for segment in loaded.segments:
        for index in (segment.offset_index, segment.time_index):
            outcome(
                (IndexDamaged,), index.last
            )  # one below the recovery point is looked at, and rebuilt, when it is used
    return loaded


def _summary(loaded: LoadedLog) -> tuple[object, ...]:
    return loaded.start, loaded.end, [(each.base_offset, each.size) for each in loaded.segments]


def _read_alone(snapshot: bytes, directory: str) -> None:
    """The small files by themselves: damaged ones say nothing, and what is read is written as it was."""
    offsets = checkpoints.read_offsets(_files, os.path.join(directory, ALONE[0]))
    must(all(0 <= offset < checkpoints.OFFSET_LIMIT for offset in offsets.values()), f"impossible offsets: {offsets}")
    epochs = checkpoints.read_epochs(_files, directory)
    must(epochs == sorted(epochs), f"epochs out of order: {epochs}")
    topic = checkpoints.read_partition_metadata(_files, directory)
    must(topic is None or isinstance(topic, uuid.UUID), f"a topic id that is {topic}")
    outcome((PropertiesDamaged,), checkpoints.read_properties, _files, os.path.join(directory, ALONE[1]))
    states = ProducerStates("fuzz-0")
    if not outcome((CorruptSnapshot,), states.load, snapshot, NOW_MS).error:
        again = ProducerStates("fuzz-0")
        again.load(states.encode(), NOW_MS)
        must(repr(again.entries) == repr(states.entries), f"{states.entries} was written and read as {again.entries}")


def seeds() -> dict[str, bytes]:
    bundles = {name: data[2:] for name, data in fetched.seeds().items()}
    entry = struct.pack(">qhiqiqiq", 7, 0, 4, 3, 1, NOW_MS, -1, -1)
    body = struct.pack(">i", 1) + entry
    snapshot = struct.pack(">hI", 1, crc32c(body)) + body
    rest = {
        "index": struct.pack(">iiii", 2, 0, 7, 150),
        "times": struct.pack(">qi", NOW_MS, 2),
        "aborted": struct.pack(">hqqqq", 0, 7, 0, 4, 5),
        "epochs": checkpoints.encode_epochs([(0, 0), (3, 2)]),
        "metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n",
        "offsets": b"0\n2\na 0 5\nb-c 1 6\n",
        "properties": b"#\nversion=1\nnode.id=1\ncluster.id=x\n",
    }
    order = ("index", "times", "aborted")
    behind = b"".join(map(piece, (rest["epochs"], rest["metadata"], rest["offsets"], rest["properties"])))
    found = {}
    for name, log in bundles.items():
        files = piece(log) + b"".join(piece(rest[each]) for each in order) + piece(snapshot)
        found[name] = bytes([REPAIR]) + files + behind
    found["clean"] = bytes([CLEAN | KNOWN]) + found["several"][1:]
    found["flushed"] = bytes([FLUSHED | KNOWN]) + found["several"][1:]
    found["second"] = bytes([REPAIR | SECOND]) + found["several"][1:]
    found["without-indexes"] = bytes([REPAIR]) + piece(bundles["several"])
    return found
