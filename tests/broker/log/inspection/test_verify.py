"""Verifying logs: what is clean is called clean, every damage is found, and its place is named."""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.log.checkpoints import LEADER_EPOCH_FILE, RECOVERY_POINT_FILE
from barnabas.broker.log.inspection.findings import Severity
from barnabas.broker.log.inspection.lock_owner import owner_of
from barnabas.broker.log.inspection.targets import NotALog
from barnabas.broker.log.results import AppendOrigin
from barnabas.errors import KafkaError
from barnabas.records.batch import HEADER_SIZE, crc32c
from bench.log_workloads import open_log
from tests.broker.log.compacted import CompactedStore, keyed, records
from tests.broker.log.inspection.logs import (
    SMALL,
    ReadOnlyFiles,
    damage,
    fingerprint,
    flip,
    make_log,
    overwrite,
    repair,
    segments,
    spots,
    verify,
)
from tests.broker.log.stores import Store
from tests.records.batches import NOW_MS, Batch, batch, end_marker, sequenced, transactional, varint


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


def test_a_log_that_was_stopped_in_order_is_clean_and_counted(log: Path) -> None:
    report = verify(log)
    (partition,) = report.partitions
    assert report.clean
    assert not partition.findings
    assert (partition.batches, partition.records, partition.start, partition.end) == (60, 180, 0, 180)
    assert partition.segments == len(segments(log)) == 3
    assert partition.bytes == sum(file.stat().st_size for file in segments(log))


def test_verifying_writes_nothing_and_needs_no_right_to(log: Path) -> None:
    before = fingerprint(log)
    assert verify(log, ReadOnlyFiles()).clean
    assert fingerprint(log) == before


TIMES = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3) | st.integers(NOW_MS - 10, NOW_MS + 10)


