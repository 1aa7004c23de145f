"""DescribeLogDirs (key 35), versions 1-5.

The log directories, whether they work, and the size of each partition's log in them. Null topics: all partitions.
v3 top-level error; v4 total and usable bytes (KIP-827); v5 cordoned directories, which do not exist here (KIP-1066).
Thread: handler (asks the file system for its free space, never inline). Lock: none of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.log.results import LogDirDescription
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.broker.services import BrokerServices


def handle(request: Request, broker: BrokerServices) -> DescribeLogDirsResponse:
    body: DescribeLogDirsRequest = request.body
    wanted = None
    if body.topics is not None:
        wanted = {(topic.topic, partition) for topic in body.topics for partition in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_result(directory, wanted) for directory in broker.logs.describe_dirs()],
    )


def weigh(body: DescribeLogDirsRequest, broker: BrokerServices) -> int:
    """Every log is looked at, whatever was asked for."""
    return broker.catalog.snapshot.partition_count


def error_response(body: DescribeLogDirsRequest, version: int, error: KafkaError) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=error.code)


def _result(directory: LogDirDescription, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    if directory.offline:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for (topic, partition), size in directory.sizes.items():
        if wanted is None or (topic, partition) in wanted:
            entry = DescribeLogDirsPartition(partition_index=partition, partition_size=size)
            topics.setdefault(topic, []).append(entry)
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
