"""What clients did to a broker, written down as it happened, and a checker that finds what no broker may do.

    with BrokerProcess(OURS, {}) as broker:
        with Workload(broker.bootstrap, tmp_path / "history.jsonl") as load:   # 4 idempotent writers, 2 readers
            load.await_acked(1000)
            broker.kill()                                                      # the fault
            broker.start()
            load.await_resumed(5.0)                                            # every writer got something acked since
        report = load.check()                                                  # final read of everything, then the checker
    report.demand_clean()                                                      # an AssertionError that shows what was found

A fault test with other clients writes its own history with `History` (record.py, whose docstring has the format), reads everything at the
end with `Source(...).read_everything()` and hands the file to `check_file` (tests/faults/load.py does so). By hand:
`python -m tests.history FILE...`. Which anomalies there are, what they mean and which of them a broker may show is the table in
anomalies.py (the specification's faults.md, section 2).
"""

from tests.history.anomalies import TABLE, Report
from tests.history.checker import check_file, check_ops
from tests.history.reading import Source
from tests.history.record import History
from tests.history.values import Value, decode_value, encode_value
from tests.history.workload import Workload, WorkloadPlan

__all__ = [
    "TABLE",
    "History",
    "Report",
    "Source",
    "Value",
    "Workload",
    "WorkloadPlan",
    "check_file",
    "check_ops",
    "decode_value",
    "encode_value",
]