@given(batches=st.lists(st.lists(TIMES, min_size=1, max_size=4), min_size=1, max_size=6), by_broker=st.booleans())
@settings(deadline=None, max_examples=60)
def test_timestamps_that_the_broker_accepts_are_no_finding(batches: list[list[int]], by_broker: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data"
        with Store(path, timestamp_type="LogAppendTime" if by_broker else "CreateTime", **SMALL) as store:
            for times in batches:
                with contextlib.suppress(KafkaError):
                    store.log.append(Batch([b"x"] * len(times), timestamps=times).build())
            first = Batch([b"x"], timestamps=[min(batches[0][0], NOW_MS)])
            store.log.append(first.build())
        report = verify(path)
        assert report.clean
        assert not report.partitions[0].findings


def test_a_length_that_only_some_clients_read_is_a_note_and_not_damage(log: Path) -> None:
    """Kafka's brokers write such records, and Java's clients read them; nothing of the log is lost."""
    segment = segments(log)[-1]
    record = b"\0\0\0" + varint(-2) + varint(-1) + b"\0"
    strange = bytearray(Batch([b"123"], base_offset=180).build())
    strange[HEADER_SIZE:] = varint(len(record)) + record
    struct.pack_into(">i", strange, 8, len(strange) - 12)
    struct.pack_into(">I", strange, 17, crc32c(bytes(strange[21:])))
    with segment.open("ab") as file:
        file.write(strange)
    report = verify(log)
    (partition,) = report.partitions
    assert partition.records == 181
    found = [finding for finding in partition.findings if "not every client" in finding.text]
    assert [finding.severity for finding in found] == [Severity.NOTE]


def test_every_single_bit_of_a_batch_in_the_middle_is_found_and_placed(log: Path) -> None:
    """Also those that the checksum does not cover: base offset, length and leader epoch stand out beside their neighbours."""
    segment = segments(log)[1]
    spot = spots(segment)[4]
    for bit in range(spot.position * 8, (spot.position + spot.size) * 8):
        flip(segment, bit)
        (partition,) = verify(log).partitions
        places = [
            (each.file, each.position, each.offset) for each in partition.findings if each.severity is Severity.DAMAGE
        ]
        assert (segment.name, spot.position, spot.base_offset) in places, (
            f"bit {bit - spot.position * 8}: {partition.findings}"
        )
        flip(segment, bit)


@pytest.mark.parametrize("which", [0, -1])
def test_one_damaged_batch_is_one_finding_also_at_the_edge_of_a_segment(log: Path, which: int) -> None:
    """Behind the last batch of a segment no offset says how far it reached; the next segment's name must not count it twice."""
    for segment in segments(log):
        spot = spots(segment)[which]
        flip(segment, (spot.position + HEADER_SIZE) * 8)
        (partition,) = verify(log).partitions
        found = [(each.code.value, each.offset) for each in partition.findings if each.file.endswith(".log")]
        assert found == [("checksum", spot.base_offset)]
        flip(segment, (spot.position + HEADER_SIZE) * 8)


def test_random_bits_anywhere_in_a_segment_are_found(log: Path) -> None:
    chosen = random.Random(4)
    for segment in segments(log):
        for bit in chosen.sample(range(segment.stat().st_size * 8), 60):
            flip(segment, bit)
            assert not verify(log).clean, f"bit {bit} of {segment.name}"
            flip(segment, bit)


def test_a_base_offset_that_jumps_ahead_in_the_last_batch_is_found_by_the_recovery_point_alone(tmp_path: Path) -> None:
    """The limit of what can be known: without the checkpoint such a batch looks as if compaction had removed what was before."""
    log = tmp_path / "data"
    with Store(log) as store:
        for _ in range(5):
            store.log.append(batch(2))
    last = spots(segments(log)[-1])[-1]
    overwrite(segments(log)[-1], last.position, struct.pack(">q", last.base_offset + 64))
    assert not verify(log).clean
    alone = tmp_path / "t-0"
    shutil.copytree(log / "t-0", alone)
    alone.joinpath("00000000000000000000.timeindex").write_bytes(b"")
    (partition,) = verify(alone).partitions
    assert partition.clean
    assert [each.code.value for each in partition.findings] == ["gap"]


def test_batches_behind_the_damage_are_still_looked_at(log: Path) -> None:
    segment = segments(log)[0]
    for spot in (spots(segment)[2], spots(segment)[9]):
        flip(segment, (spot.position + 70) * 8)
    (partition,) = verify(log).partitions
    assert [each.code.value for each in partition.findings] == ["checksum", "checksum"]
    assert partition.batches == 58


def test_the_way_is_found_again_after_bytes_that_are_no_batch(log: Path) -> None:
    segment = segments(log)[0]
    where = spots(segment)
    data = segment.read_bytes()
    segment.write_bytes(data[: where[3].position] + b"\x02" * 5000 + data[where[3].position :])
    (partition,) = verify(log).partitions
    (found,) = [each for each in partition.findings if each.code.value == "header"]
    assert (found.position, found.size, found.offset) == (where[3].position, 5000, where[3].base_offset)
    assert partition.batches == 60


def test_a_batch_inside_a_value_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    inner = Batch([b"inner"] * 3, base_offset=50).build()
    with Store(tmp_path / "data") as store:
        for _ in range(3):
            store.log.append(Batch([bytes(inner)]).build())
    (segment,) = segments(tmp_path / "data")
    second = spots(segment)[1]
    flip(segment, (second.position + 30) * 8)
    (partition,) = verify(tmp_path / "data").partitions
    assert [(each.code.value, each.position, each.size) for each in partition.findings] == [
        ("checksum", second.position, second.size)
    ]


def test_a_file_full_of_pretended_headers_ends_in_bounded_time(tmp_path: Path) -> None:
    """Each of them claims the rest of the file: without a bound the search would compute a checksum of it for every one."""
    path = make_log(tmp_path / "data", 4)
    (segment,) = segments(path)
    lie = struct.pack(">qiib", 1000, 200_000, 0, 2) + bytes(4) + struct.pack(">hi", 0, 0) + bytes(20)
    with segment.open("ab") as stream:
        stream.write(b"\x02" + lie * 10_000)
    (partition,) = verify(path).partitions
    assert partition.batches == 4
    assert sum(each.size for each in partition.findings) == 1 + len(lie) * 10_000


def test_records_that_cannot_be_read_are_found_though_the_checksum_is_right(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        store.log.append(Batch([b"a", b"b"]).build())
    (segment,) = segments(tmp_path / "data")
    wrong = bytearray(Batch([b"a", b"b"], changes={"record_count": 3, "last_offset_delta": 1}).build())
    segment.write_bytes(bytes(wrong))
    overwrite(segment, 12, struct.pack(">i", 0))
    assert ("records", segment.name) in damage(verify(tmp_path / "data"))


def test_a_torn_tail_is_named_as_such(log: Path) -> None:
    segment = segments(log)[-1]
    last = spots(segment)[-1]
    for size in (last.position + last.size - 1, last.position + 60, last.position + 9):
        with segment.open("r+b") as stream:
            stream.truncate(size)
        codes = damage(verify(log))
        assert ("torn", segment.name) in codes
        assert ("checkpoint", RECOVERY_POINT_FILE) in codes  # what was flushed is gone, and that is said too


def test_zeros_that_the_broker_writes_ahead_are_no_damage_but_only_at_the_very_end(log: Path) -> None:
    """A broker that runs, or was killed, leaves them in the segment that it writes to."""
    last, middle = segments(log)[-1], segments(log)[0]
    for file in (last, middle):
        whole = file.read_bytes()
        file.write_bytes(whole + bytes(3_000_000))
        (partition,) = verify(log).partitions
        assert partition.clean == (file is last), partition.findings
        file.write_bytes(whole + bytes(5000) + b"x")
        assert not verify(log).clean
        file.write_bytes(whole)


def test_a_killed_broker_s_log_is_clean_with_the_zeros_that_it_left(tmp_path: Path) -> None:
    with open_log(tmp_path / "data", threads=True) as (_, running):
        for _ in range(5):
            running.append(batch(3, 1000))
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
        assert verify(tmp_path / "data").clean
    report = verify(tmp_path / "killed")
    assert report.clean, report.partitions[0].findings
    assert report.partitions[0].records == 15


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".index", b"abc"),
        (".index", struct.pack(">ii", 5, 1)),
        (".index", struct.pack(">ii", 1_000_000, 2**30)),
        (".index", struct.pack(">iiii", 900, 2000, 3, 500)),
        (".index", None),
        (".timeindex", b"abc"),
        (".timeindex", struct.pack(">qi", 17, 2)),
        (".timeindex", struct.pack(">qi", 2**60, 2**30)),
        (".timeindex", None),
    ],
)
def test_an_index_that_does_not_fit_its_log_is_found(log: Path, suffix: str, content: bytes | None) -> None:
    file = segments(log)[0].with_suffix(suffix)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert damage(verify(log)) == [(suffix[1:], file.name)]


