"""Dumping logs: the rows say what was written, in order, and damage does not end them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection import dump, targets
from barnabas.cli.log_text import BYTES
from tests.broker.log.inspection.logs import ReadOnlyFiles, flip, make_log, segments, spots


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


def rows(path: Path, *parts: str, bytes_as: str = "auto", **offsets: int) -> list[dict[str, Any]]:
    files = ReadOnlyFiles()
    selection = dump.Selection(frozenset(parts), BYTES[bytes_as], **offsets)
    return list(dump.rows(files, targets.find(FileSystem(), str(path)), selection))


def test_batches_are_listed_with_their_places(log: Path) -> None:
    found = rows(log, dump.BATCHES)
    expected = [
        (segment.name, spot.position, spot.size, spot.base_offset, spot.last_offset)
        for segment in segments(log)
        for spot in spots(segment)
    ]
    names = ("file", "position", "size", "base_offset", "last_offset")
    assert [tuple(row[name] for name in names) for row in found] == expected
    assert {row["codec"] for row in found} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert found[1]["producer_id"] == 8


def test_records_are_listed_behind_their_batch_whatever_its_codec(log: Path) -> None:
    found = [row for row in rows(log, dump.RECORDS) if row["kind"] == "record"]
    assert [row["offset"] for row in found] == list(range(180))
    assert [row["value"] for row in found[:3]] == ["value 0", "", {"hex": "ff00"}]
    assert [row["value"] for row in found[6:8]] == ["value 2", ""]
    assert {row["key"] for row in found} == {None}


@pytest.mark.parametrize(("bytes_as", "shown"), [("hex", "ff00"), ("base64", "/wA=")])
def test_bytes_can_be_shown_in_one_way_always(log: Path, bytes_as: str, shown: str) -> None:
    found = rows(log, dump.RECORDS, bytes_as=bytes_as, first=2, last=2)
    assert [row["value"] for row in found if row["kind"] == "record"] == [shown]


def test_only_the_offsets_that_were_asked_for_are_listed(log: Path) -> None:
    found = [row["offset"] for row in rows(log, dump.RECORDS, first=70, last=75) if row["kind"] == "record"]
    assert found == [70, 71, 72, 73, 74, 75]


def test_damage_is_a_row_and_the_rest_follows(log: Path) -> None:
    segment = segments(log)[0]
    spot = spots(segment)[2]
    flip(segment, (spot.position + 65) * 8)
    found = rows(log, dump.BATCHES)
    assert [row["kind"] for row in found] == ["batch"] * 2 + ["damage"] + ["batch"] * 57
    assert (found[2]["position"], found[2]["offset"]) == (spot.position, spot.base_offset)


def test_the_files_beside_the_batches_are_listed(log: Path) -> None:
    found = rows(log, dump.INDEXES, dump.SNAPSHOTS, dump.CHECKPOINTS)
    kinds = {row["kind"] for row in found}
    assert kinds == {"index", "timeindex", "producer", "epoch", "checkpoint", "metadata"}
    batches = {(spot.last_offset, spot.position) for segment in segments(log) for spot in spots(segment)}
    assert all((row["offset"], row["position"]) in batches for row in found if row["kind"] == "index")
    points = {row["file"]: row["offset"] for row in found if row["kind"] == "checkpoint"}
    assert points["recovery-point-offset-checkpoint"] == 180
    assert {row["producer_id"] for row in found if row["kind"] == "producer"} == {8, 10}


def test_a_single_file_is_listed_alone(log: Path) -> None:
    segment = segments(log)[1]
    assert {row["kind"] for row in rows(segment, dump.BATCHES)} == {"batch"}
    assert len(rows(segment.with_suffix(".index"), dump.BATCHES)) == segment.with_suffix(".index").stat().st_size // 8
    assert {row["kind"] for row in rows(segment.with_suffix(".timeindex"), dump.BATCHES)} == {"timeindex"}
    assert {row["kind"] for row in rows(segment.with_suffix(".snapshot"), dump.BATCHES)} == {"producer"}
    assert {row["kind"] for row in rows(log / "log-start-offset-checkpoint", dump.BATCHES)} == {"checkpoint"}
    assert {row["kind"] for row in rows(log / "t-0" / "leader-epoch-checkpoint", dump.BATCHES)} == {"epoch"}
