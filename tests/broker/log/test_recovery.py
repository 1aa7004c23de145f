"""Start after a crash: torn tails, garbage, damaged files; and start after a clean stop."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from barnabas.broker.log.files import FileSystem
from tests.broker.log.stores import Store, headers_of, read_all
from tests.records.batches import batch, sequenced


class WatchingFiles(FileSystem):
    """Notes how much is read and which files are cut."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0
        self.largest_read = 0
        self.truncated = 0

    def pread(self, fd: int, length: int, position: int) -> bytes:
        data = super().pread(fd, length, position)
        self.bytes_read += len(data)
        self.largest_read = max(self.largest_read, len(data))
        return data

    def truncate(self, fd: int, size: int) -> None:
        self.truncated += 1
        super().truncate(fd, size)


def crashed_copy(source: Path, target: Path) -> Path:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target)
    return target


def test_a_clean_stop_needs_no_recovery(tmp_path: Path) -> None:
    """faults.md row 3."""
    with Store(tmp_path, WatchingFiles(), segment_bytes=10_000) as store:
        for _ in range(100):
            store.log.append(batch(2, size=200))
        store.close()
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        files = store.files = WatchingFiles()
        store.open()
        assert files.truncated == 0
        assert files.bytes_read < 20_000, "a start after a clean stop must not read the log"
        assert not (tmp_path / ".kafka_cleanshutdown").exists(), "the marker holds for one start"
        assert (store.log.log_end_offset, store.log.durable_offset) == (200, 200)
        assert len(read_all(store.log)) == 100
        assert store.log.append(batch(1)).base_offset == 200


def test_a_damaged_snapshot_is_written_anew_by_the_next_clean_stop(tmp_path: Path) -> None:
    """Else every start would read the log for the state of its producers."""
    with Store(tmp_path) as store:
        for number in range(5):
            store.log.append(sequenced(7, 0, number, 1))
        store.close()
        (snapshot,) = store.directory.glob("*.snapshot")
        content = snapshot.read_bytes()
        snapshot.write_bytes(content[:-1])
        store.open()
        store.close()
        assert snapshot.exists()
        assert len(snapshot.read_bytes()) == len(content)
        store.open()


def test_every_cut_of_the_last_batch_recovers_to_the_batch_before(tmp_path: Path) -> None:
    """faults.md row 4: every byte."""
    with Store(tmp_path / "data") as store:
        for number in range(3):
            store.log.append(sequenced(1, 0, number))
        position = store.log.size
        store.log.append(sequenced(1, 0, 3))
        whole = (store.directory / "00000000000000000000.log").read_bytes()
        for cut in range(position, len(whole)):
            copy = crashed_copy(tmp_path / "data", tmp_path / "copy")
            (copy / "t-0/00000000000000000000.log").write_bytes(whole[:cut])
            with Store(copy) as again:
                assert again.log.log_end_offset == 3
                assert again.log.size == position
                assert again.log.append(sequenced(1, 0, 2)).duplicate
                assert again.log.append(sequenced(1, 0, 3)).base_offset == 3
                assert (copy / "t-0/00000000000000000000.log").read_bytes() == whole


@pytest.mark.parametrize("seed", range(30))
def test_flipped_and_appended_garbage_leaves_exactly_the_prefix(tmp_path: Path, seed: int) -> None:
    """faults.md row 5: the prefix before the first bad batch is byte-identical, and the start never fails."""
    rng = random.Random(seed)
    store = Store(tmp_path, segment_bytes=3000)
    for _ in range(30):
        store.log.append(batch(rng.randint(1, 4), size=rng.randint(0, 150)))
    store.abandon()
    ends = {header.base_offset: header for header in read_all(store.log)}
    victim = rng.choice(store.log.segments)
    data = bytearray(Path(victim.path).read_bytes())
    if rng.random() < 0.3:
        data += rng.randbytes(rng.randint(1, 500))
        damage = victim.size
    else:
        damage = rng.choice([at for at in range(len(data)) if not _outside_checksum(victim, at)])
        data[damage] ^= rng.randint(1, 255)
    for name in store.directory.glob("*index"):
        name.write_bytes(rng.randbytes(rng.randint(0, 200)))
    expected = _expected_end(store, victim, damage)
    Path(victim.path).write_bytes(data)
    store.open()
    assert store.log.log_end_offset == expected
    found = read_all(store.log)
    assert [header.base_offset for header in found] == [offset for offset in sorted(ends) if offset < expected]
    assert store.log.append(batch(1)).base_offset == expected
    store.close()


