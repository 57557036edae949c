"""Tests what the end of an attempt means: a machine in trouble is neither a product in trouble nor a pass."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.docker.engine import DockerEngineError, open_docker
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import CellKind
from assay.harness.nightly.outcome import MachineState, SeenRun, classify
from assay.harness.nightly.subprocess_runner import AttemptEnd
from assay.harness.run import store

from helpers.night_cells import cell

WELL = MachineState(disk_full=lambda: False, docker_answers=lambda: True)
PASS, FAIL, UNKNOWN = SeenRun("pass"), SeenRun("fail", ("lost-write",)), SeenRun("unknown")
LACKS = SeenRun(None, problem="the simulation has no threads")
ABORTED = SeenRun(None, problem=store.ABORTED)
BROKEN = SeenRun(None, problem="ValueError: 20")
RUN = cell()
CANARY = cell(kind=CellKind.CANARY, defect="d", expected=("lost-write", "vanished"))
SKIPPED = "SKIPPED [1] workloads/test_log.py:20: the simulation has no threads\n==== 1 skipped in 0.1s ===="
BESIDE = SKIPPED.replace("1 skipped", "1 passed, 1 skipped")
SEARCH = "assay: a search found nothing in 20 examples"
FAILED = "FAILED workloads/test_log.py::test_log[kill] - Failed: UNKNOWN: too little succeeded"
NO_SPACE = "E   OSError: [Errno 28] No space left on device: '/store/x'"


@pytest.mark.parametrize(
    ("one", "ended", "printed", "runs", "named", "said"),
    [
        (RUN, AttemptEnd(0), "", [PASS], Outcome.PASS, ""),
        (RUN, AttemptEnd(0), "1 xfailed", [PASS, UNKNOWN], Outcome.UNKNOWN, "1 of 2 runs did not pass"),
        (CANARY, AttemptEnd(0), "1 xfailed", [UNKNOWN], Outcome.UNKNOWN, "1 of 1 runs did not pass"),
        (RUN, AttemptEnd(0), "1 passed", [SeenRun(None)], Outcome.UNKNOWN, "1 of 1 runs did not pass"),
        (RUN, AttemptEnd(0), SKIPPED, [LACKS], Outcome.SKIPPED, "the simulation has no threads"),
        (RUN, AttemptEnd(0), SKIPPED, [ABORTED], Outcome.SKIPPED, "the simulation has no threads"),
        (RUN, AttemptEnd(0), SKIPPED, [PASS, LACKS], Outcome.PASS, ""),
        (RUN, AttemptEnd(0), SKIPPED, [PASS, BROKEN], Outcome.UNKNOWN, "1 of 2 runs did not pass"),
        (RUN, AttemptEnd(0), SKIPPED, [PASS, LACKS, BROKEN], Outcome.UNKNOWN, "1 of 3 runs did not pass"),
        (RUN, AttemptEnd(0), SKIPPED, [SeenRun(None)], Outcome.UNKNOWN, "1 of 1 runs did not pass"),
        (RUN, AttemptEnd(0), SKIPPED, [], Outcome.SKIPPED, "the simulation has no threads"),
        (RUN, AttemptEnd(0), BESIDE, [], Outcome.SKIPPED, "the simulation has no threads"),
        (RUN, AttemptEnd(0), "== 1 passed, 1 skipped in 0.1s ==", [], Outcome.SKIPPED, "1 passed, 1 skipped"),
        (RUN, AttemptEnd(0), "collected 2 items / 1 deselected\n== 1 passed, 1 deselected in 0.1s ==", [],
         Outcome.SKIPPED, "no experiment was run: 1 passed, 1 deselected in 0.1s"),
        (RUN, AttemptEnd(0), "== 1 passed in 0.1s ==", [], Outcome.SKIPPED, "only tests without one"),
        (cell(kind=CellKind.SCHEDULE), AttemptEnd(0), "== 1 passed in 0.1s ==", [], Outcome.SKIPPED, "no experiment"),
        (CANARY, AttemptEnd(0), BESIDE, [], Outcome.SKIPPED, "the simulation has no threads"),
        (CANARY, AttemptEnd(0), "== 1 passed in 0.1s ==", [], Outcome.MISSED, "must be reported"),
        (CANARY, AttemptEnd(0), f"{SEARCH}\n{BESIDE}", [], Outcome.MISSED, "must be reported"),
        (RUN, AttemptEnd(1), FAILED, [UNKNOWN], Outcome.UNKNOWN, "Failed: UNKNOWN: too little succeeded"),
        (RUN, AttemptEnd(1), "", [PASS, FAIL], Outcome.FAIL, "lost-write in 1 of 2 runs"),
        (RUN, AttemptEnd(-9), "", [FAIL], Outcome.FAIL, "lost-write in 1 of 1 runs; then killed by SIGKILL"),
        (RUN, AttemptEnd(-9), "", [SeenRun(None)], Outcome.CRASHED, "killed by SIGKILL"),
        (RUN, AttemptEnd(-6, Outcome.HUNG, "no end"), "", [], Outcome.HUNG, "no end"),
        (RUN, AttemptEnd(2, Outcome.INTERRUPTED, "so"), "", [UNKNOWN], Outcome.INTERRUPTED, "so"),
        (RUN, AttemptEnd(2), "", [], Outcome.CRASHED, "interrupted, and not by the night"),
        (RUN, AttemptEnd(2), "ERROR w.py - ImportError: no\n! Interrupted: 1 error during collection !", [],
         Outcome.BROKEN, "ImportError: no"),
        (RUN, AttemptEnd(4), "ERROR: --rate='x' is not a number", [], Outcome.BROKEN, "--rate='x' is not a number"),
        (RUN, AttemptEnd(5), "no tests ran", [], Outcome.BROKEN, "no tests ran"),
        (RUN, AttemptEnd(3), "INTERNALERROR> KeyError: 'a'", [], Outcome.CRASHED, "exit code 3: KeyError: 'a'"),
        (RUN, AttemptEnd(1), NO_SPACE, [SeenRun(None)], Outcome.NO_DISK, NO_SPACE),
        (RUN, AttemptEnd(1), NO_SPACE, [UNKNOWN], Outcome.UNKNOWN, "OSError: [Errno 28] No space left"),
        (CANARY, AttemptEnd(1), "", [FAIL], Outcome.DETECTED, "lost-write in 1 of 1 runs"),
        (CANARY, AttemptEnd(0), "", [PASS], Outcome.MISSED, "every run passes, but lost-write, vanished"),
        (CANARY, AttemptEnd(1), "", [SeenRun("fail", ("phantom",))], Outcome.MISSED,
        "fails otherwise: phantom in 1 of 1"),
        (CANARY, AttemptEnd(1), FAILED, [UNKNOWN], Outcome.UNKNOWN, "too little succeeded"),
        (CANARY, AttemptEnd(-11), "", [], Outcome.CRASHED, "SIGSEGV"),
        (cell(kind=CellKind.EXPLORE), AttemptEnd(0), "=== 1 passed in 9s ===", [], Outcome.PASS, ""),
        (cell(kind=CellKind.EXPLORE), AttemptEnd(0), BESIDE, [], Outcome.SKIPPED, "the simulation has no threads"),
        (cell(kind=CellKind.EXPLORE), AttemptEnd(0), f"{SEARCH}\n{BESIDE}", [], Outcome.PASS, ""),
        (cell(kind=CellKind.EXPLORE), AttemptEnd(1), "FOUND vanished: after 9 examples, 3 s", [],
         Outcome.FAIL, "FOUND vanished"),
        (cell(kind=CellKind.EXPLORE), AttemptEnd(1), FAILED, [], Outcome.UNKNOWN, "too little"),
    ],
)  # fmt: skip
def test_an_end_has_a_name_and_a_cause(
    one: object, ended: AttemptEnd, printed: str, runs: list[SeenRun], named: Outcome, said: str
) -> None:
    found, detail = classify(one, ended, printed, runs, WELL)  # type: ignore[arg-type]
    assert found is named
    assert said in " ".join(detail.split()) or " ".join(said.split()) in detail


def test_an_engine_that_dies_is_known_by_the_message_of_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(DockerEngineError) as raised, open_docker():
        pass
    printed = f"ERROR w.py::t[kill] - Failed: the cluster did not start: EngineError: {raised.value}"
    found, detail = classify(cell(cluster="docker"), AttemptEnd(1), printed, [SeenRun(None)], WELL)
    assert (found, detail) == (Outcome.NO_DOCKER, str(raised.value))
    cleared = (
        f"ERROR w.py::t[none] - assay.cluster.docker.engine.DockerEngineError: not undone: n3 removed: {raised.value}"
    )
    found, detail = classify(cell(cluster="docker"), AttemptEnd(1), cleared, [PASS], WELL)
    assert (found, detail) == (Outcome.NO_DOCKER, str(raised.value)), "after a run whose verdict is pass"
    other = "ERROR w.py::t[none] - AssertionError: something else"
    assert classify(cell(cluster="docker"), AttemptEnd(1), other, [PASS], WELL)[0] is Outcome.UNKNOWN
    failing = [SeenRun("fail", ("phantom",))]
    assert classify(CANARY, AttemptEnd(1), cleared, failing, WELL)[0] is Outcome.MISSED, (
        "a verdict that is there counts"
    )


@pytest.mark.parametrize("ended", [AttemptEnd(1), AttemptEnd(-9), AttemptEnd(-6, Outcome.HUNG, "no end")])
def test_an_engine_that_is_gone_and_a_full_disk_are_looked_for_where_nothing_is_said(ended: AttemptEnd) -> None:
    gone = MachineState(disk_full=lambda: False, docker_answers=lambda: False)
    assert classify(cell(cluster="docker"), ended, "", [], gone)[0] is Outcome.NO_DOCKER
    assert classify(cell(cluster="sim"), ended, "", [], gone)[0] is not Outcome.NO_DOCKER
    full = MachineState(disk_full=lambda: True, docker_answers=lambda: True)
    assert classify(RUN, ended, "", [], full) == (Outcome.NO_DISK, "the disk of the store is full")


STOPS = st.sampled_from([None, Outcome.HUNG, Outcome.INTERRUPTED])
PRINTED = st.lists(st.sampled_from([SKIPPED, FAILED, NO_SPACE, "FOUND x", "1 passed", "errors during collection", ""]))
MACHINES = st.builds(lambda full, there: MachineState(lambda: full, lambda: there), st.booleans(), st.booleans())


@given(
    one=st.sampled_from([RUN, CANARY, cell(kind=CellKind.SCHEDULE, cluster="docker")]),
    ended=st.builds(AttemptEnd, st.integers(-64, 140), STOPS, st.just("why")),
    printed=PRINTED.map("\n".join),
    runs=st.lists(st.sampled_from([PASS, UNKNOWN, SeenRun(None), LACKS]), max_size=3),
    machine=MACHINES,
)
def test_without_a_failing_run_nothing_fails_and_only_what_ended_well_passes(
    one: object, ended: AttemptEnd, printed: str, runs: list[SeenRun], machine: MachineState
) -> None:
    found, detail = classify(one, ended, printed, runs, machine)  # type: ignore[arg-type]
    assert found not in (Outcome.FAIL, Outcome.DETECTED)
    assert found not in (Outcome.PASS, Outcome.MISSED, Outcome.SKIPPED) or ended.status == 0
    assert found is not Outcome.PASS or UNKNOWN not in runs
    assert found is not Outcome.PASS or PASS in runs
    assert "\n" not in detail
    assert detail or found is Outcome.PASS


@given(st.integers(-64, 140), STOPS, MACHINES)
def test_a_failing_run_is_never_hidden_by_what_came_after_it(
    status: int, stopped: Outcome | None, machine: MachineState
) -> None:
    ended = AttemptEnd(status, stopped, "why")
    assert classify(RUN, ended, NO_SPACE, [FAIL, SeenRun(None)], machine)[0] is Outcome.FAIL
    assert classify(CANARY, ended, NO_SPACE, [FAIL, SeenRun(None)], machine)[0] is Outcome.DETECTED


def test_every_signal_has_its_name() -> None:
    for number in signal.valid_signals():
        assert classify(RUN, AttemptEnd(-number), "", [], WELL)[0] is Outcome.CRASHED
