"""A run is judged by its contract's checks and, where its experiment names one, by a model: a pass needs both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Finding, Judgement, Verdict
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.run.judging import judge_run, merge_judgements
from assay.harness.run.registry import Registry
from assay.reports.failure_text import EvidenceLines, FailureFooter, describe

NOTHING = Contract(forbidden=(), minimum_operations=1)
"""For an experiment that is judged by a model alone."""
SECOND = 1_000_000_000


def by(model: str | None, contract: Contract = NOTHING) -> Contract:
    return msgspec.structs.replace(contract, model=model)


def judged(folder: Path, read: str, *, f: str = "put", model: str | None, contract: Contract = NOTHING) -> Judgement:
    """A put of ``a`` and a get that answers ``read``, one after the other; without effects."""
    done = [(f, "a", None), ("get", None, read)]
    with HistoryWriter(folder) as writer:
        for index, (verb, argument, result) in enumerate(done):
            operation, completion = Operation(verb, "k", argument), Completion(Outcome.OK, result)
            call = (index + 1) * SECOND
            writer.completed(Completed(index, 0, "w0", operation, completion, call, call + 1), [])
    with Engines() as engines:
        return judge_run(open_history(folder), by(model, contract), engines, Registry.standard())


@pytest.mark.parametrize(("read", "verdict"), [("a", Verdict.PASS), ("b", Verdict.FAIL)])
def test_a_model_alone_judges_a_history_without_effects(tmp_path: Path, read: str, verdict: Verdict) -> None:
    judgement = judged(tmp_path, read, model="kv")
    assert (judgement.verdict, judgement.unknown) == (verdict, ())
    assert judgement.forbidden == ("nonlinearizable",)
    assert "nonlinearizable" in judgement.meanings
    assert [one.check for one in judgement.examined] == ["no-recovery", "nonlinearizable"]


@pytest.mark.parametrize(
    ("done", "reason"),
    [
        ([("put", Outcome.FAIL), ("get", Outcome.FAIL)], "only 0 operations succeeded, the contract asks for 1"),
        ([("put", Outcome.OK)], "no operation that could contradict another"),
        ([], "the history is empty"),
    ],
    ids=["none succeeded", "none looks", "none"],
)
def test_a_model_alone_passes_no_run_in_which_nothing_happened(
    tmp_path: Path, done: list[tuple[str, Outcome]], reason: str
) -> None:
    with HistoryWriter(tmp_path) as writer:
        for index, (f, outcome) in enumerate(done):
            operation, call = Operation(f, "k", "a" if f == "put" else None), (index + 1) * SECOND
            writer.completed(Completed(index, 0, "w0", operation, Completion(outcome), call, call + 1), [])
    with Engines() as engines:
        judgement = judge_run(open_history(tmp_path), by("kv"), engines, Registry.standard())
    assert judgement.verdict is Verdict.UNKNOWN
    assert reason in "\n".join(judgement.unknown)


def test_a_model_alone_passes_no_run_whose_fault_took_no_effect(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        for index in range(8):
            operation, call = Operation("get", "k"), (index + 1) * SECOND
            writer.completed(Completed(index, 0, "w0", operation, Completion(Outcome.OK), call, call + 1), [])
        for phase, time in (("intended", 2), ("injected", 3), ("healed", 6)):
            writer.fault(id=1, fault="partition", targets=["n1"], phase=phase, time=time * SECOND)
    with Engines() as engines:
        judgement = judge_run(open_history(tmp_path), by("kv"), engines, Registry.standard())
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.unknown == ("fault 1 (partition) was injected at 3.000 s, but nothing shows that it took effect",)


def test_what_the_model_finds_fails_a_run_whose_checks_say_nothing(tmp_path: Path) -> None:
    judgement = judged(tmp_path, "b", model="kv", contract=Contract())
    assert judgement.verdict is Verdict.FAIL
    assert "no check applies to this history" in judgement.unknown


def test_what_the_model_finds_names_the_faults_in_force_from_the_last_operation_that_had_a_place(
    tmp_path: Path,
) -> None:
    done = [("put", "a", None), ("put", "b", None), ("get", None, "b"), ("get", None, "a")]
    with HistoryWriter(tmp_path) as writer:
        for index, (verb, argument, result) in enumerate(done):
            call = (index + 1) * SECOND
            operation, completion = Operation(verb, "k", argument), Completion(Outcome.OK, result)
            writer.completed(Completed(index, 0, "w0", operation, completion, call, call + 1), [])
        for number, (begun, healed) in enumerate([(1.1, 2.5), (3.2, 3.8), (4.5, 5.0)], 1):
            for phase, time in (("injected", begun), ("healed", healed)):
                writer.fault(
                    id=number, fault="partition", targets=["n1"], phase=phase, time=int(time * SECOND), took_effect=True
                )
    with Engines() as engines:
        judgement = judge_run(open_history(tmp_path), by("kv"), engines, Registry.standard())
    (found,) = judgement.findings
    assert found.operations[:2] == (3, 2)
    assert found.faults == (2,)


PUT_A, PUT_B, GET_B = ("put", "a", 1), ("put", "b", 2), ("get", "b", 2)
"""Arguments of the model, and the value of the register's effect."""


