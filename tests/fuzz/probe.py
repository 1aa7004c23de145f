"""The bystander: an ordinary client beside an attack, that produces a record and asks for versions, again and again.

Thread: one of its own until `stop`. Lock: none; the results are read when it has ended.
"""

from __future__ import annotations

import struct
import threading
import time

from tests import wire
from tests.records.batches import batch

TOPIC = "probe"
CLIENT = "probe"
PAUSE_SECONDS = 0.005


class Probe(threading.Thread):
    """Each answer must come within `deadline` seconds."""

    def __init__(self, port: int, deadline: float) -> None:
        super().__init__(name="fuzz-probe")
        self._port = port
        self._deadline = deadline
        self._ended = threading.Event()
        self.milliseconds: list[float] = []
        self.problem = ""

    def run(self) -> None:
        produce = wire.produce(TOPIC, bytes(batch()), acks=1)
        try:
            with wire.connect(self._port, timeout=self._deadline) as sock:
                while not self._ended.wait(PAUSE_SECONDS) and not self.problem:
                    began = time.perf_counter()
                    error = wire.produce_result(wire.ask(sock, produce), TOPIC)[0]
                    if error or not wire.ask(sock, wire.api_versions()):
                        self.problem = f"a bystander's record was answered with error {error}"
                    self.milliseconds.append((time.perf_counter() - began) * 500)
        except struct.error:
            self.problem = "a bystander lost its connection"
        except OSError as error:
            self.problem = f"a bystander got no answer within {self._deadline} s: {error!r}"

    def stop(self) -> str:
        """What was wrong, or nothing."""
        self._ended.set()
        self.join(self._deadline + 10)
        return self.problem or ("" if not self.is_alive() else "a bystander waits for ever")

    @property
    def figures(self) -> str:
        times = sorted(self.milliseconds) or [float("nan")]
        return (
            f"p50 {times[len(times) // 2]:.1f} ms, p99 {times[len(times) * 99 // 100]:.1f} ms, max {times[-1]:.0f} ms"
        )
