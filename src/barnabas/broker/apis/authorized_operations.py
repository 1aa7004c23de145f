"""The bit fields "authorized operations" of Metadata, DescribeCluster and DescribeTopicPartitions (KIP-430).

Role: without an authorizer everybody may do everything, which is what a client that asks is told; one that does not ask
gets `NOT_ASKED`. Bit n stands for Kafka's AclOperation n.
Thread: any. Lock: none.
"""

from __future__ import annotations

NOT_ASKED = -(2**31)

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
CLUSTER_OPERATIONS = _bits(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)


def topic_operations(asked: bool) -> int:
    return TOPIC_OPERATIONS if asked else NOT_ASKED


def cluster_operations(asked: bool) -> int:
    return CLUSTER_OPERATIONS if asked else NOT_ASKED
