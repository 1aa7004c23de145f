"""Look after a cluster: topics, partitions, settings, records.

Run: python examples/admin.py [localhost:9092]      without an address it starts a broker of its own
"""

from __future__ import annotations

import sys
import uuid

from barnabas import Admin, ConfigResource, KafkaError, NewTopic, Producer
from barnabas.testing import EmbeddedBroker


def topics(admin: Admin, name: str) -> None:
    admin.create_topics([NewTopic(name, partitions=2, configs={"retention.ms": "3600000"})])
    admin.create_partitions({name: 3})
    description = admin.describe_topics([name])[name]
    print(f"{name} has {len(description.partitions)} partitions")
    try:
        admin.create_topics([NewTopic(name)])
    except KafkaError as error:
        print(f"refused: {error.code.name}")


def settings(admin: Admin, name: str) -> None:
    resource = ConfigResource.topic(name)
    admin.alter_configs(resource, {"retention.ms": "60000"})
    entry = admin.describe_configs([resource])[resource]["retention.ms"]
    print(f"retention.ms is {entry.value}, default: {entry.is_default}")


def records(admin: Admin, servers: str, name: str) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number, partition=0)
    begins = admin.delete_records({(name, 0): 4})
    print(f"after the deletion the partition begins at {begins[name, 0]}")


def main(servers: str) -> None:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    with Admin({"bootstrap.servers": servers}) as admin:
        cluster = admin.describe_cluster()
        print(f"cluster {cluster.cluster_id} has {len(cluster.nodes)} broker(s)")
        topics(admin, name)
        settings(admin, name)
        records(admin, servers, name)
        admin.delete_topics([name])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with EmbeddedBroker() as broker:
            main(broker.bootstrap_servers)
