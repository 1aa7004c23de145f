#!/usr/bin/env bash
# Runs tests on the PySpark that Spark's own Kafka connector fits (`make spark-peer` has fetched it), with everything else as it is.
# Usage: tools/test_on_peer_spark.sh PYTHON PYTEST_ARGUMENTS...
set -euo pipefail
python=$1
shift
peer=$("$python" -c 'from bench.peers.spark_kafka import find_spark_peer; print(find_spark_peer().python)')
unset SPARK_HOME VIRTUAL_ENV
export PYSPARK_PYTHON=$peer PYSPARK_DRIVER_PYTHON=$peer
"$peer" -c 'import pyspark; print("PySpark", pyspark.__version__)'
exec "$peer" -m pytest "$@"
