"""Interceptors: user code that sees every record before it is sent, and its outcome (KIP-42).

Role: a chain in the order of `interceptor.classes`. What one of them raises is logged, and the others go on.
Thread: `on_send` and `on_send_error` on the thread that sends, `on_acknowledgement` on the I/O thread. Lock: none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.records.kernel.send_path import OnDelivery, ProducerRecord, RecordMetadata

__all__ = ["InterceptorChain", "ProducerInterceptor", "ProducerRecord"]

log = logging.getLogger(__name__)


class ProducerInterceptor:
    """Override what you need."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send instead."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """The record was written, or failed."""

    def close(self) -> None:
        """The producer was closed."""


class InterceptorChain:
    """See the file header."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                log.exception("%r.on_send failed for a record for %s", interceptor, record.topic)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        for interceptor in self._interceptors:
            self._call(interceptor, lambda who=interceptor: who.on_acknowledgement(metadata, error))  # type: ignore[misc]

    def around(self, on_delivery: OnDelivery | None) -> OnDelivery:
        """The user's callback, after the interceptors."""

        def told(error: BaseException | None, metadata: RecordMetadata | None) -> None:
            self.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(error, metadata)

        return told

    def close(self) -> None:
        for interceptor in self._interceptors:
            self._call(interceptor, interceptor.close)

    @staticmethod
    def _call(interceptor: ProducerInterceptor, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            log.exception("%r failed", interceptor)
