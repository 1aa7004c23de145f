"""The table of `make bench-log`: one row per piece of work on the log, with the bound that it has to meet. No I/O, no clock."""

from __future__ import annotations

from bench.rows import Bound, Row

LOOK_UP_BYTES = 65_536
"""What one look-up may read of a log of 1 GiB: its index's end, a window of it, and some headers; 0.006 % of the log."""


def _ratio(name: str, group: str, work: str, limit: float) -> Row:
    return Row(name, group, work, "MB/s", Bound.RATIO_AT_LEAST, limit)


ROWS = (
    _ratio("append-1", "append", "durable append of 1 MiB in 16 KiB batches, to writev + fdatasync", 0.7),
    _ratio("append-64", "append", "the same, every batch asks the flusher, to as many fdatasyncs", 0.7),
    _ratio("fetch-hot", "fetch", "reading what is in the page cache, 1 connection, to sendfile alone", 0.7),
    _ratio("fetch-cold", "fetch", "reading what is only on disk, 1 connection, to sendfile alone", 0.7),
    _ratio("recover-16k", "recover", "recovery scan, 16 KiB batches, to reading + crc32c", 0.5),
    _ratio("recover-1k", "recover", "recovery scan, 1 KiB batches, to the same", 0.5),
    _ratio("recover-110", "recover", "recovery scan, 110 B batches, to the same", 0.5),
    Row("start-1000", "start", "start with 1000 partitions after a clean stop", "s", Bound.OURS_AT_MOST, 1.0),
    Row(
        "look-up-offset",
        "look-up",
        "bytes read to find an offset in 1 GiB, worst",
        "B",
        Bound.OURS_AT_MOST,
        LOOK_UP_BYTES,
    ),
    Row(
        "look-up-time",
        "look-up",
        "bytes read to find a timestamp in 1 GiB, worst",
        "B",
        Bound.OURS_AT_MOST,
        LOOK_UP_BYTES,
    ),
    Row(
        "memory",
        "memory",
        "memory with 1 GiB of log, to that with 64 MiB, after the same reads",
        "×",
        Bound.OURS_AT_MOST,
        1.1,
    ),
)
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))


def chosen(only: tuple[str, ...]) -> tuple[Row, ...]:
    """The rows for `--only` names, each the name of a group or of a row; without names all of them. KeyError for another name."""
    unknown = [name for name in only if name not in {row.name for row in ROWS} | set(GROUPS)]
    if unknown:
        raise KeyError(
            f"{', '.join(unknown)}: choose from {', '.join(GROUPS)} or {', '.join(row.name for row in ROWS)}"
        )
    return tuple(row for row in ROWS if not only or row.name in only or row.group in only)
