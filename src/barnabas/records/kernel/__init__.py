"""The record kernel: everything that looks at each record or each batch of many, in Cython's pure-Python mode.

Role: plain Python modules that are also compiled when the package is built with Cython and a C compiler (`native.py` lists them and
chooses the form). They take `bytes`, check every length before they use it, and raise `CorruptBatch` for what cannot be.
Thread: any; what keeps state belongs to one thread. Loops over many batches or records let go of the GIL when compiled.
Lock: none, but send_path.py and turns.py, which say so.

    wire.pxd, wire.py   integers, varints, copying: the compiled and the plain form of the same functions (tests compare them)
    checksum.py         CRC-32C: the processor's instruction (crc32c.h), or google_crc32c in plain Python
    scan.py             the batches of a segment file, for recovery and rebuilding of indexes
    record_layout.py    the records of one decompressed batch: check all, list where each is, copy some
    compaction.py       a table of keys with their newest offsets; which records of a batch are newest; siphash.pxd is its hash
    fetched.py          the records of fetched batches as objects
    runs.py             many fetched batches at once, as the columns of Arrow
    builder.py          building one batch, from single records or from rows of Arrow columns (builder_memory: Arrow's memory)
    send_path.py        what a producer does for every record: topic, partition, open batch, future
    turns.py            how a producer's I/O thread gets the GIL soon
    shadow.py           what `cython` is where Cython is not installed
"""