@pytest.mark.parametrize(
    ("done", "head"),
    [([PUT_A, PUT_B, GET_B, ("get", "a", 1)], "stale-read"),
     ([PUT_A, ("get", "c", 1), PUT_B, GET_B, ("get", "b", 1)], None)],
    ids=["of the same operation", "of another one"],
)  # fmt: skip
def test_what_the_model_finds_is_beneath_what_a_check_says_of_that_operation(
    tmp_path: Path, done: list[tuple[str, str, int]], head: str | None
) -> None:
    with HistoryWriter(tmp_path) as writer:
        for index, (verb, text, value) in enumerate(done):
            put, call = verb == "put", (index + 1) * SECOND
            operation = Operation(verb, "k", text if put else None)
            completion = Completion(Outcome.OK, None if put else text)
            effect = Effect("register-write" if put else "register-read", "k", value=value)
            writer.completed(Completed(index, 0, "w0", operation, completion, call, call + 1), [effect])
    contract = Contract(forbidden=("stale-read",), minimum_operations=1, model="kv")
    with Engines() as engines:
        judgement = judge_run(open_history(tmp_path), contract, engines, Registry.standard())
    heads = {
        one.anomaly: None if one.same_cause_as is None else judgement.findings[one.same_cause_as].anomaly
        for one in judgement.findings
    }
    assert judgement.anomalies == {"nonlinearizable": 1, "stale-read": 1}
    assert heads == {"nonlinearizable": head, "stale-read": None}
    assert describe(judgement, EvidenceLines(), FailureFooter()).startswith("FAIL stale-read: "), "it says more"
    assert [one.anomaly for one in judgement.findings] == ["stale-read", "nonlinearizable"]


def test_of_checks_and_a_model_what_is_forbidden_comes_before_what_is_tolerated() -> None:
    def said(anomalies: list[str], forbidden: str, **more: Any) -> Judgement:
        findings = [Finding(anomaly=anomaly, key="k", operations=(), claim=anomaly) for anomaly in anomalies]
        findings[-1] = msgspec.structs.replace(findings[-1], **more)
        return Judgement(
            verdict=Verdict.FAIL, anomalies=dict.fromkeys(anomalies, 1), forbidden=(forbidden,), tolerated=(),
            findings=tuple(findings), examined=(), unknown=(), operations=2, effects=2, seconds=0.0, engine="duckdb",
        )  # fmt: skip

    checks = said(["stale-read", "borne", "seen-again"], "stale-read", same_cause_as=1)
    both = merge_judgements(checks, said(["nonlinearizable"], "nonlinearizable"))
    assert [one.anomaly for one in both.findings] == ["stale-read", "nonlinearizable", "borne", "seen-again"]
    assert [one.same_cause_as for one in both.findings] == [None, None, None, 2]


def test_what_the_checks_doubt_keeps_a_model_from_passing(tmp_path: Path) -> None:
    judgement = judged(tmp_path, "a", model="kv", contract=Contract())
    assert judgement.verdict is Verdict.UNKNOWN


def test_operations_that_are_not_the_models_are_unknown(tmp_path: Path) -> None:
    judgement = judged(tmp_path, "a", f="leap", model="kv")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "the operations are not those of the model kv: " in judgement.unknown[0]


def test_a_model_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    judgement = judged(tmp_path, "a", model="account")
    assert judgement.verdict is Verdict.UNKNOWN
    remedy = "--plugin=MODULE loads it (there is no model 'account'; known here: "
    assert judgement.unknown[0].startswith(f"the run's model 'account' is not available here: {remedy}")


def test_a_model_whose_module_only_the_run_names_is_not_imported(tmp_path: Path) -> None:
    judgement = judged(tmp_path, "a", model="no_such_module:Account")
    assert judgement.verdict is Verdict.UNKNOWN
    why = "--plugin=MODULE imports it (only the run names its module, so it was not imported)"
    assert judgement.unknown[0] == f"the run's model 'no_such_module:Account' is not available here: {why}"
