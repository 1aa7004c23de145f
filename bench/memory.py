"""Memory that is at hand: what is measured is a broker, not how fast a hypervisor gives memory back.

Role: a virtual machine that returns free memory to its host pays for every page that it uses again: measured, a GiB takes 2.4 s instead of
0.45 s. Whoever writes a gigabyte into the page cache pays that, whichever broker it is; how much of it depends on how long ago
the memory was last in use. So memory for what a run will write is used once and freed right before it, for both sides alike.
Thread: the harness's. Lock: none.
"""

from __future__ import annotations

import mmap

import psutil

GIB = 1 << 30
_AT_ONCE = GIB
_SHARE = 0.5
"""Of what is available: a small machine must not end its own processes for want of memory."""


def make_ready(size: int) -> int:
    """Use and free so many bytes, as far as the machine has them; how many. The kernel gives out first what was freed last."""
    flags = getattr(mmap, "MAP_POPULATE", 0)
    if not flags:
        return 0  # not Linux: nothing is known of such a cost
    left = ready = min(size, int(psutil.virtual_memory().available * _SHARE))
    held = []
    try:
        while left > 0:
            held.append(mmap.mmap(-1, min(left, _AT_ONCE), flags | mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            left -= _AT_ONCE
    finally:
        for pages in held:
            pages.close()
    return ready
