"""The laws of generators, shown on random compositions and on each combinator."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.core.generator import (
    EXHAUSTED,
    Answer,
    Context,
    Exhausted,
    Generator,
    Invoke,
    OperationEvent,
    Pending,
    as_generator,
    by_key,
    each_process,
    in_phase,
    limit,
    mix,
    on_event,
    once,
    phases,
    rate,
    repeat,
    reserve,
    sequence,
    simulate,
    split_phases,
    stagger,
    time_limit,
    transform,
    unfold,
    until,
    until_ok,
)
from assay.harness.core.operation import Operation, Outcome

from helpers.examples import some_of

MS = 1_000_000
S = 1_000_000_000


def numbers(f: str = "n", start: int = 0) -> Generator:
    """0, 1, 2, ... for ever."""
    return unfold(lambda n, context: (Operation(f, argument=n), n + 1), start)


def some(f: str, count: int) -> Generator:
    return limit(count, numbers(f))


def invoked(events: list[OperationEvent]) -> list[OperationEvent]:
    return [event for event in events if event.completed is None]


def arguments(events: list[OperationEvent]) -> list[Any]:
    return [event.operation.argument for event in invoked(events)]


def verbs(events: list[OperationEvent]) -> list[str]:
    return [event.operation.f for event in invoked(events)]


def slow(operation: Operation, process: int) -> tuple[int, Outcome]:
    """Durations and outcomes that differ, by a fixed rule."""
    mixed = (hash((operation.argument, process)) * 2654435761) % 97
    return (1 + mixed) * MS, (Outcome.OK, Outcome.FAIL, Outcome.INFO)[mixed % 3]


FINITE = st.recursive(
    st.builds(some, st.sampled_from("abc"), st.integers(0, 6)),
    lambda inner: st.one_of(
        st.builds(mix, inner, inner),
        st.builds(lambda a, b: mix(a, b, weights=(3, 1)), inner, inner),
        st.builds(sequence, inner, inner),
        st.builds(phases, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda n, a: limit(n, a), st.integers(0, 5), inner),
        st.builds(lambda a: time_limit(0.05, a), inner),
        st.builds(lambda a: stagger(0.002, a), inner),
        st.builds(lambda a: rate(500, a), inner),
        st.builds(lambda a: repeat(a, 2), inner),
        st.builds(lambda a: each_process(limit(3, a)), inner),
        st.builds(lambda a, b: reserve((1, a), default=b), inner, inner),
        st.builds(lambda a: by_key(["x", "y"], lambda key: a, workers=2), inner),
        st.builds(lambda a: until(lambda event: event.operation.argument == 4, a), inner),
        st.builds(lambda a: transform(lambda operation: operation, a), inner),
    ),
    max_leaves=5,
)


@settings(max_examples=some_of(150), deadline=None)
@given(FINITE, st.integers(1, 5), st.integers(0, 3))
def test_a_value_answers_the_same_question_the_same_way(generator: Generator, workers: int, seed: int) -> None:
    """Asked twice all along a run, and run twice: nothing is kept outside the value."""

    class Twice(Generator, frozen=True):
        inner: Generator

        def op(self, context: Context) -> tuple[Answer, Generator]:
            first, after = self.inner.op(context)
            second, other = self.inner.op(context)
            assert first == second
            for probe in (context, Context(context.time + S, 1, 0, context.workers, context.processes)):
                assert after.op(probe)[0] == other.op(probe)[0]
            return first, Twice(after)

        def update(self, context: Context, event: OperationEvent) -> Generator:
            return Twice(self.inner.update(context, event))

    bounded = time_limit(3.0, generator)  # processes that always end info begin their copies again for ever
    events = simulate(bounded, workers=workers, respond=slow, seed=seed)
    assert simulate(Twice(bounded), workers=workers, respond=slow, seed=seed) == events


@settings(max_examples=some_of(150), deadline=None)
@given(FINITE, st.integers(0, 4))
def test_without_a_free_worker_nothing_is_invoked(generator: Generator, time: int) -> None:
    answer, _ = generator.op(Context(time, 0, 0b111, 0b111, (0, 1, 2)))
    assert isinstance(answer, Pending | Exhausted)


@settings(max_examples=some_of(100), deadline=None)
@given(FINITE, st.integers(0, 3))
def test_one_that_does_not_listen_is_not_changed_by_events(generator: Generator, seed: int) -> None:
    """The interpreter then tells it nothing; the run must be the same."""
    if generator.listens:
        return

    class Deaf(Generator, frozen=True):
        inner: Generator

        def op(self, context: Context) -> tuple[Answer, Generator]:
            answer, after = self.inner.op(context)
            assert not after.listens
            return answer, Deaf(after)

    assert simulate(time_limit(3.0, Deaf(generator)), respond=slow, seed=seed) == simulate(
        time_limit(3.0, generator), respond=slow, seed=seed
    )


def test_sources_are_what_they_look_like() -> None:
    assert verbs(simulate(Operation("a"))) == ["a"]
    assert verbs(simulate([Operation("a"), None, [Operation("b")]])) == ["a", "b"]
    assert verbs(simulate(limit(3, lambda context: Operation("c")))) == ["c"] * 3
    assert simulate(lambda context: None) == []
    with pytest.raises(TypeError, match="not a generator"):
        as_generator(3)  # type: ignore[arg-type]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 9))
def test_mix_emits_all_of_every_source_each_in_its_order(first: int, second: int, seed: int) -> None:
    events = simulate(mix(some("a", first), some("b", second)), seed=seed)
    for f, count in (("a", first), ("b", second)):
        assert [e.operation.argument for e in invoked(events) if e.operation.f == f] == list(range(count))


def test_mix_keeps_to_its_weights_and_follows_the_seed() -> None:
    def run(seed: int) -> list[str]:
        return verbs(simulate(limit(3000, mix(numbers("a"), numbers("b"), weights=(2, 1))), seed=seed))

    assert 1900 < run(1).count("a") < 2100
    assert run(1) == run(1)
    assert run(1) != run(2)


def test_nested_mixes_are_independent() -> None:
    inner = mix(numbers("c"), numbers("d"))
    counted = verbs(simulate(limit(4000, mix(mix(numbers("a"), numbers("b")), inner))))
    assert all(850 < counted.count(f) < 1150 for f in "abcd")


def test_mix_passes_over_a_source_that_has_nothing_now() -> None:
    events = simulate(limit(10, mix(rate(1, numbers("rare")), numbers("often"))), workers=1)
    assert verbs(events).count("rare") == 1
    assert max(event.time for event in events) < S


@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 4))
def test_sequence_is_in_order_and_phases_do_not_overlap(first: int, second: int, workers: int) -> None:
    events = simulate(sequence(some("a", first), some("b", second)), workers=workers, respond=slow)
    assert verbs(events) == ["a"] * first + ["b"] * second

    events = simulate(some("a", first) | some("b", second), workers=workers, respond=slow)
    if first and second:
        last_of_first = max(at for at, event in enumerate(events) if event.operation.f == "a")
        assert last_of_first < min(at for at, event in enumerate(events) if event.operation.f == "b")


def test_a_sequence_does_not_wait_for_what_is_open() -> None:
    events = simulate(sequence(some("a", 1), some("b", 1)), workers=2)
    assert [event.completed is None for event in events] == [True, True, False, False]


def test_a_barrier_does_not_wait_for_a_worker_that_has_no_client() -> None:
    """A node that stays down must not keep the drain from beginning on the others."""
    generator = phases(None, numbers("b"))
    assert isinstance(generator.op(Context(0, free=0b01, busy=0, workers=0b11, processes=(0, 3)))[0], Invoke)
    assert isinstance(generator.op(Context(0, free=0b01, busy=0b10, workers=0b11, processes=(0, 1)))[0], Pending)


def test_the_pipe_marks_the_phases_of_a_trial_and_nothing_else_does() -> None:
    main, sentinel, drain = phases(some("a", 1), some("b", 1)), some("c", 1), some("d", 1)
    assert split_phases(main | sentinel | drain) == (main, sentinel, drain)
    assert split_phases(main.then(drain)) == (main, drain)
    assert split_phases(main) == (main,)
    assert verbs(simulate(main | sentinel | drain)) == ["a", "b", "c", "d"]


def test_limit_once_and_repeat_count() -> None:
    assert arguments(simulate(limit(4, numbers()))) == [0, 1, 2, 3]
    assert arguments(simulate(once(numbers()))) == [0]
    assert arguments(simulate(repeat(some("a", 2), 3))) == [0, 1, 0, 1, 0, 1]
    assert arguments(simulate(limit(5, repeat(some("a", 2))))) == [0, 1, 0, 1, 0]
    assert simulate(repeat(None)) == []
    assert verbs(simulate(limit(3, repeat(Operation("x"))))) == ["x"] * 3


@given(st.integers(1, 50), st.integers(0, 3))
def test_a_time_limit_invokes_nothing_from_its_end_on_and_ends_then(milliseconds: int, seed: int) -> None:
    end = milliseconds * MS
    events = simulate(time_limit(milliseconds / 1000, numbers()), seed=seed)
    assert max(event.time for event in invoked(events)) < end
    assert len(invoked(events)) == 3 * milliseconds
    silent = time_limit(milliseconds / 1000, lambda context: None if context.time else Operation("only"))
    assert len(invoked(simulate(silent, workers=1))) == 1


def test_a_time_limit_counts_from_when_it_is_first_asked() -> None:
    events = simulate(time_limit(0.01, numbers("a")) | time_limit(0.01, numbers("b")), workers=1)
    assert verbs(events) == ["a"] * 10 + ["b"] * 10


def test_a_time_limit_ends_a_source_that_waits_for_ever() -> None:
    class Silent(Generator, frozen=True):
        def op(self, context: Context) -> tuple[Answer, Generator]:
            return Pending(), self

    answer, after = time_limit(1.0, Silent()).op(Context(5, 1, 0, 1, (0,)))
    assert answer == Pending(5 + S)
    assert after.op(Context(5 + S, 1, 0, 1, (0,)))[0] == EXHAUSTED


def test_stagger_waits_its_mean_on_average() -> None:
    times = [event.time for event in invoked(simulate(limit(500, stagger(0.01, numbers()))))]
    gaps = [after - before for before, after in pairwise(times)]
    assert 9 * MS < sum(gaps) / len(gaps) < 11 * MS
    assert max(gaps) < 20 * MS + 1
    assert len(set(gaps)) > 400


def test_an_open_loop_keeps_its_schedule_while_the_system_stalls() -> None:
    """The only worker's third operation takes 45 ms. Operations due meanwhile come late and are not put off further."""

    class Watch(Generator, frozen=True):
        inner: Generator

        def op(self, context: Context) -> tuple[Answer, Generator]:
            answer, after = self.inner.op(context)
            if isinstance(answer, Invoke):
                seen.append((answer.scheduled, context.time))
            return answer, Watch(after)

    def respond(operation: Operation, process: int) -> tuple[int, Outcome]:
        return (45 * MS if operation.argument == 2 else MS), Outcome.OK

    seen: list[tuple[int | None, int]] = []
    simulate(Watch(limit(10, rate(100, numbers()))), workers=1, respond=respond)
    assert [scheduled for scheduled, _ in seen] == [n * 10 * MS for n in range(10)]
    assert [called // MS for _, called in seen] == [0, 10, 20, 65, 66, 67, 68, 70, 80, 90]
    with pytest.raises(ValueError, match="above 0"):
        rate(0, numbers())


@given(st.integers(1, 5), st.integers(0, 4))
def test_each_process_runs_a_copy_for_every_process(workers: int, count: int) -> None:
    events = simulate(each_process(some("a", count)), workers=workers)
    for process in range(workers):
        assert [e.operation.argument for e in invoked(events) if e.process == process] == list(range(count))


def test_each_process_begins_again_for_a_process_that_takes_over() -> None:
    def respond(operation: Operation, process: int) -> tuple[int, Outcome]:
        return MS, Outcome.INFO if (process, operation.argument) == (1, 1) else Outcome.OK

    events = simulate(each_process(some("a", 3)), workers=2, respond=respond)
    seen = [(event.process, event.operation.argument) for event in invoked(events)]
    assert sorted(seen) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (3, 0), (3, 1), (3, 2)]


