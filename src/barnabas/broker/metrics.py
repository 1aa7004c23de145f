"""The broker's metrics: one row each (RP-31, RP-32). Who feeds a row registers a collector for it; this file only declares.

Role: names as Kafka's MBeans appear through jmx_exporter, so that existing boards work; real histograms beside the summaries.
Thread: any. Lock: none, the rows are immutable.
"""

from __future__ import annotations

from barnabas.metrics import MetricRow

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

_REQUEST = ("request",)


def _time(part: str, what: str) -> MetricRow:
    return MetricRow(f"kafka_network_requestmetrics_{part}timems", "summary", f"Milliseconds {what}, by API.", _REQUEST)


def _seconds(row: MetricRow) -> MetricRow:
    return MetricRow(
        row.name.removesuffix("timems") + "time_seconds",
        "histogram",
        row.help.replace("Milliseconds", "Seconds"),
        _REQUEST,
    )


# The parts of a request's time; TotalTimeMs is their sum for every request.
REQUEST_QUEUE_TIME = _time("requestqueue", "a request waited for a handler")
LOCAL_TIME = _time("local", "the handler worked on it")
REMOTE_TIME = _time("remote", "it waited in the purgatory: for data, for a flush")
THROTTLE_TIME = _time("throttle", "its connection was muted because of a quota")
RESPONSE_QUEUE_TIME = _time("responsequeue", "the response waited for its processor")
RESPONSE_SEND_TIME = _time("responsesend", "the response took to leave")
TOTAL_TIME = _time("total", "in all")
MESSAGE_CONVERSIONS_TIME = _time("messageconversions", "spent on converting record batches")

TIME_PARTS = (REQUEST_QUEUE_TIME, LOCAL_TIME, REMOTE_TIME, THROTTLE_TIME, RESPONSE_QUEUE_TIME, RESPONSE_SEND_TIME)
TIMES = (*TIME_PARTS, TOTAL_TIME)
SECONDS = tuple(_seconds(row) for row in TIMES)

REQUEST_BYTES = MetricRow(
    "kafka_network_requestmetrics_requestbytes", "summary", "Bytes of requests, by API.", _REQUEST
)
TEMPORARY_MEMORY = MetricRow(
    "kafka_network_requestmetrics_temporarymemorybytes",
    "summary",
    "Bytes of memory used for conversion and decompression, by API.",
    _REQUEST,
)
REQUESTS = MetricRow(
    "kafka_network_requestmetrics_requests_total", "counter", "Requests, by API and version.", ("request", "version")
)
ERRORS = MetricRow(
    "kafka_network_requestmetrics_errors_total", "counter", "Errors answered, by API and error.", ("request", "error")
)

