"""A consumer of the draft consumes only as a member, and stops only when it has to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.client.draft_membership import CONSUMING, Happening, State, next_state


@given(st.lists(st.sampled_from(Happening)))
def test_it_consumes_from_a_join_until_it_is_refused_or_ends_whatever_else_happens(happenings: list[Happening]) -> None:
    state, consumes, started = State.DOWN, False, False
    for happening in happenings:
        before, state = state, next_state(state, happening)
        match happening:
            case Happening.STARTED:
                started = True
            case Happening.JOINED:
                consumes = started
            case Happening.ACCEPTED:
                consumes = consumes or before is State.STOPPED
            case Happening.REFUSED:
                consumes = False
            case Happening.ENDED:
                consumes = started = False
        assert (state in CONSUMING) == consumes
        assert (state is State.REDISCOVERING) == (
            consumes and (happening is Happening.LOST or before is State.REDISCOVERING) and state is not State.MEMBER
        )


def test_every_state_is_reached() -> None:
    path = [
        (Happening.STARTED, State.DISCOVERING),
        (Happening.JOINED, State.MEMBER),
        (Happening.LOST, State.REDISCOVERING),
        (Happening.ACCEPTED, State.MEMBER),
        (Happening.REFUSED, State.STOPPED),
        (Happening.ACCEPTED, State.MEMBER),
        (Happening.LOST, State.REDISCOVERING),
        (Happening.REFUSED, State.STOPPED),
        (Happening.JOINED, State.MEMBER),
        (Happening.ENDED, State.DOWN),
    ]
    state = State.DOWN
    for happening, expected in path:
        state = next_state(state, happening)
        assert state is expected
