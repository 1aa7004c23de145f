"""`python -m bench.peers [--spark] [--optional]`: fetch Apache Kafka's jars, or Spark's own connector with the PySpark that it fits. With
`--optional` a peer that cannot be had is one line, not an error."""

from __future__ import annotations

import sys

from bench.peers.jars import PeerUnavailable, ensure_jars
from bench.peers.spark_kafka import SPARK_VERSION, ensure_spark_peer


def fetch_kafka() -> str:
    jars = ensure_jars()
    return f"Apache Kafka: {len(list(jars.glob('*.jar')))} jars in {jars}"


def fetch_spark() -> str:
    peer = ensure_spark_peer(lambda step: print(f"fetching {step}", flush=True))
    return f"PySpark {SPARK_VERSION} and its Kafka connector: {peer.python.parent.parent}"


def main(arguments: list[str]) -> int:
    name, fetch = ("Spark's Kafka connector", fetch_spark) if "--spark" in arguments else ("Apache Kafka", fetch_kafka)
    try:
        print(fetch())
    except PeerUnavailable as missing:
        print(f"{name} is not here: {missing}", file=sys.stderr)
        return 0 if "--optional" in arguments else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
