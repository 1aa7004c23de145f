"""Apache Kafka's DumpLogSegments reads every kind of file of our logs and finds nothing wrong.

The logs are made without a broker process, so that they can hold what no client can send yet: control batches and aborted transactions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.results import AppendOrigin
from barnabas.records.compression import CODEC_NAMES
from bench.peers.tools import dump_log_segments
from tests.broker.log.stores import Store
from tests.records.batches import NOW_MS, Batch, batch, end_marker, sequenced, transactional

DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
QUIRK = re.compile(r"Non-consecutive offsets in \S+\n  -1 is followed by (\d+)\n")
"""Of every segment that does not begin at offset 0, the tool of Kafka 4.3 says that -1 comes before its first record."""


def _fill(store: Store, codecs: range, count: int = 12) -> None:
    for number in range(count):
        for codec in codecs:
            values = [b"record %d of %d " % (number, codec) * 5 for _ in range(3)]
            times = [NOW_MS + number * 100 + (number * 7919 + codec * 31 + k) % 90 for k in range(3)]
            store.log.append(Batch(values, [b"k"] * 3, times, codec=codec).build())


def _every_codec(store: Store) -> None:
    _fill(store, range(5))


def _idempotent(store: Store) -> None:
    for sequence in range(0, 60, 3):
        for producer in (1, 2, 2**40):
            store.log.append(sequenced(producer, 5, sequence, 3))


def _transactions(store: Store) -> None:
    for number in range(30):
        producer = number % 4
        for codec in (0, 2, 4):
            records = transactional(producer, number // 4 * 9 + codec // 2 * 3, 3, codec=codec)
            store.log.append(records, origin=AppendOrigin.COORDINATOR)
        store.log.append(batch(2))
        marker = end_marker(producer, commit=number % 3 == 0, coordinator_epoch=number)
        if number < 28:
            store.log.append(marker, origin=AppendOrigin.COORDINATOR)


def _after_a_crash(store: Store) -> None:
    _transactions(store)
    _fill(store, range(5), 5)
    store.crash()
    store.log.append(batch(3))


def _after_deletes(store: Store) -> None:
    _fill(store, range(5))
    store.log.delete_records_before(store.log.segments[2].base_offset + 1)
    store.manager.housekeeper.run_due()
    store.reopen()
    _fill(store, range(3), 3)


def _recompressed(target: str) -> Callable[[Store], None]:
    def fill(store: Store) -> None:
        store.log.update_config(LogConfig(compression_type=target, segment_bytes=2500, index_interval_bytes=300))
        _fill(store, range(5))

    return fill


LOGS: dict[str, tuple[Callable[[Store], None], dict[str, str]]] = {
    "codecs": (_every_codec, {}),
    "idempotent": (_idempotent, {}),
    "transactions": (_transactions, {}),
    "crash": (_after_a_crash, {}),
    "deletes": (_after_deletes, {}),
    "append-time": (_every_codec, {"timestamp_type": "LogAppendTime"}),
    **{target: (_recompressed(target), {}) for target in ("uncompressed", *CODEC_NAMES[1:])},
}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, (fill, config) in LOGS.items():
        path = tmp_path_factory.mktemp(name)
        with Store(path, segment_bytes=2500, index_interval_bytes=300, **config) as store:
            fill(store)
            assert store.log.segment_count > 1
        found[name] = path / "t-0"
    return found


def _files(directories: dict[str, Path]) -> list[str]:
    return sorted(str(path) for each in directories.values() for path in each.iterdir() if path.suffix in DUMPED)


def test_every_record_of_every_file_is_read_and_nothing_is_wrong(directories: dict[str, Path]) -> None:
    files = _files(directories)
    assert {Path(file).suffix for file in files} == set(DUMPED)
    output, complaints = dump_log_segments(files, "--deep-iteration", "--print-data-log")
    parts = dict(part.split("\n", 1) for part in output.split("Dumping ")[1:])
    assert list(parts) == files
    _check_complaints(complaints, files)
    assert "isvalid: false" not in output
    for file in files:
        if file.endswith(".log"):
            _check_log(file, parts[file])
    _check_transactions(directories, parts)
    _check_codecs(directories, parts)


def _check_complaints(complaints: str, files: list[str]) -> None:
    """Nothing but the tool's quirk, once for each segment that has it."""
    bases = [int(Path(file).stem) for file in files if file.endswith(".log")]
    assert sorted(map(int, QUIRK.findall(complaints))) == sorted(base for base in bases if base)
    assert QUIRK.sub("", complaints).strip() == ""


def _check_log(file: str, text: str) -> None:
    """Every record is there, and every byte of the file belongs to a batch."""
    counts = [int(count) for count in re.findall(r"^baseOffset: .* count: (\d+) ", text, re.MULTILINE)]
    assert len(re.findall(r"^\| offset: ", text, re.MULTILINE)) == sum(counts)
    assert sum(map(int, re.findall(r" size: (\d+) ", text))) == Path(file).stat().st_size


def _check_transactions(directories: dict[str, Path], parts: dict[str, str]) -> None:
    texts = {Path(file): text for file, text in parts.items() if Path(file).parent == directories["transactions"]}
    markers = "".join(text for path, text in texts.items() if path.suffix == ".log")
    assert len(re.findall(r"endTxnMarker: ABORT coordinatorEpoch: \d+", markers)) == 18
    assert len(re.findall(r"endTxnMarker: COMMIT coordinatorEpoch: \d+", markers)) == 10
    entry = r"^version: 0 producerId: \d firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+$"
    indexes = "".join(text for path, text in texts.items() if path.suffix == ".txnindex")
    assert len(re.findall(entry, indexes, re.MULTILINE)) == 18
    newest = max(path for path in texts if path.suffix == ".snapshot")
    open_ones = re.findall(r"producerId: (\d) .*currentTxnFirstOffset: OptionalLong\[\d+\]", texts[newest])
    assert sorted(open_ones) == ["0", "1"]


def _check_codecs(directories: dict[str, Path], parts: dict[str, str]) -> None:
    for target in ("uncompressed", *CODEC_NAMES[1:]):
        logs = [
            text for file, text in parts.items() if Path(file).parent == directories[target] and file.endswith(".log")
        ]
        found = set(re.findall(r"compresscodec: (\w+)", "".join(logs)))
        assert found == {"none" if target == "uncompressed" else target}


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_indexes_are_what_kafka_expects(directories: dict[str, Path], option: str) -> None:
    files = [file for file in _files(directories) if file.endswith("index")]
    output, complaints = dump_log_segments(files, option)
    assert complaints == ""
    if option == "--index-sanity-check":
        passed = output.count("passed sanity check.") + output.count(" is empty.")
        assert passed == sum(1 for file in files if not file.endswith(".txnindex"))


def test_the_leader_epochs_are_in_kafkas_text_format(directories: dict[str, Path]) -> None:
    for directory in directories.values():
        lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()
        assert lines[0] == "0"
        assert int(lines[1]) == len(lines) - 2 > 0
        assert all(re.fullmatch(r"\d+ \d+", line) for line in lines[2:])
