"""The settings of the metrics page: rows of the broker's table, kept apart because that file is long.

Role: declaration only. Thread: any. Lock: none, the rows are immutable.
"""

from __future__ import annotations

from barnabas.config import ConfigKey, ConfigType, between

LISTENER_KEY = "barnabas.metrics.listener"
HOSTS_KEY = "barnabas.metrics.hosts"
MOST_KEY = "barnabas.metrics.max.partitions"

METRICS_PAGE = (
    ConfigKey(
        LISTENER_KEY,
        ConfigType.STRING,
        "127.0.0.1:9404",
        "Where /metrics is served: host:port; empty means not at all.",
    ),
    ConfigKey(
        HOSTS_KEY,
        ConfigType.LIST,
        (),
        "More host names by which the metrics page may be asked for; * for any. Numeric addresses, localhost, and the names of the machine "
        "and of its listeners may always be used. Without this setting only requests that come through a loopback address are checked, so "
        "that no web page can read the metrics through the browser of somebody on this machine (DNS rebinding).",
    ),
    ConfigKey(
        MOST_KEY,
        ConfigType.INT,
        50_000,
        "So many partitions, and so many topics, have lines of their own on the metrics page; the others count in the totals only. The "
        "metric barnabas_metrics_left_out says how many those are.",
        between(0, 2**31 - 1),
        dynamic=True,
        read_on_use=True,
    ),
)
