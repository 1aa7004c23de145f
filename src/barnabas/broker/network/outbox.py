"""The outbox: responses of requests that a processor has run inline, sent together.

Role:    a send that wakes a sleeping client costs more than the request itself. So responses leave after the last request of a turn
         or when the first has waited `MAX_DEFER_NS` (measured: 17 000 requests/s with a send after each request, 27 000 with sends
         at the end of the turn); and where the next request of the same client is already here, the kernel is told that more follows,
         and two responses wake the client once (ADR 11). All are sent before anything else is done about them: a client that was woken
         by the first then finds the next one there, instead of falling asleep again for a few microseconds of ours.
Thread:  whoever runs the processor's turns. Lock: none of its own; they hold `Processor.loop`.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.network.request import Response, SendResponse
from barnabas.net.channel import READY, Channel
from barnabas.net.selector import Selector

MAX_DEFER_NS = 500_000


class Outbox:
    """See the file header. `process` is what the processor does with a response, `finish` what is left to do for all that were sent."""

    __slots__ = ("_finish", "_held", "_process", "_responses", "_selector")

    def __init__(self, selector: Selector, process: Callable[[Response], None], finish: Callable[[], None]) -> None:
        self._selector = selector
        self._process = process
        self._finish = finish
        self._responses: list[Response] = []
        self._held: list[Channel] = []  # the kernel holds their last response: the next one must follow, or a push

    def add(self, response: Response, complete_ns: int) -> None:
        self._responses.append(response)
        if complete_ns - self._responses[0].request.complete_ns > MAX_DEFER_NS:
            self.empty()

    def empty(self) -> None:
        """At the end of a turn at the latest; costs nothing when there is nothing to do."""
        if not self._responses and not self._held:
            return
        responses, self._responses = self._responses, []
        followed: list[Channel] = []
        for response in responses:
            channel = response.request.connection.channel
            if channel is not None and type(response) is SendResponse:
                if channel in self._held:
                    self._held.remove(channel)
                elif self._selector.has_next(channel):
                    response.send.more = True
                    followed.append(channel)
            self._process(response)
        self.push()
        self._held = followed
        self._finish()

    def push(self) -> None:
        """What the kernel holds waits no longer: its successor is not answered at once, or this thread is away for a while."""
        for channel in self._held:
            if channel.state is READY:
                channel.transport.push()
        self._held.clear()
