"""Tries an installed wheel: everything in it runs compiled, and a record goes through a broker and comes back.

Role: what `make wheel` and cibuildwheel run with the Python that the wheel was installed into. Needs nothing but the wheel.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


def main() -> int:
    import barnabas
    from barnabas import Consumer, Producer
    from barnabas.native import forms
    from barnabas.testing import EmbeddedBroker

    installed = Path(barnabas.__file__).parent
    if not installed.is_relative_to(Path(sysconfig.get_path("platlib")).resolve()):
        print(f"barnabas was imported from {installed}, not from the wheel")
        return 1
    plain = [part for part, compiled in forms().items() if not compiled]
    if plain:
        print(f"not compiled in this wheel: {', '.join(plain)}")
        return 1
    with EmbeddedBroker(topics={"greetings": 1}) as broker:
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.send("greetings", b"hello").result(30)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
        with Consumer(settings) as consumer:
            consumer.assign([("greetings", 0)])
            values = [record.value for record in consumer.poll(timeout=30.0)]
    if values != [b"hello"]:
        print(f"sent one record, read {len(values)}")
        return 1
    print(f"barnabas {barnabas.__version__} works: {', '.join(forms())} compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
