"""A consumer of the draft consumes only as a member, and stops only when it has to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.client.draft_membership import (
    CONSUMING,
    DraftMemberEvent,
    DraftMemberState,
    find_next_state,
)


@given(st.lists(st.sampled_from(DraftMemberEvent)))
def test_it_consumes_from_a_join_until_it_is_refused_or_ends_whatever_else_happens(
    happenings: list[DraftMemberEvent],
) -> None:
    state, consumes, started = DraftMemberState.DOWN, False, False
    for event in happenings:
        before, state = state, find_next_state(state, event)
        match event:
            case DraftMemberEvent.STARTED:
                started = True
            case DraftMemberEvent.JOINED:
                consumes = started
            case DraftMemberEvent.ACCEPTED:
                consumes = consumes or before is DraftMemberState.STOPPED
            case DraftMemberEvent.REFUSED:
                consumes = False
            case DraftMemberEvent.ENDED:
                consumes = started = False
        assert (state in CONSUMING) == consumes
        assert (state is DraftMemberState.REDISCOVERING) == (
            consumes
            and (event is DraftMemberEvent.LOST or before is DraftMemberState.REDISCOVERING)
            and state is not DraftMemberState.MEMBER
        )


def test_every_state_is_reached() -> None:
    path = [
        (DraftMemberEvent.STARTED, DraftMemberState.DISCOVERING),
        (DraftMemberEvent.JOINED, DraftMemberState.MEMBER),
        (DraftMemberEvent.LOST, DraftMemberState.REDISCOVERING),
        (DraftMemberEvent.ACCEPTED, DraftMemberState.MEMBER),
        (DraftMemberEvent.REFUSED, DraftMemberState.STOPPED),
        (DraftMemberEvent.ACCEPTED, DraftMemberState.MEMBER),
        (DraftMemberEvent.LOST, DraftMemberState.REDISCOVERING),
        (DraftMemberEvent.REFUSED, DraftMemberState.STOPPED),
        (DraftMemberEvent.JOINED, DraftMemberState.MEMBER),
        (DraftMemberEvent.ENDED, DraftMemberState.DOWN),
    ]
    state = DraftMemberState.DOWN
    for event, expected in path:
        state = find_next_state(state, event)
        assert state is expected