def test_an_index_that_ends_too_early_is_a_note(log: Path) -> None:
    big = make_log(log.parent / "big", 2)
    with Store(big) as store:
        for _ in range(300):
            store.log.append(batch(10, 100))
    index = segments(big)[0].with_suffix(".index")
    index.write_bytes(index.read_bytes()[:16])
    (partition,) = verify(big).partitions
    assert partition.clean
    assert [(each.code.value, each.file) for each in partition.findings] == [("index", index.name)]


def test_a_damaged_snapshot_is_found(log: Path) -> None:
    snapshot = segments(log)[1].with_suffix(".snapshot")
    for bit in range(0, snapshot.stat().st_size * 8, 7):
        flip(snapshot, bit)
        assert damage(verify(log)) == [("snapshot", snapshot.name)], f"bit {bit}"
        flip(snapshot, bit)


def test_a_snapshot_of_another_partition_is_found(log: Path) -> None:
    with Store(log.parent / "other", **SMALL) as other:
        other.log.append(sequenced(7, 0, 0, 90))
    foreign = sorted((log.parent / "other" / "t-0").glob("*.snapshot"))[-1]
    snapshot = segments(log)[2].with_suffix(".snapshot")
    shutil.copy(foreign, snapshot)
    assert damage(verify(log)) == [("snapshot", snapshot.name)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1\n0\n",
        "0\n2\nt 0 5\n",
        "0\n1\nt 0 five\n",
        "0\n1\nt 0\n",
        "0\n2\nt 0 1\nt 0 1\n",
        "0\n1\nt 0 -1\n",
        f"0\n1\nt 0 {2**62}\n",
        f"0\n1\nt 0 {2**63 - 1}\n",
        f"0\n1\nt 0 {'9' * 23}\n",
        f"0\n1\nt 0 {'9' * 5000}\n",
        f"0\n1\nt {2**31} 5\n",
    ],
)
def test_a_damaged_checkpoint_is_found(log: Path, text: str) -> None:
    (log / RECOVERY_POINT_FILE).write_text(text)
    assert damage(verify(log)) == [("checkpoint", RECOVERY_POINT_FILE)]


@pytest.mark.parametrize(
    "text", ["", "0\n1\n", "0\n2\n3 4\n1 9\n", "0\n1\n-1 4\n", f"0\n1\n{2**31} 4\n", f"0\n1\n0 {2**62}\n"]
)
def test_a_damaged_epoch_checkpoint_is_found(log: Path, text: str) -> None:
    (log / "t-0" / LEADER_EPOCH_FILE).write_text(text)
    assert ("checkpoint", LEADER_EPOCH_FILE) in damage(verify(log))


