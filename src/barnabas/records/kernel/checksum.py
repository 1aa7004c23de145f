"""CRC-32C of a part of some bytes.

Role: the checksum of batches without a copy of them. Compiled, it uses what the processor has for it (crc32c.h); plain Python calls
google_crc32c.
Thread: any; pure functions. Lock: none.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

if cython.compiled:
    from cython.cimports.barnabas.records.kernel.crc32c import crc32c_extend, prepare

    prepare(2)
else:
    import google_crc32c


def crc32c(data: bytes, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> int:
    """The checksum of `data[start:end]`; ValueError when that is not a part of the data."""
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"{start} to {end} is not a part of {len(data)} bytes")
    return extend(0, data, start, end)


TABLES, INSTRUCTION, FOLDING = range(3)
"""The ways to compute it when compiled, slowest first; a processor may lack the later ones."""


def use_at_most(best: int) -> None:
    """Compiled: do without what is better than this way, as processors that lack it must. For tests."""
    if cython.compiled:
        prepare(best)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def extend(
    crc: cython.uint, data: cython.p_const_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.uint:
    """The checksum of what `crc` is the checksum of, followed by `data[start:end]`. For the other modules of the kernel."""
    if cython.compiled:
        return crc32c_extend(crc, data + start, end - start)
    return google_crc32c.extend(crc, bytes(data[start:end]))
