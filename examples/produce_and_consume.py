"""Send records, wait for their outcomes, and read them back.

Run: python examples/produce_and_consume.py [localhost:9092]      without an address it starts a broker of its own
"""

from __future__ import annotations

import json
import sys
import uuid

from barnabas import Consumer, KafkaError, Producer
from barnabas.producer import RecordMetadata
from barnabas.testing import EmbeddedBroker

COUNT = 1000


def told(error: BaseException | None, metadata: RecordMetadata | None) -> None:
    if error is not None:
        print(f"not written: {error}")


def produce(servers: str, topic: str) -> None:
    settings = {"bootstrap.servers": servers, "compression.type": "zstd", "value.serializer": to_json}
    with Producer(settings) as producer:
        metadata = producer.send(topic, {"item": "book"}, key=b"customer-1", headers=[("source", b"shop")]).result(30)
        print(f"the first record has offset {metadata.offset}")
        for number in range(COUNT - 1):
            producer.send(topic, {"item": "pen", "number": number}, on_delivery=told)
        producer.flush()
        try:
            producer.send(topic, "x" * 2_000_000).result(30)
        except KafkaError as error:
            print(f"refused: {error.code.name}")


def consume(servers: str, topic: str) -> None:
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "value.deserializer": from_json}
    with Consumer(settings) as consumer:
        consumer.assign([(topic, 0)])
        items = 0
        for record in consumer:
            items += 1
            if record.key is not None:
                print(f"{record.offset}: {record.key!r} bought a {record.value['item']}")
            if items == COUNT:
                break
        print(f"{items} records read, {consumer.lag((topic, 0))} to go")


def to_json(value: object) -> bytes:
    return json.dumps(value).encode()


def from_json(topic: str, data: bytes | None) -> object:
    return None if data is None else json.loads(data)


def main(servers: str) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    produce(servers, topic)
    consume(servers, topic)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with EmbeddedBroker() as broker:
            main(broker.bootstrap_servers)
