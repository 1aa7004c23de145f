"""DescribeLogDirs (key 35), versions 1-5, flexible from version 2.

v3 top-level error; v4 volume sizes (KIP-827); v5 cordoned directories (KIP-1066).
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, field, message, struct


@struct
class DescribableLogDirTopic(Message):
    topic: str = field(STRING, "0+")
    partitions: list[int] = array(INT32, "0+")


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")


@struct
class DescribeLogDirsPartition(Message):
    partition_index: int = field(INT32, "0+")
    partition_size: int = field(INT64, "0+")
    offset_lag: int = field(INT64, "0+")
    is_future_key: bool = field(BOOL, "0+")


@struct
class DescribeLogDirsTopic(Message):
    name: str = field(STRING, "0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


@struct
class DescribeLogDirsResult(Message):
    error_code: int = field(INT16, "0+")
    log_dir: str = field(STRING, "0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(BOOL, "5+", ignorable=True)


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")
