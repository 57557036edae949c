"""Tests what comes first in a night: what failed lately, then what ran longest ago."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from assay.harness.nightly.matrix import AttemptQueue, LastCellResult, read_last_results, sort_by_urgency
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import needs_attention

from helpers.night_cells import cell, result

NAMES = ("a", "b", "c", "d")
PASTS = st.dictionaries(
    st.sampled_from(NAMES), st.builds(LastCellResult, st.booleans(), st.sampled_from(("1", "2", "3")), st.floats(0, 9))
)


def test_what_failed_then_what_never_ran_then_the_oldest() -> None:
    earlier = read_last_results(
        [
            [result("old", Outcome.PASS, started="1"), result("mended", Outcome.FAIL, started="1")],
            [result("new", Outcome.PASS, started="2"), result("mended", Outcome.PASS, started="2")],
            [result("red", Outcome.MISSED, started="3"), result("hung", Outcome.HUNG, started="2")],
        ]
    )
    cells = [cell(name=name) for name in ("new", "never", "mended", "old", "red", "hung")]
    assert [one.name for one in sort_by_urgency(cells, earlier)] == ["hung", "red", "never", "old", "new", "mended"]


def test_an_attempt_that_the_machine_ended_says_nothing_of_its_cell() -> None:
    for outcome in (Outcome.NO_DOCKER, Outcome.NO_DISK, Outcome.INTERRUPTED):
        found = read_last_results(
            [[result("a", Outcome.PASS, started="1", seconds=3.0)], [result("a", outcome, started="2")]]
        )
        assert found == {"a": LastCellResult(False, "1", 3.0)}


@given(PASTS, st.permutations(NAMES))
def test_every_cell_has_one_place_and_no_quiet_cell_is_before_a_troubled_one(
    earlier: dict[str, LastCellResult], names: list[str]
) -> None:
    found = sort_by_urgency([cell(name=name) for name in names], earlier)
    assert sorted(one.name for one in found) == sorted(NAMES)
    never = LastCellResult(False, "", 0.0)
    for one, other in pairwise(found):
        first, second = earlier.get(one.name, never), earlier.get(other.name, never)
        assert (not first.needs_attention, first.started) <= (not second.needs_attention, second.started)


TIMES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5).map(float))


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.frozensets(st.tuples(st.sampled_from((*NAMES, "gone")), st.integers(1, 6))),
    TIMES,
    st.lists(st.integers(0, 5).map(float), min_size=20, max_size=20),
)
def test_attempts_come_in_rounds_and_only_while_there_is_time_for_them(
    repeats: list[int], done: frozenset[tuple[str, int]], seconds: dict[str, float], lasted: list[float]
) -> None:
    cells = [cell(name=name, repeat=repeat) for name, repeat in zip(NAMES, repeats, strict=False)]
    numbers = range(1, max(repeats) + 1)
    todo = [(one, number) for number in numbers for one in cells if number <= one.repeat]
    todo = [(one, number) for one, number in todo if (one.name, number) not in done]
    queue, took, left = AttemptQueue(cells, done), dict(seconds), 9.0
    for last in lasted:
        assert len(queue) == len(todo)
        expected = next((one for one in todo if took.get(one[0].name, 0.0) <= left), None)
        assert queue.find_first(took, left) == queue.find_first(took, left) == expected
        if expected is None:
            break
        queue.remove_first()
        todo.remove(expected)
        took[expected[0].name] = last
        left -= last


def test_attempts_are_not_made_before_their_time() -> None:
    """A list of them took hours and gigabytes, and heard no signal meanwhile."""
    most = [cell(name=f"{number}", repeat=10**15) for number in range(1_000)]
    queue = AttemptQueue(most, {("0", 1)})
    assert len(queue) == 10**18 - 1
    assert queue.find_first({}, 1.0) == (most[1], 1)
    assert queue.find_first(dict.fromkeys(map(str, range(1_000)), 2.0), 1.0) is None


@given(st.lists(st.sampled_from(Outcome), min_size=1, max_size=4))
def test_a_cell_is_remembered_by_all_its_attempts(outcomes: list[Outcome]) -> None:
    found = read_last_results([[result("a", one, attempt=number) for number, one in enumerate(outcomes, 1)]])
    said = [one for one in outcomes if one not in (Outcome.INTERRUPTED, Outcome.NO_DOCKER, Outcome.NO_DISK)]
    assert {name: one.needs_attention for name, one in found.items()} == ({"a": needs_attention(said)} if said else {})