def test_each_process_waits_for_the_last_operation_which_may_bring_another_process() -> None:
    def respond(operation: Operation, process: int) -> tuple[int, Outcome]:
        return MS, Outcome.INFO if process == 0 else Outcome.OK

    events = simulate(each_process(Operation("a")), workers=2, respond=respond)
    assert [event.process for event in invoked(events)] == [0, 1, 2]


def test_each_process_routes_events_to_the_copy_concerned() -> None:
    stopping = until(lambda event: event.completed is not None and event.operation.argument == 2, numbers())
    events = simulate(each_process(stopping), workers=3)
    assert sorted((event.process, event.operation.argument) for event in invoked(events)) == [
        (process, argument) for process in range(3) for argument in range(3)
    ]


def test_reserve_gives_each_its_workers_alone() -> None:
    generator = limit(400, reserve((2, numbers("a")), (1, numbers("b")), default=numbers("c")))
    events = invoked(simulate(generator, workers=6, respond=slow))
    workers = {f: {event.worker for event in events if event.operation.f == f} for f in "abc"}
    assert workers == {"a": {0, 1}, "b": {2}, "c": {3, 4, 5}}


def test_reserve_starves_no_one() -> None:
    generator = limit(60, reserve((1, numbers("a")), (1, numbers("b")), default=numbers("c")))
    counted = verbs(simulate(generator, workers=3))
    assert all(counted.count(f) == 20 for f in "abc")