def _places(segment: object) -> list[tuple[int, int, int]]:
    return [(place.position, place.size, place.base_offset) for place in segment.places(0, segment.size)]  # type: ignore[attr-defined]


def _outside_checksum(segment: object, damage: int) -> bool:
    """The offset and the leader epoch are set by the broker and, as in Kafka's format, not covered."""
    return any(damage - position in (*range(8), *range(12, 16)) for position, _, _ in _places(segment))


def _expected_end(store: Store, victim: object, damage: int) -> int:
    """The base offset of the damaged batch, or the end when the damage is after the last batch of the last segment."""
    for position, size, base in _places(victim):
        if position <= damage < position + size:
            return base
    segments = store.log.segments
    following = segments[segments.index(victim) + 1 :]  # type: ignore[arg-type]
    return following[0].base_offset if following else store.log.log_end_offset


def test_only_what_is_after_the_recovery_point_is_checked(tmp_path: Path) -> None:
    with Store(tmp_path, segment_bytes=100_000) as store:
        for _ in range(1000):
            store.log.append(batch(1, size=900))
        store.log.flush()
        for directory in store.manager._dirs:
            directory.write_checkpoints()
        for _ in range(20):
            store.log.append(batch(1, size=900))
        store.abandon()
        files = store.files = WatchingFiles()
        store.open()
        assert store.log.log_end_offset == 1020
        assert files.bytes_read < 400_000, "segments before the recovery point must not be read"


def test_bit_rot_before_the_recovery_point_does_not_cut_the_log(tmp_path: Path) -> None:
    """What was on disk and acknowledged is not thrown away because one old batch went bad."""
    with Store(tmp_path) as store:
        for _ in range(10):
            store.log.append(batch(1, size=100))
        store.log.flush()
        for directory in store.manager._dirs:
            directory.write_checkpoints()
        store.log.append(batch(1, size=100))
        with open(store.log.segments[0].path, "r+b") as file:
            file.seek(300)
            file.write(b"\xff\xff")
        assert store.crash().log_end_offset == 11


def test_a_clean_marker_is_not_believed_when_the_file_is_cut(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for _ in range(5):
            store.log.append(batch(1, size=100))
        path = Path(store.log.segments[0].path)
        store.close()
        path.write_bytes(path.read_bytes()[:-7])
        store.open()
        assert store.log.log_end_offset == 5, "that offset was on disk: it is not given to another record"
        assert store.log.append(batch(1)).base_offset == 5
        assert [header.base_offset for header in headers_of(store.log.read(0, 4096))] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"0\n5\nt 0 3\n", b"1\n1\nt 0 3\n", b"0\n1\nt zero x\n", None])
def test_damaged_checkpoints_cost_time_but_no_data(tmp_path: Path, name: str, content: bytes | None) -> None:
    with Store(tmp_path, segment_bytes=500) as store:
        for _ in range(20):
            store.log.append(batch(1, size=100))
        store.close()
        if content is None:
            (tmp_path / name).unlink()
        else:
            (tmp_path / name).write_bytes(content)
        store.open()
        assert len(read_all(store.log)) == 20
        assert store.log.append(batch(1)).base_offset == 20


