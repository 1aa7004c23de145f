"""The walk over a segment file that recovery makes, fed in pieces: plain and compiled find the same, and the search for the next batch
behind damage ends within its bounds.

Input: a byte for the size of the pieces, a byte for the offset from which checksums are compared, the bytes of the file.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.log.batch_search import BatchSearch, Offsets
from barnabas.records.kernel import scan as plain_scan
from tests.fuzz.target import Reader, compiled_kernel, must
from tests.fuzz.target_records import repaired_all
from tests.fuzz.targets import fetched

MAX_LENGTH = 4096
INTERVAL = 200
MOST_STEPS = 20_000

_kernel = compiled_kernel()


def run(data: bytes) -> None:
    reader = Reader(data)
    choice, check_from, content = reader.byte(), reader.byte(), reader.rest()
    if choice & 1:
        content = repaired_all(content)
    piece = (61, 64, 100, 1 << 20)[choice >> 1 & 3]
    found = _walk(plain_scan, content, check_from, piece)
    if _kernel is not None:
        other = _walk(_kernel.scan, content, check_from, piece)
        must(found == other, f"the plain walk finds {found}, the compiled one {other}")
    must(0 <= found[0] <= len(content), f"{found[0]} valid bytes of {len(content)}")


def _walk(module: Any, content: bytes, check_from: int, piece: int) -> tuple[Any, ...]:
    """All that a walk says, going on behind damage as recovery does."""
    scan = module.BatchScan(0, len(content), check_from, INTERVAL)
    search = BatchSearch(lambda position, length: content[position : position + length], len(content))
    taken: list[Any] = []
    for _ in range(MOST_STEPS):
        if not scan.wants_more:
            behind = search.batch_behind(scan.valid_size, Offsets(scan.next_offset, 2**31)) if scan.problem else None
            if behind is None:
                break
            must(behind.position > scan.valid_size, "the search goes backwards")
            taken.append((scan.problem, scan.valid_size, scan.last_batch))
            scan.stand_at(behind.position, behind.header.base_offset, plain_scan.FINE)
        at = scan.read_position
        scan.feed(content[at : at + piece])
        taken += [scan.take_offset_entries(), scan.take_time_entries(), scan.take_epochs(), scan.take_producer_rows()]
    else:
        must(False, "the walk never ends")
    end = (scan.valid_size, scan.next_offset, scan.problem, scan.max_time, scan.last_time_entry, scan.bytes_since_index)
    return (*end, [each for each in taken if each])


def seeds() -> dict[str, bytes]:
    found = {name: bytes([7, 0]) + data[2:] for name, data in fetched.seeds().items()}
    several = found["several"][2:]
    found["in-pieces"] = bytes([1, 0]) + several
    found["headers-only"] = bytes([3, 200]) + several
    found["damaged"] = bytes([6, 0]) + several[:70] + b"\xff" + several[71:]
    found["zeros-behind"] = bytes([7, 0]) + several + bytes(200)
    return found
