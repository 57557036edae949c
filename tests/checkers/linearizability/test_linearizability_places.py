"""Keys are judged alike in this process, in several, and on Spark; a process that dies takes one key along."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from assay.checkers.engine import EngineError, EngineUnavailable
from assay.checkers.judging.verdict import Finding, Judgement, Verdict
from assay.checkers.linearizability import (
    MODELS,
    Action,
    Call,
    Limits,
    LocalSearch,
    Model,
    ModelError,
    on_spark,
    search,
)
from assay.checkers.linearizability.encode import encode
from assay.checkers.linearizability.on_spark import search_on_spark
from assay.checkers.linearizability.pool import NotPortableError, WorkerPool

from helpers.judging import without_times
from helpers.linearizability_histories import history, operation, table
from helpers.linearizability_models import TESTED, Deadly, Mixer, Unsaid
from helpers.linearizability_oracle import MEANING, Op, linearizable
from helpers.nightly import by_night, some_by_day
from helpers.process_tree import descendants, left

HERE = LocalSearch(workers=1)
POOL = LocalSearch(workers=2, patience=0.0)
AMPLE = Limits(seconds=None, every_key=True)


class OnSpark:
    """Searches as a ``LocalSearch`` is asked to."""

    def __init__(self, application: Any) -> None:
        self.engine = application.engine(effects=0)

    def search(self, ops: pa.Table, model: Model, **options: Any) -> Judgement:
        self.engine.load("ops", ops)
        return search_on_spark(self.engine, model, **options)


Place = LocalSearch | OnSpark


@pytest.fixture(scope="module")
def spark(application: Any) -> OnSpark:
    return OnSpark(application)


def searched(ops: pa.Table, model: Model, place: Place, **options: Any) -> Judgement:
    if isinstance(place, OnSpark):
        return place.search(ops, model, **options)
    return search(ops, model, place=place, **options)


def keyed(model: str, count: int) -> tuple[list[list[Op]], pa.Table]:
    rng = random.Random(f"{model}-places")
    histories = [history(model, rng) for _ in range(count)]
    return histories, table((None if not number else str(number), ops) for number, ops in enumerate(histories))


def check_alike(model: str, place: Place, count: int) -> None:
    """As in one process, and as every order says."""
    histories, ops = keyed(model, count)
    one, other = (searched(ops, TESTED[model], where, limits=AMPLE) for where in (HERE, place))
    assert without_times(one) == without_times(other)
    judged = [linearizable(mine, MEANING[model]) for mine in histories]
    assert 0 < judged.count(False) < count, "some are right, some are wrong"
    assert one.anomalies == {"nonlinearizable": judged.count(False)}
    assert {finding.key for finding in one.findings} <= {
        None if not number else str(number) for number, good in enumerate(judged) if not good
    }


def test_several_processes_say_what_one_says() -> None:
    check_alike("fifo-queue", POOL, 120)


@pytest.mark.long
@pytest.mark.parametrize("model", sorted(MODELS))
def test_several_processes_say_what_one_says_of_each_model(model: str) -> None:
    check_alike(model, POOL, 1500)


@pytest.mark.spark
@pytest.mark.long
def test_spark_says_what_one_process_says(spark: OnSpark) -> None:
    check_alike("fifo-queue", spark, 40)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("model", sorted(MODELS))
def test_spark_says_what_one_process_says_of_many_keys(model: str, spark: OnSpark) -> None:
    check_alike(model, spark, 1500)


EACH_KIND: Final = ("kv", "lease-mutex", "owner-mutex", "register", "set")
"""A model of each kind: of texts, of times, of processes, of integers, and with interned states."""


@pytest.mark.parametrize("model", some_by_day(sorted(MODELS), EACH_KIND))
def test_what_is_said_of_a_key_does_not_depend_on_its_neighbours(model: str) -> None:
    """Whatever values they have, and in whatever order the rows lie."""
    _, ops = keyed(model, 200)
    whole = {finding.key: finding for finding in search(ops, MODELS[model], limits=AMPLE, place=HERE).findings}
    assert len(whole) > 3
    backwards = ops.take(pa.array(range(len(ops) - 1, -1, -1)))
    for key in whole:
        mine = pa.array([one == key for one in backwards["key"].to_pylist()])
        (alone,) = search(backwards.filter(mine), MODELS[model], limits=AMPLE, place=HERE).findings
        assert alone == whole[key]


def exploding(count: int) -> list[Op]:
    return [operation("mix", number + 1, call=number, ret=100 + number) for number in range(count)]


def check_a_share_that_is_too_small(place: Place) -> None:
    """Half of the memory is too little for ``wide``, and all of it for ``wider``."""
    ops = table([("wide", exploding(7)), ("small", exploding(2)), ("wider", exploding(9))])
    limits = Limits(seconds=None, bytes=2_500_000)
    one, other = (searched(ops, Mixer(), where, limits=limits) for where in (HERE, place))
    assert without_times(one) == without_times(other)
    (reason,) = other.unknown
    assert reason.startswith("key wider: the memory limit (")
    assert reason.endswith("bytes of 2500000) was reached when 0 of 9 operations had returned")
    alone = search(ops, Mixer(), limits=Limits(seconds=None, bytes=1_250_000), place=HERE)
    assert len(alone.unknown) == 2, "the share would have been enough: this tests nothing"


def test_a_key_for_which_its_share_of_the_memory_is_too_little_gets_all_of_it() -> None:
    check_a_share_that_is_too_small(POOL)


@pytest.mark.long
@pytest.mark.spark
def test_on_spark_too_a_key_may_have_all_of_the_memory(spark: OnSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.checkers.engine.spark import Spark

    asked, group_by_key = [], Spark.group_by_key
    monkeypatch.setattr(Spark, "group_by_key", lambda *rest: asked.append(rest[-1]) or group_by_key(*rest))
    check_a_share_that_is_too_small(spark)
    assert asked[1:] == [[["wide"], ["wider"]]], "the history is read once more for all of them"


def test_on_an_executor_what_a_key_has_spent_counts() -> None:
    ops = table([("a", exploding(12))])
    task = pickle.dumps((Mixer(), Limits(seconds=1000.0), {"a": 1000.0}))
    (result,) = on_spark._search_key(task, ops)["result"].to_pylist()
    assert pickle.loads(result).unknown.startswith("key a: the time limit of 1000 s was reached")


def check_time(place: Place) -> None:
    ops = table([("a", exploding(12)), ("b", exploding(1))])
    judged = searched(ops, Mixer(), place, limits=Limits(seconds=0.2))
    assert judged.verdict is Verdict.UNKNOWN
    (reason,) = judged.unknown
    assert reason == "key a: the time limit of 0.2 s was reached when 0 of 12 operations had returned"


@pytest.mark.parametrize("place", [POOL, pytest.param(LocalSearch(workers=2, patience=0.1), marks=pytest.mark.long)])
def test_time_is_limited_for_each_key(place: Place) -> None:
    check_time(place)


@pytest.mark.spark
@pytest.mark.long
def test_time_is_limited_on_spark(spark: OnSpark) -> None:
    check_time(spark)


def check_a_hard_key_beside_a_wrong_one(place: Place) -> None:
    """A hard key gets one second. Then the verdict does not wait for it, unless all keys are asked for."""
    ops = table([("hard", exploding(12)), ("wrong", [operation("peek", 1, call=0, ret=1)])])
    reported: list[Finding] = []
    limits = Limits(seconds=300, first_look=0.1)
    judged = searched(ops, Mixer(), place, limits=limits, report=reported.append)
    assert judged.verdict is Verdict.FAIL
    assert [finding.key for finding in judged.findings] == ["wrong"]
    assert tuple(reported) == judged.findings
    assert judged.unknown == (
        "key hard: not decided within 0.1 s; as another key is wrong, it got no more time (--all-keys gives it)",
    )
    judged = searched(ops, Mixer(), place, limits=replace(limits, seconds=0.5, every_key=True))
    assert judged.unknown == ("key hard: the time limit of 0.5 s was reached when 0 of 12 operations had returned",)


@pytest.mark.parametrize("place", [by_night(HERE), POOL, by_night(LocalSearch(workers=2, patience=0.3))])
def test_a_hard_key_does_not_delay_the_verdict_on_a_wrong_one(place: Place) -> None:
    check_a_hard_key_beside_a_wrong_one(place)


@pytest.mark.spark
@pytest.mark.long
def test_a_hard_key_does_not_delay_the_verdict_on_spark(spark: OnSpark) -> None:
    check_a_hard_key_beside_a_wrong_one(spark)


def test_a_hard_key_has_its_whole_limit_if_no_other_is_wrong() -> None:
    ops = table([("hard", exploding(12)), ("right", exploding(1))])
    judged = search(ops, Mixer(), place=HERE, limits=Limits(seconds=0.5, first_look=0.1))
    assert judged.unknown == ("key hard: the time limit of 0.5 s was reached when 0 of 12 operations had returned",)


def deadly() -> pa.Table:
    """Keys of which one makes its process kill itself, and one fails."""
    ops = [operation("write", 1, call=0, ret=1), operation("write", 1, call=2, ret=3)]
    stale = operation("read", None, 2, call=4, ret=5)
    return table([("a", ops), ("b", [*ops, operation("die", call=6, ret=7)]), ("c", ops), ("d", [*ops, stale])])


def check_death(place: Place) -> None:
    judged = searched(deadly(), Deadly(), place)
    assert judged.verdict is Verdict.FAIL
    assert [finding.key for finding in judged.findings] == ["d"]
    (reason,) = judged.unknown
    assert reason.startswith("key b: the process that searched it was ")


def test_a_process_that_is_killed_makes_its_key_unknown_and_no_other() -> None:
    check_death(POOL)


@pytest.mark.spark
def test_a_process_of_spark_that_is_killed_makes_its_key_unknown_and_no_other(spark: OnSpark) -> None:
    check_death(spark)


@pytest.mark.long
@pytest.mark.spark
def test_on_spark_several_keys_may_die(spark: OnSpark) -> None:
    """Three keys for a part, so that those that die have others beside them, which have to be asked for again."""
    good, bad = operation("write", 1, call=0, ret=1), operation("die", call=0, ret=1)
    keys = [None, *map(str, range(47))]
    judged = spark.search(table((key, [good if number % 25 else bad]) for number, key in enumerate(keys)), Deadly())
    assert [reason.split(": the process")[0] for reason in judged.unknown] == ["the history", "key 24"]
    assert judged.examined[0].note is not None
    assert judged.examined[0].note.startswith("search on 48 keys;")


@pytest.mark.long
def test_every_process_may_die() -> None:
    ops = [operation("die", call=0, ret=1)]
    judged = search(table([(str(number), ops) for number in range(4)]), Deadly(), place=POOL)
    assert judged.verdict is Verdict.UNKNOWN
    assert [reason.split(":")[0] for reason in judged.unknown] == [f"key {number}" for number in range(4)]


def test_a_model_that_contradicts_itself_is_an_error_everywhere() -> None:
    ops = [operation("peek", 1, call=0, ret=10)]
    for place in (HERE, POOL):
        with pytest.raises(ModelError, match="reads, but changed the state"):
            search(table([("a", ops), ("b", ops)]), Unsaid(), place=place)


class Local(Mixer):
    """Model in a module that no other process can import."""


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(Local, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Local", Local, raising=False)
    return Local()


def test_a_model_that_no_other_process_can_load_is_searched_here(nowhere: Model) -> None:
    ops = table([("a", exploding(3)), ("b", exploding(3))])
    with WorkerPool(nowhere, 2) as pool, pytest.raises(NotPortableError, match="Local"):
        list(pool.search(encode(ops, nowhere), [(0,), (1,)], AMPLE))
    assert search(ops, nowhere, place=POOL).verdict is Verdict.PASS


class Handle:
    """State with a value, and with a lock that cannot be pickled."""

    def __init__(self, value: int) -> None:
        self.value, self.lock = value, threading.Lock()


class Handling(Mixer):
    """Its actions can be used in this process only."""

    name = "handling"
    compiled = False

    def encode(self, call: Call) -> Action:
        return Action(0, Handle(call.argument))

    @staticmethod
    def step(state: int, f: int, x: Handle, y: int) -> tuple[bool, int]:  # type: ignore[override]
        return True, (state * 31 + x.value) % 1000003


def test_a_model_that_cannot_be_pickled_is_searched_here() -> None:
    class Inner(Mixer):
        """Other processes find nothing that is defined in a function."""

    for model in (Inner(), Handling()):
        judged = search(table([("a", exploding(3)), ("b", exploding(3))]), model, place=POOL)
        assert judged.verdict is Verdict.PASS
        assert judged.examined[0].note is not None
        assert judged.examined[0].note.startswith("search on 2 keys;")


@pytest.mark.spark
def test_a_model_that_spark_cannot_load_is_one_clear_error(nowhere: Model, spark: OnSpark) -> None:
    with pytest.raises(EngineUnavailable, match="executors cannot load the model mixer; install assay"):
        spark.search(table([("a", exploding(3))]), nowhere)


FIRST = pa.schema([("key", pa.string())])


class Locked(Mixer):
    """With what no process hands to another."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@pytest.mark.spark