@pytest.mark.parametrize("suffix", [".log", ".index", ".snapshot"])
def test_a_name_with_a_number_that_no_offset_can_be_is_no_segment(log: Path, suffix: str) -> None:
    strange = log / "t-0" / ("9" * 20 + suffix)
    strange.write_bytes(b"anything")
    report = verify(log)
    assert report.clean
    (finding,) = report.partitions[0].findings
    assert (finding.file, finding.text) == (strange.name, "is no segment: the number is too large")
    assert not repair(log, drop_damaged=True).actions
    assert strange.read_bytes() == b"anything"
    with pytest.raises(NotALog, match="is no segment: the number is too large"):
        verify(strange)


def test_a_segment_that_is_missing_is_damage_unless_compaction_may_have_been_there(log: Path) -> None:
    segments(log)[1].unlink()
    following = segments(log)[1].name
    assert ("gap", following) in damage(verify(log))
    shutil.copytree(log / "t-0", log.parent / "t-0")
    assert ("gap", following) not in damage(verify(log.parent / "t-0"))
    (log / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 170\n")
    assert ("gap", following) not in damage(verify(log))


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    """Aborted and committed transactions over three segments; one is still open when it is aborted in the next segment."""
    with Store(tmp_path / "data", segment_bytes=700) as store:
        for number in range(12):
            store.log.append(transactional(1, number), origin=AppendOrigin.COORDINATOR)
            store.log.append(transactional(2, number), origin=AppendOrigin.COORDINATOR)
            store.log.append(end_marker(1 + number % 2, commit=number % 3 == 0), origin=AppendOrigin.COORDINATOR)
    return tmp_path / "data"


def test_the_transaction_index_must_have_what_the_markers_say(transactions: Path) -> None:
    assert verify(transactions).clean, damage(verify(transactions))
    files = sorted((transactions / "t-0").glob("*.txnindex"))
    assert len(files) > 1
    for file in files:
        whole = file.read_bytes()
        for bit in range(0, len(whole) * 8, 5):
            flip(file, bit)
            assert damage(verify(transactions)) == [("txnindex", file.name)], f"bit {bit} of {file.name}"
            flip(file, bit)
        for content in (whole + whole[-34:], whole[:-34], whole[:-1]):
            file.write_bytes(content)
            assert damage(verify(transactions)) == [("txnindex", file.name)]
        file.unlink()
        assert damage(verify(transactions)) == [("txnindex", file.name)]
        file.write_bytes(whole)


def test_a_compacted_log_is_clean_with_its_gaps_its_thinned_out_batches_and_its_aborted_transactions(
    tmp_path: Path,
) -> None:
    with CompactedStore(tmp_path / "data") as store:
        for turn in range(3):
            for number in range(20):
                key = b"k%d" % (number % 4)
                store.put((key, b"x" * 30), (b"once %d" % (turn * 20 + number), None), codec=number % 5)
                producer = {"producer_epoch": 0, "base_sequence": turn * 20 + number}
                store.put((key, b"y"), producer_id=9, **producer)
                open_one = keyed([(key, b"z")], producer_id=5, attributes=0x10, **producer)
                store.log.append(open_one, origin=AppendOrigin.COORDINATOR)
                store.log.append(end_marker(5, commit=number % 2 == 0), origin=AppendOrigin.COORDINATOR)
            if turn == 1:
                store.log.expire_producers(0)
            store.clean_all()
            store.clock.advance(100_000)
        assert store.log.log_end_offset > len(records(store.log)), "nothing was compacted"
    report = verify(tmp_path / "data")
    assert report.clean, report.partitions[0].findings
    flip(max(segments(tmp_path / "data"), key=lambda file: file.stat().st_size), 40 * 8)
    assert not verify(tmp_path / "data").clean


def test_one_segment_alone_can_be_verified(log: Path) -> None:
    for segment in segments(log):
        assert verify(segment).clean
    flip(segments(log)[1], 800)
    assert [verify(segment).clean for segment in segments(log)] == [True, False, True]


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    for name in ("missing", "empty", "file.txt"):
        with pytest.raises(NotALog, match=name):
            verify(tmp_path / name)


def test_a_lock_that_is_held_is_seen_without_taking_it(tmp_path: Path) -> None:
    path = make_log(tmp_path / "data", 4)
    assert not owner_of(str(path)).held
    with Store(path, **SMALL) as store:
        assert owner_of(str(path)).held
        store.log.append(batch(3))
        report = verify(path)
        assert report.owner.held
        assert report.clean
    assert not owner_of(str(path)).held
