"""The table of `make bench-log`, and the bare server that it compares with."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.records.batch import check_crc, parse_header
from bench import generators
from bench.log_rows import GROUPS, ROWS, chosen
from bench.log_workloads import START_MS, WORKLOADS, fill, make_batch, open_log, sendfile_server
from tests.records.batches import record_times


def test_every_group_has_a_workload_and_every_name_is_unique() -> None:
    assert set(GROUPS) == set(WORKLOADS)
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_only_takes_rows_and_groups_and_names_what_it_does_not_know() -> None:
    assert chosen(()) == ROWS
    assert [row.name for row in chosen(("append", "memory"))] == ["append-1", "append-64", "memory"]
    with pytest.raises(KeyError, match="nonsense"):
        chosen(("nonsense",))


@pytest.mark.parametrize("size", [110, 1024, 16 * 1024])
def test_the_batches_are_valid_and_of_the_size_that_the_row_says(size: int) -> None:
    batch = make_batch(size, START_MS)
    header = parse_header(batch)
    assert check_crc(batch, header)
    assert list(record_times(batch, header)) == [(START_MS, 0)]
    assert len(batch) == size


def test_the_bare_server_serves_every_byte_of_a_segment(tmp_path: Path) -> None:
    with open_log(tmp_path) as (_, log):
        fill(log, 1000, 3_000_000)
    segment = tmp_path / "bench-0" / f"{0:020d}.log"
    with sendfile_server(segment) as port:
        assert generators.fetch(port, 1, "any", 10_000_000) > 0
