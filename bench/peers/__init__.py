"""Apache Kafka as the peer: its jars, its broker and its command-line tools.

`jars` fetches the jars once with Maven, `tools` runs Kafka's own command-line programs against any broker. The broker itself
is started by `bench.brokers`, beside ours, so that both sides are started, watched and stopped by the same code.
"""
