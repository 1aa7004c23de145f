"""The mute table (RP-20), exhaustively."""

from __future__ import annotations

import itertools
import socket

import pytest

from barnabas.net.channel import Channel
from barnabas.net.mute import IllegalMuteTransition, MuteEvent, MuteState, next_state

S, E = MuteState, MuteEvent

ALLOWED = {
    (S.MUTED, E.REQUEST_RECEIVED): S.MUTED_AND_RESPONSE_PENDING,
    (S.MUTED_AND_RESPONSE_PENDING, E.RESPONSE_SENT): S.MUTED,
    (S.MUTED_AND_RESPONSE_PENDING, E.THROTTLE_STARTED): S.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
    (S.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, E.RESPONSE_SENT): S.MUTED_AND_THROTTLED,
    (S.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, E.THROTTLE_ENDED): S.MUTED_AND_RESPONSE_PENDING,
    (S.MUTED_AND_THROTTLED, E.THROTTLE_ENDED): S.MUTED,
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(MuteState, MuteEvent)))
def test_every_pair_of_state_and_event_is_as_the_specification_says(state: MuteState, event: MuteEvent) -> None:
    """RP-20: allowed pairs lead where they should; all others name the state and the event."""
    if (state, event) in ALLOWED:
        assert next_state(state, event) is ALLOWED[state, event]
    else:
        with pytest.raises(IllegalMuteTransition, match=rf"{event.name} .* {state.name}$"):
            next_state(state, event)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(MuteState, MuteEvent)))
def test_a_channel_follows_the_table_and_keeps_its_state_on_error(state: MuteState, event: MuteEvent) -> None:
    """RP-20 on a channel."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel("c", ours)
        channel.mute_state = state
        if (state, event) in ALLOWED:
            channel.handle_mute_event(event)
            assert channel.mute_state is ALLOWED[state, event]
        else:
            with pytest.raises(IllegalMuteTransition):
                channel.handle_mute_event(event)
            assert channel.mute_state is state


def test_only_not_muted_is_false() -> None:
    """RP-20: the hot path asks for the truth of the state."""
    assert [state for state in MuteState if not state] == [MuteState.NOT_MUTED]