REQUEST_QUEUE_SIZE = MetricRow(
    "kafka_network_requestchannel_requestqueuesize", "gauge", "Requests that wait for a handler.", ("plane",)
)
RESPONSE_QUEUE_SIZE = MetricRow(
    "kafka_network_requestchannel_responsequeuesize",
    "gauge",
    "Responses that wait for their processor.",
    ("processor",),
)
UNSENT_BYTES = MetricRow(
    "barnabas_network_unsent_response_bytes",
    "gauge",
    "Bytes of responses that clients have begun to take and not taken completely.",
    ("processor",),
)
OLDEST_UNSENT = MetricRow(
    "barnabas_network_oldest_unsent_response_ms",
    "gauge",
    "For how long the oldest of these responses has been under way.",
    ("processor",),
)
RESPONSE_QUEUE_TOTAL = MetricRow(
    "kafka_network_requestchannel_responsequeuesize_all", "gauge", "Responses that wait for any processor.", ("plane",)
)
NETWORK_IDLE = MetricRow(
    "kafka_network_socketserver_networkprocessoravgidlepercent", "gauge", "Share of time that processors wait (0 to 1)."
)
PROCESSOR_IDLE = MetricRow(
    "kafka_network_processor_idlepercent",
    "gauge",
    "Share of time that a processor waits (0 to 1).",
    ("networkProcessor",),
)
HANDLER_IDLE = MetricRow(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "gauge",
    "Share of time that handlers wait (0 to 1).",
    ("plane",),
)
MEMORY_POOL_AVAILABLE = MetricRow(
    "kafka_network_socketserver_memorypoolavailable", "gauge", "Free bytes of queued.max.request.bytes."
)
MEMORY_POOL_USED = MetricRow(
    "kafka_network_socketserver_memorypoolused", "gauge", "Bytes of requests read but not yet handled."
)
ACCEPTOR_BLOCKED = MetricRow(
    "kafka_network_acceptor_acceptorblocked_percent",
    "gauge",
    "Share of time that the acceptor waits for a processor or a quota.",
    ("listener",),
)
CONNECTION_COUNT = MetricRow(
    "kafka_server_socketservermetrics_connection_count", "gauge", "Open connections.", ("listener", "networkProcessor")
)
CONNECTIONS_CREATED = MetricRow(
    "kafka_server_socketservermetrics_connection_creation_total",
    "counter",
    "Connections accepted.",
    ("listener", "networkProcessor"),
)
CONNECTIONS_CLOSED = MetricRow(
    "kafka_server_socketservermetrics_connection_close_total",
    "counter",
    "Connections closed.",
    ("listener", "networkProcessor"),
)
CONNECTIONS_BY_SOFTWARE = MetricRow(
    "kafka_server_socketservermetrics_connections",
    "gauge",
    "Open connections, by client software (KIP-511).",
    ("listener", "clientSoftwareName", "clientSoftwareVersion"),
)
EXPIRED_KILLED = MetricRow(
    "kafka_server_socketservermetrics_expired_connections_killed_count",
    "counter",
    "Connections closed because their authentication had expired.",
    ("listener", "networkProcessor"),
)

_TOPIC = ("topic",)


def _topic(name: str, what: str) -> MetricRow:
    return MetricRow(
        f"kafka_server_brokertopicmetrics_{name}_total", "counter", f"{what}, in total (no label) and by topic.", _TOPIC
    )


MESSAGES_IN = _topic("messagesin", "Records written")
BYTES_IN = _topic("bytesin", "Bytes written by clients")
BYTES_OUT = _topic("bytesout", "Bytes read by clients")
PRODUCE_REQUESTS = _topic("totalproducerequests", "Partitions named by Produce requests")
FETCH_REQUESTS = _topic("totalfetchrequests", "Partitions named by Fetch requests")
FAILED_PRODUCE = _topic("failedproducerequests", "Partitions for which Produce failed")
FAILED_FETCH = _topic("failedfetchrequests", "Partitions for which Fetch failed")

PURGATORY_SIZE = MetricRow(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "gauge",
    "Requests that wait in a purgatory.",
    ("delayedOperation",),
)
PARTITIONS = MetricRow("kafka_server_replicamanager_partitioncount", "gauge", "Partitions of this broker.")
LEADERS = MetricRow(
    "kafka_server_replicamanager_leadercount", "gauge", "Partitions that this broker leads: all of them."
)
UNDER_REPLICATED = MetricRow("kafka_server_replicamanager_underreplicatedpartitions", "gauge", "Always 0 on one node.")
ISR_SHRINKS = MetricRow("kafka_server_replicamanager_isrshrinks_total", "counter", "Always 0 on one node.")
QUOTA_THROTTLE = MetricRow(
    "kafka_server_quota_throttle_time",
    "gauge",
    "Milliseconds for which a client was throttled last.",
    ("resource", "user", "clientId"),
)
BROKER_STATE = MetricRow(
    "kafka_server_kafkaserver_brokerstate", "gauge", "1 starting, 2 recovering, 3 running, 6 stopping."
)
ACTIVE_CONTROLLERS = MetricRow(
    "kafka_controller_kafkacontroller_activecontrollercount", "gauge", "Always 1: this node."
)
BROKERS = MetricRow("kafka_brokers", "gauge", "Brokers of the cluster: 1.")

