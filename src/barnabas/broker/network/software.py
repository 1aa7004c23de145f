"""Which client software has how many connections (KIP-511).

Role: counts connections under the name and version that their ApiVersions gave; one per processor.
Thread: the processor's; `counts` may be copied by any. Lock: none.
"""

from __future__ import annotations

from barnabas.broker.network.request import ConnectionContext
from barnabas.net.channel import Channel

MOST_NAMES = 100
"""Distinct ones per processor. Peers choose their names, so their number must have a bound."""
OTHER = ("other", "other")


class SoftwareCounts:
    """Connections by (name, version)."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def note(self, context: ConnectionContext, channel: Channel) -> None:
        """The connection has just said, perhaps again, which software it is."""
        key = (context.client_software_name, context.client_software_version)
        if key != context.software_key:
            self.forget(context)
            channel.client_software_name, channel.client_software_version = key
            if key not in self.counts and len(self.counts) >= MOST_NAMES:
                key = OTHER
            context.software_key = key
            self.counts[key] = self.counts.get(key, 0) + 1

    def forget(self, context: ConnectionContext) -> None:
        """The connection is gone, or has another name from now on."""
        key = context.software_key
        if key is not None:
            context.software_key = None
            left = self.counts[key] - 1
            if left:
                self.counts[key] = left
            else:
                del self.counts[key]
