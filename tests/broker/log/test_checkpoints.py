"""Checkpoints as the broker reads them: a file that says what cannot be is ignored as a whole, with a warning."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from barnabas.broker.log.checkpoints import (
    LEADER_EPOCH_FILE,
    RECOVERY_POINT_FILE,
    read_epochs,
    read_offsets,
    write_offsets,
)
from barnabas.broker.log.files import FileSystem
from tests.broker.log.stores import Store
from tests.records.batches import batch

FILES = FileSystem()
IMPOSSIBLE = [
    "t 0 -1",
    f"t 0 {2**62}",
    f"t 0 {2**63 - 1}",
    f"t 0 {'9' * 23}",
    f"t 0 {'9' * 5000}",
    "t 0 1_0",
    "t -1 5",
    f"t {2**31} 5",
]


def test_what_was_written_is_read_up_to_the_largest_offset(tmp_path: Path) -> None:
    offsets = {("t", 0): 0, ("t", 2**31 - 1): 2**62 - 1, ("other", 0): 2**32 - 1}
    write_offsets(FILES, str(tmp_path / "file"), offsets)
    assert read_offsets(FILES, str(tmp_path / "file")) == offsets


@pytest.mark.parametrize("line", IMPOSSIBLE)
def test_an_impossible_number_makes_the_file_unknown(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text(f"0\n2\nother 0 3\n{line}\n")
    assert read_offsets(FILES, str(tmp_path / "file")) == {}
    assert [(each.levelno, each.args) for each in caplog.records] == [(logging.WARNING, (str(tmp_path / "file"),))]


@pytest.mark.parametrize("content", [b"0\n2\nt 0 3\nt 0 4\n", b"\xff\xfe"], ids=["twice", "no text"])
def test_a_partition_that_stands_in_it_twice_makes_the_file_unknown(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_offsets(FILES, str(tmp_path / "file")) == {}
    assert "is damaged and is ignored" in caplog.text


@pytest.mark.parametrize("line", ["-1 0", f"{2**31} 0", "0 -1", f"0 {2**62}", f"0 {'9' * 23}"])
def test_an_impossible_epoch_makes_the_file_unknown(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / LEADER_EPOCH_FILE).write_text(f"0\n1\n{line}\n")
    assert read_epochs(FILES, str(tmp_path)) == []
    assert "is damaged and is ignored" in caplog.text


@pytest.mark.parametrize("offset", [2**63 - 1, 10**23 - 1, -5])
def test_a_broker_starts_and_appends_in_spite_of_an_impossible_recovery_point(tmp_path: Path, offset: int) -> None:
    with Store(tmp_path / "data") as store:
        store.log.append(batch(3))
    (tmp_path / "data" / RECOVERY_POINT_FILE).write_text(f"0\n1\nt 0 {offset}\n")
    with Store(tmp_path / "data") as store:
        assert store.log.append(batch(2)).base_offset == 3
        assert store.log.log_end_offset == 5
