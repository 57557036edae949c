"""Claims and exposed claims of workloads: an exposed claim is one that another answer would have contradicted."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest

from assay.checkers.judging.verdict import Judgement
from assay.checkers.workload_checks import counters, kafka, phenomena, visibility
from assay.checkers.workload_checks.catalog import CHECKS
from assay.harness.core.operation import Completed, Completion, Operation, Outcome

Operations = list[Completed]
OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO
SEEDS: Final = 25


def done(
    f: str, argument: Any = None, result: Any = None, outcome: Outcome = OK, *, key: str | None = None,
    process: int = 0, at: int, lasts: int = 1,
) -> Completed:  # fmt: skip
    ret = None if outcome is INFO else 10 * at + 10 * lasts - 1
    return Completed(
        at, process, str(process), Operation(f, key, argument), Completion(outcome, result), 10 * at, ret
    )  # fmt: skip


def answer(operations: Operations, one: Completed, result: Any) -> Operations:
    """Returns the operations with another answer of one of them."""
    completion = msgspec.structs.replace(one.completion, outcome=OK, result=result)
    return [msgspec.structs.replace(other, completion=completion) if other is one else other for other in operations]


def counted(judgement: Judgement, anomaly: str) -> tuple[int, int]:
    (one,) = (one for one in judgement.examined if one.check == anomaly)
    assert one.claims is not None
    assert one.exposed is not None
    return one.claims, one.exposed


def finds(question: str, operations: Operations, anomaly: str) -> bool:
    return anomaly in CHECKS[question].judge(operations).anomalies


def draw(chance: random.Random, most: int = 9) -> Iterator[tuple[int, int, Outcome]]:
    """Yields the start, the duration and the outcome of operations in the order in which they take effect."""
    for at in range(chance.randrange(1, most)):
        yield at, chance.choice((1, 1, 2, 4)), chance.choices((OK, FAIL, INFO), (6, 1, 1))[0]


def draw_counter(chance: random.Random) -> Operations:
    total, made = 0, []
    for at, lasts, outcome in draw(chance):
        if chance.random() < 0.6:
            amount = chance.randrange(-2, 4)
            total += amount * (outcome is OK or (outcome is INFO and chance.random() < 0.5))
            made.append(done("add", amount, None, outcome, at=at, lasts=lasts))
        else:
            made.append(done("read", None, total, at=at, lasts=lasts))
    return made


def expose_adds(question: str, anomaly: str, operations: Operations) -> Iterator[bool]:
    """Yields for each acknowledged add whether a read without its amount would be wrong."""
    finals = counters.find_final_reads(operations)
    for add in (one for one in operations if one.operation.f == "add" and one.completion.outcome is OK):
        amount = add.operation.argument
        later = [one for one in operations if one.operation.f == "read" and add.ret is not None and one.call > add.ret]
        reads = finals if question == "final-sum" else later
        if amount:
            yield any(
                finds(question, answer(operations, read, read.completion.result - amount), anomaly) for read in reads
            )


def draw_values(chance: random.Random) -> Operations:
    shown: list[int] = []
    made = []
    for at, lasts, outcome in draw(chance):
        if chance.random() < 0.6:
            if outcome is OK or (outcome is INFO and chance.random() < 0.5):
                shown.append(at)
            made.append(done("write", at, None, outcome, at=at, lasts=lasts))
        else:
            made.append(done("read", None, list(shown), at=at, lasts=lasts))
    return made


def expose_shown(operations: Operations) -> Iterator[bool]:
    """Yields for each read that shows something whether it would be wrong without one of the values."""
    for read in (one for one in operations if one.operation.f == "read" and one.completion.result):
        values = read.completion.result
        fewer = ([value for value in values if value != missing] for missing in values)
        yield any(finds("causal-reverse", answer(operations, read, rest), visibility.CAUSAL_REVERSE) for rest in fewer)


def draw_series(chance: random.Random) -> Operations:
    made = []
    for at, _, _ in draw(chance):
        found = chance.randrange(4)
        made.append(done("read", None, ["s", [None] * (3 - found) + list("cba")[3 - found :]], at=at))
    return made


def expose_parts(operations: Operations) -> Iterator[bool]:
    for read in operations:
        series, parts = read.completion.result
        first = next((place for place, part in enumerate(parts) if part is not None), None)
        if first is not None:
            fewer = ([*parts[:place], None, *parts[place + 1 :]] for place in range(first + 1, len(parts)))
            yield any(
                finds("sequential", answer(operations, read, [series, one]), visibility.NONSEQUENTIAL) for one in fewer
            )


def draw_causal(chance: random.Random) -> Operations:
    value, pending, made = 0, 0, [done("read-init", None, 0, at=0)]
    for at, _, outcome in draw(chance):
        if chance.random() < 0.5:
            pending = value + 1
            value = pending if outcome is OK else value
            made.append(done("write", pending, None, outcome, at=at + 1))
        else:
            made.append(done("read", None, chance.choice((value, value, None)), at=at + 1))
    return made


def expose_values(operations: Operations) -> Iterator[bool]:
    """Yields for each read of a value whether the initial value or an earlier one would be wrong."""
    for place, read in enumerate(operations):
        if read.operation.f != "write" and read.completion.result is not None:
            writes = (one for one in operations[:place] if one.operation.f == "write")
            earlier = {0, *(one.operation.argument for one in writes if one.completion.outcome is not FAIL)}
            until = operations[: place + 1]
            yield any(finds("causal", answer(until, read, value), visibility.NONCAUSAL) for value in earlier)


def draw_strong(chance: random.Random) -> Operations:
    made = [one for one in draw_values(chance) if one.operation.f == "write"]
    shown = [one.operation.argument for one in made if one.completion.outcome is OK]
    made += [done("read", value, value, at=20 + value) for value in shown if chance.random() < 0.5]
    for number in range(chance.randrange(4)):
        outcome = chance.choice((OK, OK, FAIL))
        made.append(done("strong-read", None, shown if outcome is OK else None, outcome, at=40 + number))
    return made


def without_value(operations: Operations, value: int, reads: Sequence[Completed]) -> Operations:
    for read in reads:
        rest = [one for one in read.completion.result if one != value]
        operations = [
            msgspec.structs.replace(one, completion=Completion(OK, rest)) if one.index == read.index else one
            for one in operations
        ]
    return operations


def expose_strong(anomaly: str, operations: Operations) -> Iterator[bool]:
    strong = [one for one in operations if one.operation.f == "strong-read" and one.completion.outcome is OK]
    writes = [one for one in operations if one.operation.f == "write" and one.completion.outcome is OK]
    if anomaly == phenomena.DIVERGED:
        for read in strong:
            given = read.completion.result
            may_differ = [one.operation.argument for one in operations if one.operation.f == "write"
                          and one.completion.outcome is not FAIL]  # fmt: skip
            others = [[*given, value] if value not in given else [one for one in given if one != value]
                      for value in may_differ]  # fmt: skip
            yield any(finds("dirty-reads", answer(operations, read, other), anomaly) for other in others)
    elif anomaly == phenomena.LOST_INSERT and any(one.operation.f == "strong-read" for one in operations):
        for one in writes:
            edited = without_value(operations, one.operation.argument, strong)
            yield finds("dirty-reads", edited, anomaly)
    elif anomaly == phenomena.DIRTY_READ:
        for one in operations if strong else ():
            if one.operation.f == "read":
                yield finds("dirty-reads", without_value(operations, one.operation.argument, strong), anomaly)
        for one in () if strong else operations:
            if one.operation.f == "write" and one.completion.outcome is FAIL:
                reads = [read for read in operations if read.operation.f == "read" and read.ret is not None]
                after = [read for read in reads if read.ret is not None and read.ret > one.call]
                yield any(
                    finds("dirty-reads", answer(operations, read, [one.operation.argument]), anomaly) for read in after
                )


def draw_inserts(chance: random.Random) -> Operations:
    free, made = {"a", "b", "c"}, []
    for at, _, outcome in draw(chance):
        key = chance.choice("abc")
        outcome = FAIL if key not in free and outcome is OK else outcome
        free -= {key} if outcome is OK else set()
        made.append(done("insert", [at, None], None, outcome, key=key, at=at))
    return made


def expose_keys(operations: Operations) -> Iterator[bool]:
    for key in "abc":
        ones = [one for one in operations if one.operation.key == key]
        if any(one.completion.outcome is OK for one in ones):
            yield any(finds("g2", answer(operations, one, None), phenomena.PREDICATE_SKEW) for one in ones)


@pytest.mark.parametrize(
    ("question", "anomaly", "make", "expose"),
    [
        ("counter", counters.OUT_OF_BOUNDS, draw_counter, partial(expose_adds, "counter", counters.OUT_OF_BOUNDS)),
        ("final-sum", counters.WRONG_SUM, draw_counter, partial(expose_adds, "final-sum", counters.WRONG_SUM)),
        ("causal-reverse", visibility.CAUSAL_REVERSE, draw_values, expose_shown),
        ("sequential", visibility.NONSEQUENTIAL, draw_series, expose_parts),
        ("causal", visibility.NONCAUSAL, draw_causal, expose_values),
        ("dirty-reads", phenomena.DIRTY_READ, draw_values, partial(expose_strong, phenomena.DIRTY_READ)),
        ("dirty-reads", phenomena.DIRTY_READ, draw_strong, partial(expose_strong, phenomena.DIRTY_READ)),
        ("dirty-reads", phenomena.LOST_INSERT, draw_strong, partial(expose_strong, phenomena.LOST_INSERT)),
        ("dirty-reads", phenomena.DIVERGED, draw_strong, partial(expose_strong, phenomena.DIVERGED)),
        ("g2", phenomena.PREDICATE_SKEW, draw_inserts, expose_keys),
    ],
)
def test_a_claim_is_exposed_if_another_answer_would_contradict_it(
    question: str,
    anomaly: str,
    make: Callable[[random.Random], Operations],
    expose: Callable[[Operations], Iterator[bool]],
) -> None:
    total = [0, 0]
    for seed in range(SEEDS):
        operations = make(random.Random(f"{question}/{seed}"))
        judgement = CHECKS[question].judge(operations)
        assert not judgement.anomalies, judgement.findings
        wanted = list(expose(operations))
        assert counted(judgement, anomaly) == (len(wanted), sum(wanted)), (seed, operations)
        total = [total[0] + len(wanted), total[1] + sum(wanted)]
    assert 0 < total[1] <= total[0], total


def draw_logs(chance: random.Random) -> Operations:
    """Sends and polls in transactions on two logs. A process polls on from where it was; a last poll shows the rest."""
    logs: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    read: defaultdict[tuple[int, str], int] = defaultdict(int)
    made, fresh = [], iter(range(1000))
    for at, _, outcome in draw(chance, 12):
        process = chance.randrange(3) if outcome is not INFO else 100 + at
        argument: list[Any] = []
        result: list[Any] = []
        for _ in range(chance.randrange(1, 4)):
            key = chance.choice("ab")
            if chance.random() < 0.6:
                value = next(fresh)
                argument.append(["send", key, value])
                offset = len(logs[key]) * 2
                if outcome is OK or (outcome is INFO and at % 2):
                    logs[key].append((offset, value))
                result.append(["send", key, [offset, value] if chance.random() < 0.8 else value])
            elif not any(micro[0] == "send" and micro[1] == key for micro in argument):
                begin = read[process, key]
                end = min(len(logs[key]), begin + chance.randrange(3))
                read[process, key] = end if outcome is OK else begin
                argument.append(["poll"])
                result.append(["poll", {key: [list(pair) for pair in logs[key][begin:end]]} if begin < end else {}])
        made.append(done("txn", argument, result if outcome is OK else None, outcome, process=process, at=at))
    rest = {key: [list(pair) for pair in log] for key, log in logs.items() if log}
    made.append(done("poll", [["poll"]], [["poll", rest]], process=50, at=50))
    return made


def without_polls_of(operations: Operations, key: str, value: int) -> Operations:
    edited = []
    for one in operations:
        if one.completion.result is None:
            edited.append(one)
            continue
        result = [
            ["poll", {name: [pair for pair in pairs if (name, pair[1]) != (key, value)]
                      for name, pairs in micro[1].items()}] if micro[0] == "poll" else micro
            for micro in one.completion.result
        ]  # fmt: skip
        edited.append(msgspec.structs.replace(one, completion=replace_result(one, result)))
    return edited


def replace_result(one: Completed, result: Any) -> Completion:
    return msgspec.structs.replace(one.completion, result=result)


@pytest.mark.slow
def test_a_value_of_a_log_is_exposed_as_lost_or_as_unseen() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        operations = draw_logs(random.Random(f"logs/{seed}"))
        judgement = CHECKS["kafka"].judge(operations)
        assert not judgement.violations, (seed, judgement.findings)
        found: Counter[str] = Counter()
        acked = [one for one in operations if one.completion.outcome is OK]
        values = [(micro[1], micro[2]) for one in acked for micro in one.operation.argument if micro[0] == "send"]
        for key, value in values:
            anomalies = CHECKS["kafka"].judge(without_polls_of(operations, key, value)).anomalies
            assert len({kafka.LOST, kafka.UNSEEN} & anomalies.keys()) == 1
            found.update({kafka.LOST, kafka.UNSEEN} & anomalies.keys())
        total += found
        claims, exposed = counted(judgement, kafka.UNSEEN)
        assert (claims, exposed) == (len(values), found[kafka.UNSEEN]), seed
        lost_claims, lost = counted(judgement, kafka.LOST)
        assert lost_claims >= len(values)
        assert lost == found[kafka.LOST], seed
    assert min(total.values()) > SEEDS // 2, total


def count_plainly(operations: Operations) -> dict[str, tuple[int, int]]:
    """Counts by the definitions, in several passes over the micro-operations."""
    shows: list[tuple[int, str, int, int]] = []
    sends: dict[int, list[tuple[str, int]]] = {}
    polls: dict[int, list[tuple[str, int]]] = {}
    by_op = {one.index: one for one in operations}
    for one in operations:
        ok = one.completion.outcome is OK
        for micro in one.completion.result if ok else one.operation.argument:
            if micro[0] == "send":
                value = micro[2][1] if isinstance(micro[2], list) else micro[2]
                sends.setdefault(one.index, []).append((micro[1], value))
                if isinstance(micro[2], list):
                    shows.append((one.index, micro[1], *micro[2]))
            elif ok:
                for key, pairs in micro[1].items():
                    polls.setdefault(one.index, []).extend((key, value) for _, value in pairs)
                    shows.extend((one.index, key, *pair) for pair in pairs)
    offset = {(key, value): place for _, key, place, value in shows}
    last = {key: max(place for (name, _), place in offset.items() if name == key) for key, _ in offset}
    failed = {op for op in sends if by_op[op].completion.outcome is FAIL}
    polled = {pair for pairs in polls.values() for pair in pairs}
    by_offset = Counter((key, place) for _, key, place, _ in shows)
    by_value = Counter((key, value) for _, key, _, value in shows)

    def count(claims: Sequence[bool]) -> tuple[int, int]:
        return len(claims), sum(claims)

    def list_adjacent(of_op: dict[int, list[tuple[str, int]]], op: int) -> list[tuple[tuple[str, int], ...]]:
        return [pair for key in "ab" for pair in pairwise(one for one in of_op.get(op, []) if one[0] == key)]

    def list_follows(of_op: dict[int, list[tuple[str, int]]]) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        found = []
        for process in {one.process for one in operations}:
            ops = [one.index for one in operations if one.process == process and one.index not in failed]
            for key in "ab":
                lists = [[one for one in of_op.get(op, []) if one[0] == key] for op in ops]
                found += [(former[-1], later[0]) for former, later in pairwise(one for one in lists if one)]
        return found

    inner_sends = [pair for op in sends if op not in failed for pair in list_adjacent(sends, op)]
    inner_polls = [pair for op in polls for pair in list_adjacent(polls, op)]
    known = [one in offset and other in offset for one, other in inner_sends]
    third = [sum(name == one[0] for name, _ in by_offset) > 2 for one, _ in inner_sends]
    other_polls = {
        op: any(set(pairs) & set(polls.get(other, [])) for other in polls if other != op) for op, pairs in sends.items()
    }
    later_sends = {
        op: any(other not in failed and by_op[other].call > (by_op[op].ret or 0) for other in sends) for op in polls
    }
    keys = {op: {key for of_op in (sends, polls) for key, _ in of_op.get(op, [])} for op in by_op}
    return {
        kafka.INCONSISTENT: count([many > 1 for many in by_offset.values()]),
        kafka.DUPLICATE: count([many > 1 for many in by_value.values()]),
        kafka.ABORTED: count([
            any(key == pair[0] and (by_op[other].ret or 0) > by_op[op].call for other in polls for pair in polls[other])
            for op in failed for key, _ in sends[op]
        ]),
        kafka.PHANTOM: count([True for _ in polled]),
        kafka.PRECOMMITTED: count([
            bool({key for key, _ in sends[op]} & {key for key, _ in polls[op]}) for op in sends.keys() & polls.keys()
        ]),
        kafka.POLL_SKIP: count([offset[later] < last[later[0]] for _, later in list_follows(polls)]),
        kafka.POLL_BACK: count([True for _ in list_follows(polls)]),
        kafka.INNER_POLL_SKIP: count([offset[later] < last[later[0]] for _, later in inner_polls]),
        kafka.INNER_POLL_BACK: count([True for _ in inner_polls]),
        kafka.SEND_BACK: count([one in offset and other in offset for one, other in list_follows(sends)]),
        kafka.INNER_SEND_SKIP: count([one and other for one, other in zip(known, third, strict=True)]),
        kafka.INNER_SEND_BACK: count(known),
        kafka.CIRCLE: count([other_polls.get(op, False) for op in polls if polls[op]]),
        kafka.TIME_CIRCLE: count([other_polls.get(op, False) or later_sends[op] for op in polls if polls[op]]),
        kafka.SEND_CIRCLE: count([
            any(key in keys[op] for other in sends if other != op and other not in failed for key, _ in sends[other])
            for op in by_op if op not in failed and keys[op]
        ]),
    }  # fmt: skip


@pytest.mark.slow
def test_claims_of_logs_are_those_of_the_definitions() -> None:
    total: Counter[str] = Counter()
    for seed in range(4 * SEEDS):
        operations = draw_logs(random.Random(f"logs/{seed}"))
        judgement = CHECKS["kafka"].judge(operations)
        for anomaly, counts in count_plainly(operations).items():
            assert counted(judgement, anomaly) == counts, (seed, anomaly, operations)
            total[anomaly] += counts[1]
    assert total.keys() == kafka.ANOMALIES.keys() - {kafka.LOST, kafka.UNSEEN}
    assert min(total.values()) > 0, total


@pytest.mark.parametrize("question", sorted(CHECKS))
def test_each_anomaly_of_a_workload_reports_both_counts(question: str) -> None:
    for operations in ([], [done("read", None, [1], at=1)] if question == "causal-reverse" else []):
        judgement = CHECKS[question].judge(operations)
        assert {one.check for one in judgement.examined} == CHECKS[question].anomalies.keys()
        for one in judgement.examined:
            assert (one.claims, one.exposed) == (0, 0), one


def test_a_write_of_which_nothing_else_tells_is_not_exposed() -> None:
    """The nearest neighbour of an exposed history: the reads come before the adds, so no lost add would show."""
    read, add = done("read", None, 0, at=1), done("add", 3, None, at=2)
    assert counted(CHECKS["counter"].judge([read, add]), counters.OUT_OF_BOUNDS) == (1, 0)
    later = done("read", None, 3, at=3)
    assert counted(CHECKS["counter"].judge([add, later]), counters.OUT_OF_BOUNDS) == (1, 1)
    excused = done("add", -3, None, INFO, at=0)
    assert counted(CHECKS["counter"].judge([excused, add, later]), counters.OUT_OF_BOUNDS) == (1, 0)