@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 5))
def test_by_key_finishes_every_key_with_the_workers_of_one_group(workers: int, size: int, count: int) -> None:
    keys = [f"k{n}" for n in range(count)]
    events = invoked(simulate(by_key(keys, lambda key: some("a", 4), workers=size), workers=workers))
    for key in keys:
        of_key = [event for event in events if event.operation.key == key]
        assert [event.operation.argument for event in of_key] == [0, 1, 2, 3]
        groups = max(1, workers // size)
        assert len({min(event.worker // size, groups - 1) for event in of_key}) == 1
    assert len(events) == 4 * count


def test_by_key_without_groups_serves_all_keys_at_once_and_keeps_a_given_key() -> None:
    events = simulate(by_key(["x", "y"], lambda key: [some("a", 3), Operation("b", "own")]), workers=1)
    assert sorted(str(event.operation.key) for event in invoked(events)) == ["own"] * 2 + ["x"] * 3 + ["y"] * 3


def test_until_ends_with_the_event() -> None:
    events = simulate(until(lambda event: event.completed is not None and event.operation.argument == 5, numbers()))
    assert 5 in arguments(events)
    assert len(arguments(events)) <= 8


def test_on_event_answers_and_waits_for_what_may_call_for_an_answer() -> None:
    def react(event: OperationEvent) -> Operation | None:
        if event.completed is not None and event.operation.f == "a":
            return Operation("answer", argument=event.operation.argument)
        return None

    events = simulate(on_event(react, some("a", 4)), workers=2)
    answers = [event.operation.argument for event in invoked(events) if event.operation.f == "answer"]
    assert answers == [0, 1, 2, 3]


def test_in_phase_marks_and_transform_changes_operations() -> None:
    assert {event.operation.phase for event in simulate(in_phase("drain", some("a", 2)))} == {"drain"}
    doubled = transform(lambda operation: Operation(operation.f, argument=operation.argument * 2), some("a", 3))
    assert arguments(simulate(doubled)) == [0, 2, 4]


@given(st.integers(1, 6), st.integers(1, 50))
def test_workers_get_equal_shares(workers: int, rounds: int) -> None:
    events = invoked(simulate(limit(workers * rounds, stagger(0.001, numbers())), workers=workers))
    assert [sum(event.worker == w for event in events) for w in range(workers)] == [rounds] * workers


def test_unique_values_stay_unique_by_any_taker() -> None:
    taken = arguments(simulate(limit(500, mix(numbers(), limit(100, numbers("b", 10_000)))), workers=7, respond=slow))
    assert len(set(taken)) == 500


def test_a_plan_that_waits_for_ever_is_told_apart_from_one_that_ends() -> None:
    class Silent(Generator, frozen=True):
        def op(self, context: Context) -> tuple[Answer, Generator]:
            return Pending(), self

    with pytest.raises(RuntimeError, match="waits for ever"):
        simulate(Silent())


READ = Operation("read", "k")


@pytest.mark.parametrize("failures", [0, 1, 7])
def test_an_operation_is_repeated_until_it_is_answered(failures: int) -> None:
    calls: list[Operation] = []

    def respond(operation: Operation, process: int) -> tuple[int, Outcome]:
        if operation != READ:
            return MS, Outcome.OK
        calls.append(operation)
        return 10 * S, Outcome.OK if len(calls) > failures else Outcome.FAIL

    events = simulate(sequence(until_ok(READ, seconds=1000, pause=1), some("then", 1)), workers=1, respond=respond)
    assert verbs(events) == ["read"] * (failures + 1) + ["then"]


def test_other_answers_do_not_end_the_repetition_and_time_does() -> None:
    def respond(operation: Operation, process: int) -> tuple[int, Outcome]:
        return 100 * MS, Outcome.INFO if operation == READ else Outcome.OK

    events = simulate(mix(until_ok(READ, seconds=5), limit(100, numbers("write"))), workers=2, respond=respond)
    reads = [event.time for event in invoked(events) if event.operation == READ]
    assert len(reads) > 10
    assert 4 * S < max(reads) < 5 * S
