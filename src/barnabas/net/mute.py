"""Mute states of a channel as a table (RP-20).

Role: one request at a time per connection (RP-19) and client quotas (RP-39) both stop reading from a channel; this table says when
it may be read again. Thread: the selector's owner; no lock, states are values.

    NOT_MUTED --mute--> MUTED --REQUEST_RECEIVED--> MUTED_AND_RESPONSE_PENDING --RESPONSE_SENT--> MUTED --unmute--> NOT_MUTED

`mute` and `unmute` are the selector's calls, not events: muting a muted channel changes nothing, unmuting takes effect in MUTED only.
The members are also module constants because looking an enum member up on its class is slow in CPython 3.11.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.errors import BarnabasError

__all__ = ["IllegalMuteTransition", "MuteEvent", "MuteState", "next_state"]


class MuteState(IntEnum):
    """NOT_MUTED is 0, so that "is muted" is the state's truth value."""

    NOT_MUTED = 0
    MUTED = 1
    MUTED_AND_RESPONSE_PENDING = 2
    MUTED_AND_THROTTLED = 3
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = 4


class MuteEvent(IntEnum):
    """What happens to the request of a channel."""

    REQUEST_RECEIVED = 0
    RESPONSE_SENT = 1
    THROTTLE_STARTED = 2
    THROTTLE_ENDED = 3


class IllegalMuteTransition(BarnabasError):
    """The event cannot happen in this state: a bug of the channel's owner."""

    def __init__(self, state: MuteState, event: MuteEvent) -> None:
        super().__init__(f"mute event {event.name} is impossible in state {state.name}")
        self.state = state
        self.event = event


NOT_MUTED: Final = MuteState.NOT_MUTED
MUTED: Final = MuteState.MUTED
MUTED_AND_RESPONSE_PENDING: Final = MuteState.MUTED_AND_RESPONSE_PENDING
MUTED_AND_THROTTLED: Final = MuteState.MUTED_AND_THROTTLED
MUTED_AND_THROTTLED_AND_RESPONSE_PENDING: Final = MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING

REQUEST_RECEIVED: Final = MuteEvent.REQUEST_RECEIVED
RESPONSE_SENT: Final = MuteEvent.RESPONSE_SENT
THROTTLE_STARTED: Final = MuteEvent.THROTTLE_STARTED
THROTTLE_ENDED: Final = MuteEvent.THROTTLE_ENDED

# (state, event) -> state; a pair that is not here is impossible.
TRANSITIONS: Final[dict[tuple[MuteState, MuteEvent], MuteState]] = {
    (MUTED, REQUEST_RECEIVED): MUTED_AND_RESPONSE_PENDING,
    (MUTED_AND_RESPONSE_PENDING, RESPONSE_SENT): MUTED,
    (MUTED_AND_RESPONSE_PENDING, THROTTLE_STARTED): MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
    (MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, RESPONSE_SENT): MUTED_AND_THROTTLED,
    (MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, THROTTLE_ENDED): MUTED_AND_RESPONSE_PENDING,
    (MUTED_AND_THROTTLED, THROTTLE_ENDED): MUTED,
}


def next_state(state: MuteState, event: MuteEvent) -> MuteState:
    """The state after `event`, or IllegalMuteTransition naming both."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalMuteTransition(state, event) from None
