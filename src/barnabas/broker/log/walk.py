"""Going over all batches of a segment's file, also over damaged ones.

Role: what recovery and the rebuilding of indexes and state need: a walk at the speed of reading (records/kernel/scan.py) that finds its way
again behind bytes that are no batch (batch_search.py), and what the end of a file is.
Thread: the caller's. Lock: none; it only reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.broker.inline_work import spend
from barnabas.broker.log.batch_search import BatchSearch
from barnabas.records.batch import HEADER_SIZE
from barnabas.records.kernel.scan import FINE, PROBLEMS, WRONG_OFFSET, BatchScan

if TYPE_CHECKING:
    from barnabas.broker.log.segment import Segment

log = logging.getLogger(__name__)

NOWHERE = 2**63 - 1
"""An offset that no batch has: a walk from there on compares no checksum."""

_WALK_CHUNK = 256 * 1024
_HEADERS_CHUNK = 64 * 1024
_ONE_PAGE = 4096


def walk(
    segment: Segment,
    check_from: int,
    interval: int,
    epoch: int = -1,
    keep_below: int = NOWHERE,
    ends_by: int = NOWHERE,
) -> Iterator[BatchScan]:
    """Go over the batches until the end; the same walk again and again, whenever its results should be taken, and at the end.

    Batches from the offset `check_from` on are read whole and their checksums compared; of those before only headers are read.
    Damaged bytes are passed over when what follows them begins at or below `keep_below`; else the walk ends before them. A last batch
    behind a gap that goes beyond `ends_by`, where the log is known to go on or to end, has a wrong offset: the walk ends before it.
    """
    scan = BatchScan(segment.base_offset, segment.size, check_from, interval, epoch)
    search = BatchSearch(segment.read, segment.size)
    end = 0
    while scan.wants_more or _pass_damage(segment, scan, search, keep_below):
        position = scan.read_position
        if scan.next_offset >= check_from:
            chunk = segment.read(position, _WALK_CHUNK)
        else:  # where batches are long, their headers are far apart
            chunk = segment.read(position, _HEADERS_CHUNK if position <= end else _ONE_PAGE)
        end = position + len(chunk)
        scan.feed(chunk)
        if scan.crowded:
            yield scan
    if scan.next_offset > ends_by and scan.last_batch is not None:
        _end_before(segment, scan, scan.last_batch)
    yield scan


def scan_headers(segment: Segment, position: int, end: int) -> Iterator[BatchScan]:
    """The headers from a batch at a position on, a chunk at a time and without the GIL; up to the first bytes that are no batch."""
    scan = BatchScan(segment.base_offset, end, NOWHERE, NOWHERE)
    scan.stand_at(position, segment.base_offset, FINE)
    while scan.wants_more:
        spend(_HEADERS_CHUNK)
        scan.feed(segment.read(scan.read_position, _HEADERS_CHUNK))
        if scan.crowded:
            scan.take_producer_rows()
            scan.take_epochs()
        yield scan


def _end_before(segment: Segment, scan: BatchScan, last: tuple[int, int]) -> None:
    position, expected = last
    if segment.place_at(position).base_offset > expected:
        scan.forget_last()
        scan.stand_at(position, expected, WRONG_OFFSET)


def _pass_damage(segment: Segment, scan: BatchScan, search: BatchSearch, keep_below: int) -> bool:
    """A walk met bytes that are no batch: go on behind them if that is allowed, else stand where they begin."""
    if scan.problem == FINE:
        return False
    begin, first = scan.valid_size, scan.next_offset
    before = scan.last_batch
    if before is not None and search.lies(before[0], segment.offsets_from(before[1])):
        begin, first = before  # a wrong length or wrong offsets led the walk astray
        scan.forget_last()
    behind = search.batch_behind(begin, segment.offsets_from(first)) if first < keep_below else None
    if behind is None or behind.header.base_offset > keep_below:
        scan.stand_at(begin, first, scan.problem)
        return False
    text = "%s: offsets %d to %d are damaged, %d bytes at %d (%s); they are left as they are"
    following = behind.header.base_offset
    log.warning(text, segment.path, first, following - 1, behind.position - begin, begin, PROBLEMS[scan.problem])
    scan.stand_at(behind.position, following, FINE)
    return True


def is_zero_from(segment: Segment, position: int) -> bool:
    """Whether only zeros follow: bytes that were asked of the disk ahead of the batches that would fill them."""
    return _end_of_bytes(segment, position) <= position


def _end_of_bytes(segment: Segment, position: int) -> int:
    """The end of the file without the zeros at its end; only what is behind a position is looked at."""
    end = position
    while position < segment.size:
        chunk = segment.read(position, _WALK_CHUNK)
        if not chunk:
            break
        left = len(chunk.rstrip(b"\0"))
        if left:
            end = position + left
        position += len(chunk)
    return end


def end_of_damage(segment: Segment, position: int, first_offset: int) -> int:
    """Up to where bytes that are no batch may be what is left of some: to the next good one, or to the zeros that end the file, of
    which a few are kept: a batch may have ended with them, and readers see by them that there was one."""
    behind = BatchSearch(segment.read, segment.size).batch_behind(position, segment.offsets_from(first_offset))
    return behind.position if behind is not None else min(segment.size, _end_of_bytes(segment, position) + HEADER_SIZE)
