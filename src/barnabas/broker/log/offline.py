"""Logs that cannot be read: their directory was offline when the broker started.

Role: stands in for a partition that the catalog knows and no usable directory has, so that every API answers KAFKA_STORAGE_ERROR for it and
nothing makes it anew, empty, in another directory. Touches no file.
Thread: the manager's at start. Lock: none.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.epochs import LeaderEpochs
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.log.producer_state import ProducerStates
from barnabas.broker.log.recovery import LoadedLog
from barnabas.broker.log.segment import Segment
from barnabas.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.log.log_dir import LogDir


def offline_log(key: tuple[str, int], topic_id: uuid.UUID, config: LogConfig, log_dir: LogDir) -> PartitionLog:
    """A log that refuses every call with KAFKA_STORAGE_ERROR."""
    name = f"{key[0]}-{key[1]}"
    directory = os.path.join(log_dir.path, name)
    segments = [Segment(log_dir.files, directory, 0)]
    loaded = LoadedLog(directory, segments, 0, 0, 0, ProducerStates(name), LeaderEpochs([]))
    refused = PartitionLog(key, topic_id, loaded, config, log_dir)
    refused.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
    return refused