_PARTITION = ("topic", "partition")
LOG_SIZE = MetricRow("kafka_log_log_size", "gauge", "Bytes of a partition.", _PARTITION)
LOG_START_OFFSET = MetricRow("kafka_log_log_logstartoffset", "gauge", "First offset of a partition.", _PARTITION)
LOG_END_OFFSET = MetricRow("kafka_log_log_logendoffset", "gauge", "Next offset of a partition.", _PARTITION)
LOG_SEGMENTS = MetricRow("kafka_log_log_numlogsegments", "gauge", "Segments of a partition.", _PARTITION)
CURRENT_OFFSET = MetricRow("kafka_topic_partition_current_offset", "gauge", "Next offset of a partition.", _PARTITION)
OLDEST_OFFSET = MetricRow("kafka_topic_partition_oldest_offset", "gauge", "First offset of a partition.", _PARTITION)
LOG_FLUSH = MetricRow(
    "kafka_log_logflushstats_logflushrateandtimems", "summary", "Milliseconds that a flush to disk took."
)
OFFLINE_LOG_DIRECTORIES = MetricRow(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "gauge",
    "Log directories that failed or were away at the start; above 0, partitions are refused until the next start.",
)
_LOG_DIRECTORY = ("logDirectory",)
UNCLEANABLE_PARTITIONS = MetricRow(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "gauge",
    "Compacted partitions that could not be compacted and are left alone until the next start.",
    _LOG_DIRECTORY,
)
UNCLEANABLE_BYTES = MetricRow(
    "kafka_log_logcleanermanager_uncleanable_bytes", "gauge", "Their bytes that should be compacted.", _LOG_DIRECTORY
)
MAX_DIRTY_PERCENT = MetricRow(
    "kafka_log_logcleanermanager_max_dirty_percent",
    "gauge",
    "The dirty share of the dirtiest compacted log (0 to 100).",
)
CLEANER_LAST_RUN = MetricRow(
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "gauge",
    "Milliseconds since the cleaner last looked for something to compact.",
)
CLEANER_BUFFER = MetricRow(
    "kafka_log_logcleaner_max_buffer_utilization_percent",
    "gauge",
    "How full the memory for keys was in the last compaction (0 to 100).",
)
CLEANER_RECOPY = MetricRow(
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "gauge",
    "Bytes written per bytes read in the last compaction (0 to 100).",
)
CLEANER_TIME = MetricRow("kafka_log_logcleaner_max_clean_time_secs", "gauge", "Seconds that the last compaction took.")
CLEANER_DELAY = MetricRow(
    "kafka_log_logcleaner_max_compaction_delay_secs",
    "gauge",
    "Seconds by which the most urgent log is beyond its max.compaction.lag.ms.",
)
CLEANER_DEAD_THREADS = MetricRow("kafka_log_logcleaner_deadthreadcount", "gauge", "Cleaner threads that have ended.")
CLEANINGS = MetricRow("barnabas_log_cleanings_total", "counter", "Compactions done.")
LEFT_OUT = MetricRow(
    "barnabas_metrics_left_out",
    "gauge",
    "Topics, partitions (above barnabas.metrics.max.partitions) and throttled clients that have no lines of their own on this page.",
    ("what",),
)
PROCESS_MEMORY = MetricRow("process_resident_memory_bytes", "gauge", "Resident memory of the broker.")
PROCESS_CPU = MetricRow("process_cpu_seconds_total", "counter", "User and system CPU time of the broker.")
PROCESS_FDS = MetricRow("process_open_fds", "gauge", "Open file descriptors of the broker.")

ROWS = tuple(value for value in list(globals().values()) if isinstance(value, MetricRow)) + SECONDS
