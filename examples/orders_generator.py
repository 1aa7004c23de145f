"""Orders of a shop, as JSON: few customers buy much, some orders come late, and some far too late.

Run: python examples/orders_generator.py localhost:9092 [orders per second]      until Ctrl-C
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime

from barnabas import Producer

TOPIC = "orders"
TICK_SECONDS = 0.05
PRODUCTS = [f"p-{number:02}" for number in range(1, 13)]
CUSTOMERS = [f"customer-{number}" for number in range(1, 5001)]
# The n-th customer buys 1/n as much as the first, as it is with many things that people count.
WEIGHTS = list(itertools.accumulate(1 / rank for rank in range(1, len(CUSTOMERS) + 1)))


def lateness() -> float:
    """Seconds between an order and its record: most come at once, some after seconds, a few when their window is long gone."""
    chance = random.random()
    if chance < 0.94:
        return random.uniform(0, 0.2)
    return random.uniform(1, 4) if chance < 0.99 else random.uniform(20, 120)


class OrderGenerator:
    """Sends orders at a steady rate. `run` belongs to one thread; the counts may be read from any."""

    def __init__(self, servers: str, rate: int) -> None:
        self.sent = 0
        self.written = 0
        self.late = 0
        self.pieces: Counter[str] = Counter()
        """Pieces sold of each product: what the other end must come to as well."""
        self.error: BaseException | None = None
        self._rate = rate
        self._settings = {
            "bootstrap.servers": servers,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 131_072,
        }

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set, then waits until everything is written; what went wrong is in `error`."""
        try:
            with Producer(self._settings) as producer:
                began = time.monotonic()
                while self.error is None and not stop.wait(TICK_SECONDS):
                    due = int((time.monotonic() - began) * self._rate) - self.sent
                    self._send(producer, min(due, self._rate))
        except Exception as error:
            self.error = error

    def _send(self, producer: Producer, count: int) -> None:
        customers = random.choices(CUSTOMERS, cum_weights=WEIGHTS, k=count)
        for customer, product in zip(customers, random.choices(PRODUCTS, k=count), strict=True):
            order = self._order(customer, product)
            producer.send(TOPIC, json.dumps(order).encode(), key=customer.encode(), on_delivery=self._told)

    def _order(self, customer: str, product: str) -> dict[str, object]:
        late = lateness()
        quantity = random.randint(1, 5)
        self.sent += 1
        self.late += late >= 1
        self.pieces[product] += quantity
        when = datetime.fromtimestamp(time.time() - late, UTC).isoformat(timespec="milliseconds")
        return {"id": self.sent, "customer": customer, "product": product, "quantity": quantity, "ordered_at": when}

    def _told(self, error: BaseException | None, metadata: object) -> None:
        if error is None:
            self.written += 1
        else:
            self.error = error


def main(servers: str, rate: int) -> None:
    generator, stop = OrderGenerator(servers, rate), threading.Event()
    worker = threading.Thread(target=generator.run, args=(stop,))
    worker.start()
    try:
        while worker.is_alive():
            worker.join(1)
            print(f"{generator.written} orders written, {generator.late} of them late", file=sys.stderr)
    except KeyboardInterrupt:
        stop.set()
        worker.join()
    if generator.error is not None:
        sys.exit(f"stopped: {generator.error}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 1000)
