"""Looking at log directories from outside: verify, dump and repair, without a broker (`barnabas log …`).

    targets.find(path) -> Target                         what a path is: a log directory, a partition, one file of a segment
    lock_owner.owner_of(directory) -> LockOwner          whether a broker uses the directory right now; takes no lock
    verify.verify_target(target, …) -> list[PartitionReport]     reads only
    dump.rows(target, selection) -> Iterator[Row]        reads only, one plain dict after the other
    repair.Repair(target, …).run() -> list[Action]       writes, under the directory's lock

Nothing here runs inside a broker and nothing of the broker imports it. Files are read with bounded memory: one batch at a time, indexes
beside the batches that they speak of. The formats are those of segment.py, index.py, producer_state.py and checkpoints.py.
"""
