"""The log: segments in Kafka's own file format, recovery, producer state and group commit (RP-41).

The public face, for the APIs and the server:

    LogManager(settings: LogManagerSettings, clock: Clock, files: FileSystem | None = None)
        startup(partitions: Mapping[tuple[str, int], PartitionSpec] | None = None)   PartitionSpec(topic_id, config: LogConfig)
        shutdown(timeout=30.0)
        get(topic, partition) -> PartitionLog | None
        create(topic, partition, topic_id: uuid.UUID, config: LogConfig | None = None) -> PartitionLog
        delete(topic, partition) -> None                 rename to <name>.<uuid>-delete now, remove in the background
        logs() -> list[PartitionLog]
        describe_dirs() -> list[LogDirDescription]
        flush_stats: FlushStats                          .count, .histogram (ns)
        flusher.interval_ms                              may be set while running (log.flush.interval.ms)

    PartitionLog                                         topic, partition, topic_id, config, log_dir (path)
        append(records: memoryview, leader_epoch: int = 0, origin: AppendOrigin = CLIENT) -> AppendResult; raises KafkaError
        read(offset, max_bytes, min_one_batch=True, isolation=READ_UNCOMMITTED) -> ReadResult; raises KafkaError
        log_start_offset, log_end_offset, high_watermark, last_stable_offset, durable_offset, size, segment_count
        offset_for_timestamp(timestamp, isolation=READ_UNCOMMITTED) -> TimestampOffset     -1, -2, -3, -4 or a time
        end_offset_for_epoch(epoch) -> EpochEndOffset    leader_epoch: the newest one in the log
        delete_records_before(offset) -> int             the new log start offset; -1 means the high watermark
        on_durable(offset, callback: Callable[[ErrorCode], None])   called once `durable_offset >= offset`, or on failure
        update_config(config: LogConfig)
        flush() -> None

A result's records are a `FileRegion` or `b""`. `on_durable` takes the offset *after* the last record (`last_offset + 1`); its callback
runs on the flusher's thread, or at once on the caller's when the bytes are on disk already.
"""