def test_left_over_files_are_cleared_away(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(1))
        store.abandon()
        strays = ("00000000000000000009.index", "00000000000000000000.log.deleted", "00000000000000000005.log.cleaned")
        for name in strays:
            (store.directory / name).write_bytes(b"x" * 8)
        (store.directory / "notes.txt").write_text("not ours")
        store.open()
        names = {path.name for path in store.directory.iterdir()}
        assert not names & set(strays)
        assert "notes.txt" in names
        assert store.log.log_end_offset == 1


def test_a_segment_that_overlaps_the_one_before_is_removed(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(5))
        store.abandon()
        shutil.copy(store.directory / "00000000000000000000.log", store.directory / "00000000000000000003.log")
        store.open()
        assert store.log.log_end_offset == 5
        assert len(read_all(store.log)) == 1


def test_a_log_that_lost_its_files_goes_on_at_its_start(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(50))
        store.log.delete_records_before(40)
        store.abandon()
        (store.directory / "00000000000000000000.log").write_bytes(b"")
        store.open()
        assert (store.log.log_start_offset, store.log.log_end_offset) == (40, 40)
        assert store.log.append(batch(1)).base_offset == 40


def test_recovered_indexes_equal_those_that_were_written(tmp_path: Path) -> None:
    with Store(tmp_path / "data", segment_bytes=20_000, index_interval_bytes=500) as store:
        for number in range(200):
            store.log.append(batch(2, size=100, timestamp=1_700_000_000_000 + number * 7 % 90))
        copy = crashed_copy(tmp_path / "data", tmp_path / "copy")
        for path in (copy / "t-0").glob("*index"):
            path.unlink()
        with Store(copy, segment_bytes=20_000, index_interval_bytes=500):
            pass
        store.close()
        for path in store.directory.glob("*index"):
            assert (copy / "t-0" / path.name).read_bytes() == path.read_bytes()
        store.open()


def test_the_name_of_a_deleted_partition_brings_nothing_back(tmp_path: Path) -> None:
    """Stale checkpoints of a deleted partition must not hurt a new one of the same name, not even over a crash."""
    with Store(tmp_path) as store:
        store.log.append(batch(100))
        store.log.delete_records_before(90)
        store.log.flush()
        for directory in store.manager._dirs:
            directory.write_checkpoints()
        store.manager.delete("t", 0)
        store.log = store.manager.create("t", 0, store.log.topic_id, store.config)
        store.log.append(batch(3))
        log = store.crash()
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)
        assert headers_of(log.read(0, 100))[0].record_count == 3


def test_zeros_that_were_written_ahead_are_cut_off_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(tmp_path) as store:
        store.log.append(batch(5))
        size = store.log.size
        store.abandon()
        path = store.directory / "00000000000000000000.log"
        path.write_bytes(path.read_bytes() + bytes(1_000_000))
        store.open()
        assert (store.log.log_end_offset, store.log.size, path.stat().st_size) == (5, size, size)
        assert not [record for record in caplog.records if record.levelname == "WARNING"]
        store.abandon()
        path.write_bytes(path.read_bytes() + bytes(300_000) + b"\1")
        store.open()
        assert store.log.size == size
        assert "there is no batch of format 2" in caplog.text, "something after the zeros is damage"


def test_a_header_that_claims_a_huge_batch_costs_no_memory(tmp_path: Path) -> None:
    """A torn length may be anything up to the size of the file; its bytes are checked in parts."""
    with Store(tmp_path) as store:
        store.log.append(batch(5))
        store.abandon()
        path = store.directory / "00000000000000000000.log"
        whole = path.read_bytes()
        path.write_bytes(whole + struct.pack(">qii", 5, 40_000_000, 0) + b"\2" + bytes(40_000_000 - 5))
        files = store.files = WatchingFiles()
        store.open()
        assert store.log.log_end_offset == 5
        assert path.read_bytes() == whole
        assert files.largest_read <= 1 << 20