def test_a_model_that_cannot_be_pickled_is_one_clear_error_on_spark(spark: OnSpark) -> None:
    with pytest.raises(
        EngineUnavailable, match=r"executors cannot load the model mixer; .*cannot pickle '_thread.lock'"
    ):
        spark.search(table([("a", exploding(1))]), Locked())


@pytest.mark.spark
@pytest.mark.parametrize("again", [pytest.param(0, marks=pytest.mark.long), 2])
def test_a_key_that_spark_does_not_answer_once_is_an_error(
    again: int, spark: OnSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.checkers.engine.spark import GroupedRows

    answered = GroupedRows.collect_part
    monkeypatch.setattr(GroupedRows, "collect_part", lambda rows, number: answered(rows, number) * again)
    with pytest.raises(EngineError, match=f"key a 1 times and answered {again} times"):
        spark.search(table([("a", exploding(1))]), Mixer())


@pytest.mark.spark
def test_no_key_is_at_fault_where_the_context_was_stopped(spark: OnSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.checkers.engine.spark import GroupedRows

    def stopped(rows: Any, number: int) -> Any:
        monkeypatch.setattr(spark.engine._session.sparkContext._jsc, "sc", lambda: Stopped())
        raise EngineError("Job 7 cancelled because SparkContext was shut down")

    monkeypatch.setattr(GroupedRows, "collect_part", stopped)
    with pytest.raises(EngineError, match="has stopped its context"):
        spark.search(table([("a", exploding(1))]), Mixer())


class Stopped:
    def isStopped(self) -> bool:
        return True


@pytest.mark.long
@pytest.mark.spark
def test_parts_of_a_large_history_are_made_when_they_are_asked_for(application: Any, spark: OnSpark) -> None:
    """Nothing runs before: what sorts out the keys can be ended like any other job."""

    def first_of_each(rows: pa.Table) -> pa.Table:  # in here, so that it goes along: no executor finds the tests
        return rows.select(["key"]).slice(0, 1)

    ops = table((str(number), exploding(1)) for number in range(8))
    with application.engine(effects=None) as large:
        large.load("ops", ops)
        tracker = large._session.sparkContext.statusTracker()
        before = len(tracker.getJobIdsForGroup(None))
        keys = [[str(number)] for number in range(8)]
        grouped = large.group_by_key("select * from ops", "key", first_of_each, FIRST, keys)
        assert len(tracker.getJobIdsForGroup(None)) <= before + 1, (
            "more than to tell everyone which key is in which part"
        )
        assert [[row.key for row in grouped.collect_part(number)] for number in range(8)] == keys
        assert without_times(search_on_spark(large, Mixer())) == without_times(search(ops, Mixer(), place=HERE))


@pytest.mark.spark
def test_spark_reports_which_operation_does_not_fit(spark: OnSpark) -> None:
    ops = table(
        [("a", [operation("read", None, 1, call=0, ret=1)]), (None, [operation("pop", None, 1, call=0, ret=1)])]
    )
    reported = []
    for place in (HERE, spark):
        with pytest.raises(ModelError, match=r"^operation 1: ") as caught:
            searched(ops, MODELS["register"], place)
        reported.append(str(caught.value))
    assert reported[0] == reported[1]


@pytest.mark.spark
def test_on_spark_too_a_model_that_contradicts_itself_is_an_error(spark: OnSpark) -> None:
    ops = [operation("peek", 1, call=0, ret=10)]
    with pytest.raises(ModelError, match="reads, but changed the state"):
        spark.search(table([("a", ops), ("b", ops)]), Unsaid())


@pytest.mark.spark
def test_on_spark_too_no_operation_may_count(spark: OnSpark) -> None:
    lost = [operation("read", None, None, call=0, ret=None, outcome="info")]
    for ops in (table([]), table([("a", lost)])):
        assert without_times(spark.search(ops, MODELS["register"])) == without_times(
            search(ops, MODELS["register"], place=HERE)
        )
    some = table([("a", lost), ("b", [operation("write", 1, call=0, ret=1)])])
    assert without_times(spark.search(some, MODELS["register"])) == without_times(
        search(some, MODELS["register"], place=HERE)
    )


@pytest.mark.spark
def test_without_pandas_spark_is_one_clear_error(spark: OnSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_spark, "find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match="needs the package pandas"):
        spark.search(table([("a", exploding(1))]), Mixer())


@pytest.mark.spark
def test_ctrl_c_on_spark_ends_its_jobs_and_leaves_what_is_known(spark: OnSpark) -> None:
    def watch(what: str, done: int, total: int) -> None:
        if done:
            signal.raise_signal(signal.SIGINT)

    stale = [operation("peek", 1, call=0, ret=1)]
    ops = table([("quick", stale), ("slow", exploding(14))])
    judged = spark.search(ops, Mixer(), progress=watch)
    assert judged.interrupted
    assert judged.unknown == ("interrupted; 1 of 2 keys were searched",)
    assert [finding.key for finding in judged.findings] == ["quick"]
    context = spark.engine._session.sparkContext
    assert list(context.statusTracker().getActiveJobsIds()) == []


def more_parts_than_cores(spark: OnSpark, op: Op) -> pa.Table:
    """Most of them wait for a thread when the first is answered."""
    assert spark.engine.parallelism < 8
    return table((str(number), [op]) for number in range(8))


@pytest.mark.long
@pytest.mark.spark
def test_on_spark_an_operation_that_does_not_fit_ends_the_parts_that_wait(spark: OnSpark) -> None:
    ops = more_parts_than_cores(spark, operation("pop", None, 1, call=0, ret=1))
    with pytest.raises(ModelError, match=r"^operation \d: .*pop"):
        spark.search(ops, MODELS["register"])


@pytest.mark.long
@pytest.mark.spark
def test_ctrl_c_on_spark_ends_the_parts_that_wait(spark: OnSpark) -> None:
    def watch(what: str, done: int, total: int) -> None:
        if done:
            signal.raise_signal(signal.SIGINT)

    ops = more_parts_than_cores(spark, operation("write", 1, call=0, ret=1))
    judged = spark.search(ops, MODELS["register"], progress=watch)
    assert judged.interrupted
    assert judged.unknown == ("interrupted; 1 of 8 keys were searched",)


SCRIPT = """
import os
import signal
from assay.checkers.linearizability import Limits, LocalSearch, search
from helpers.linearizability_histories import operation, table
from helpers.linearizability_models import Mixer

signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs this in the background ignores it
arrived, written_by_signal = os.pipe()  # unlike signal.pause, this also sees a signal that came before the wait
os.set_blocking(written_by_signal, False)
signal.set_wakeup_fd(written_by_signal)
slow = [operation("mix", number + 1, call=number, ret=100 + number) for number in range(14)]
ops = table([("quick", slow[:1]), ("slow", slow)])

def reported(what, done, total):
    print(what, done, flush=True)
    if done == 1:
        os.read(arrived, 1)  # otherwise the slow key may reach its memory limit, and the search end, before the signal

judged = search(ops, Mixer(), limits=Limits(seconds=60),
                place=LocalSearch(workers=2, patience=0.0), progress=reported)
print(judged.verdict, judged.interrupted, judged.unknown)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_nothing_is_left_behind_and_what_is_known_is_without_times(number: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.endswith(" 1\n"):
                break
        workers = descendants(process.pid)
        assert len(workers) == 2
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(30) == (0 if number == signal.SIGINT else -number)
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    if number == signal.SIGINT:
        assert rest == "unknown True ('interrupted; 1 of 2 keys were searched',)\n"
    assert left(workers) == []
