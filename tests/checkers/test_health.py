"""Health: a kind of operation that was never answered makes a run unknown; an answer, or a fault, excuses it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.health import CALM_OPERATIONS
from assay.checkers.judging.verdict import Judgement, OperationCount, Verdict
from assay.checkers.register.family import REGISTER_ANOMALIES
from assay.reports.coverage import describe_kinds, describe_totals

from helpers.fault_rows import fault, impact
from helpers.judging import judge, opened
from helpers.log_histories import Row, effect, write

S: Final = 1_000_000_000
IDS: Final = Contract(forbidden=("id-duplicate",))


def operations(f: str, first: int, number: int, outcome: str, error: str | None = None) -> list[Row]:
    """Operations of 50 ms, ten per second."""
    rows = []
    for op in range(first, first + number):
        call, ret = op * S // 10, None if outcome == "info" else op * S // 10 + S // 20
        rows.append(effect(op, 0, f, "k", call, ret, value=op, process=op, outcome=outcome, error=error))
    return rows


def judged(folder: Path, rows: Sequence[Row], contract: Contract = IDS, **given: Any) -> Judgement:
    """Twelve unique ids are handed out in the first second and twelve in the tenth, and the rows happen in between."""
    ids = [*operations("id-generate", 0, 12, "ok"), *operations("id-generate", 100, 12, "ok")]
    return judge(write(folder / "history", [*ids, *rows], **given), contract)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        pytest.param(
            operations("set-remove", 20, 20, "info", "TimeoutError: no answer"),
            "no set-remove was answered: 20 were issued, and all ended with TimeoutError (20)",
            id="unknown",
        ),
        pytest.param(
            [
                *operations("set-remove", 20, 25, "fail", "Refused"),
                *operations("set-remove", 45, 5, "info"),
            ],
            "no set-remove was answered: 30 were issued, and all ended with Refused (25) and no error given (5)",
            id="refused connections",
        ),
        pytest.param(operations("set-remove", 20, 19, "info", "TimeoutError"), None, id="too few"),
        pytest.param(
            [*operations("set-remove", 20, 30, "info", "TimeoutError"), *operations("set-remove", 50, 1, "ok")],
            None,
            id="one answer",
        ),
        pytest.param(
            [*operations("set-remove", 20, 30, "info", "x"), *operations("set-remove", 50, 1, "fail", "held: by n1")],
            None,
            id="one refusal",
        ),
    ],
)
def test_a_kind_that_was_never_answered_makes_the_run_unknown(
    tmp_path: Path, rows: list[Row], reason: str | None
) -> None:
    found = judged(tmp_path, rows)
    if reason is None:
        assert (found.verdict, found.unknown) == (Verdict.PASS, ())
    else:
        assert found.verdict is Verdict.UNKNOWN
        (said,) = found.unknown
        assert said.startswith(f"{reason}; ")


@pytest.mark.parametrize("name", ["not-today", "can't", "a') or trim(null) in ('"])
def test_a_refusal_may_have_a_name_of_its_own(tmp_path: Path, name: str) -> None:
    rows = operations("set-remove", 20, 30, "fail", name)
    assert judged(tmp_path / "none", rows).verdict is Verdict.UNKNOWN
    named = msgspec.structs.replace(IDS, refusals=forbid(refusals=[name]).refusals)
    assert judged(tmp_path / "named", rows, named).verdict is Verdict.PASS
    assert "held" in named.refusals, "the usual ones stay"


SOUND: Final = msgspec.structs.replace(IDS, minimum_during_fault=0, minimum_after_heal=0, recovery_deadline=1000)
"""Asks for nothing during and after faults."""


def kill(injected: float, healed: float, not_before: float | None = None) -> list[Row]:
    shared = {"id": 1, "fault": "kill", "targets": '["n1"]', "detail": "{}", **impact("kill")}
    intended = [] if not_before is None else [{"phase": "intended", "time": 0, "not_before": int(not_before * S)}]
    return [
        *[{**shared, **row} for row in intended],
        {**shared, "phase": "injected", "time": int(injected * S)},
        {**shared, "phase": "healed", "time": int(healed * S) - 1, "took_effect": True},
    ]


@pytest.mark.parametrize(("healed", "verdict"), [(4.9, Verdict.PASS), (3.0, Verdict.UNKNOWN)])
def test_a_fault_during_all_but_a_few_of_them_explains_their_errors(
    tmp_path: Path, healed: float, verdict: Verdict
) -> None:
    rows = [*operations("set-remove", 20, 38, "info", "TimeoutError")]
    found = judged(tmp_path, rows, SOUND, faults=kill(1.9, healed))
    assert found.verdict is verdict, found.unknown
    if verdict is Verdict.UNKNOWN:
        assert "38 were issued, 28 of them outside faults, and all ended" in found.unknown[0]


def test_a_fault_explains_errors_from_the_begin_of_its_injection_on(tmp_path: Path) -> None:
    rows = operations("set-remove", 20, 38, "info", "TimeoutError")
    assert judged(tmp_path / "long", rows, SOUND, faults=kill(5.5, 5.9, 1.9)).verdict is Verdict.PASS
    assert judged(tmp_path / "short", rows, SOUND, faults=kill(5.5, 5.9, 5.4)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("ret", "verdict"), [(5.1, Verdict.PASS), (4.9, Verdict.UNKNOWN)])
def test_a_fault_explains_the_errors_of_operations_that_it_interrupts(
    tmp_path: Path, ret: float, verdict: Verdict
) -> None:
    rows = [
        effect(op, 0, "set-remove", "k", 2 * S + op, int(ret * S) + op, process=op, outcome="fail", error="Refused")
        for op in range(20, 58)
    ]
    assert judged(tmp_path, rows, SOUND, faults=kill(5.0, 5.9)).verdict is verdict


def test_counts_are_in_the_judgement_and_in_words(tmp_path: Path) -> None:
    rows = [*operations("set-remove", 20, 2, "info"), *operations("set-remove", 22, 3, "fail", "held")]
    found = judged(tmp_path, rows)
    assert found.kinds["set-remove"] == OperationCount(ok=0, fail=3, info=2, answered=3)
    assert found.kinds["set-remove"].issued == 5
    assert describe_totals(found) == "29 operations (24 ok, 3 failed, 2 unknown)"
    assert "set-remove 3 failed, 2 unknown" in describe_kinds(found)
    old = msgspec.structs.replace(found, kinds={})
    assert (describe_totals(old), describe_kinds(old)) == ("29 operations", "")


@pytest.mark.parametrize(("failed", "warned"), [(24, False), (25, True)])
def test_a_run_of_which_most_was_not_answered_gets_a_warning(tmp_path: Path, failed: int, warned: bool) -> None:
    found = judged(tmp_path, operations("set-remove", 20, failed, "fail", "Refused"))
    said = f"only 24 of {24 + failed} operations were answered; the others ended with Refused ({failed})"
    assert found.warnings == ((said,) if warned else ())


FAILED: Final = [
    *operations("set-add", 20, 11, "fail", "OSError: no route"),
    *operations("set-add", 31, 8, "info", "timeout"),
    *operations("set-add", 39, 2, "ok"),
]
"""Two of 21 adds are answered."""
SAID: Final = "of 21 set-add 2 were answered: OSError (11) and timeout (8)"


@pytest.mark.parametrize(
    ("rows", "succeeded", "helps"),
    [
        ([], 24, "let the run last longer (--time-limit), or raise --rate"),
        (operations("set-add", 20, 21, "ok"), 45, "let the run last longer (--time-limit), or raise --rate"),
        (FAILED, 26, f"{SAID}; see why the system does not answer (if it is only slow, a longer --operation-timeout"),
        (FAILED[:11], 24, "of 11 set-add none was answered: OSError (11); see why the system does not answer"),
    ],
    ids=["few were issued", "all were answered", "some timed out", "none was answered"],
)
def test_a_run_with_too_few_successes_says_why_and_what_helps(
    tmp_path: Path, rows: list[Row], succeeded: int, helps: str
) -> None:
    found = judged(tmp_path, rows, msgspec.structs.replace(IDS, minimum_operations=100))
    (reason,) = found.unknown
    assert reason.startswith(f"only {succeeded} operations succeeded, the contract asks for 100; {helps}")


@pytest.mark.parametrize(("rows", "why"), [(FAILED, f"; {SAID}"), (operations("set-add", 20, 21, "ok"), "")])
def test_a_claim_that_is_not_exposed_says_which_operations_failed(tmp_path: Path, rows: list[Row], why: str) -> None:
    found = judged(tmp_path, rows, IDS.need("set-lost"))
    (reason,) = found.unknown
    assert reason.startswith("set-lost: ")
    assert reason.endswith(f"add a final read (sets.final_reads()){why}")


def test_a_check_without_data_says_which_operations_failed(tmp_path: Path) -> None:
    rows = operations("set-read", 20, 5, "fail", "OSError")
    (reason,) = judged(tmp_path, rows, IDS.need("set-phantom")).unknown
    assert reason == "set-phantom is forbidden, but its check had no data; of 5 set-read none was answered: OSError (5)"
    assert judged(tmp_path / "ok", operations("set-read", 20, 5, "ok"), IDS.need("set-phantom")).unknown != ()


DISTURBED: Final = msgspec.structs.replace(IDS, failover=1.0, recovery_deadline=1000)


@pytest.mark.parametrize("outcome", ["fail", "ok"])
def test_a_fault_without_success_says_which_operations_failed_and_what_helps(tmp_path: Path, outcome: str) -> None:
    rows = operations("set-add", 20, 21, outcome, None if outcome == "ok" else "OSError")
    found = judged(tmp_path, rows, DISTURBED, faults=kill(1.9, 4.9))
    if outcome == "ok":
        assert found.verdict is Verdict.PASS, found.unknown
        return
    (reason,) = found.unknown
    assert "; of 21 set-add none was answered: OSError (21); if the design allows that, set failover and" in reason
    assert "patience in the contract to more than 3 s in sum, or name the fault in may_stall" in reason


@pytest.mark.parametrize(
    ("rows", "helps"),
    [
        ([], "none was issued then, so let the workload end with a drain or final reads"),
        (operations("set-add", 120, 4, "fail", "OSError"), "of 4 set-add none was answered: OSError (4); see why the"),
    ],
)
def test_a_run_without_success_after_the_last_heal_says_why(tmp_path: Path, rows: list[Row], helps: str) -> None:
    found = judged(tmp_path, rows, DISTURBED, faults=kill(9.9, 11.9))
    (reason,) = found.unknown
    assert f"the contract asks for 1; {helps}" in reason


def test_an_interrupted_run_is_not_advised_to_drain_or_to_last_longer(tmp_path: Path) -> None:
    """Its operations after the heal are missing because of the interruption."""
    ids = operations("id-generate", 0, 24, "ok")
    found = judge(write(tmp_path / "history", ids, faults=kill(9.9, 11.9)), DISTURBED, interrupted=True)
    (reason,) = [one for one in found.unknown if "after the last heal" in one]
    assert reason.endswith("the contract asks for 1; the run did not come to its own end")
    assert not [one for one in found.unknown if "drain" in one or "--time-limit" in one]


@pytest.mark.parametrize(("answered", "verdict"), [(0, Verdict.UNKNOWN), (1, Verdict.PASS)])
def test_reads_of_a_register_prove_nothing_if_no_write_was_answered(
    tmp_path: Path, answered: int, verdict: Verdict
) -> None:
    """Twelve reads find the initial value, and thirty writes may never have happened."""
    writes = operations("register-write", 0, 30 - answered, "info", "TimeoutError")
    writes += operations("register-write", 60, answered, "ok")
    reads = [{**row, "value": None} for row in operations("register-read", 40, 12, "ok")]
    # The acknowledged write counts only if a later read could show it.
    reads += [{**row, "value": writes[-1]["value"]} for row in operations("register-read", 70, answered, "ok")]
    found = judge(write(tmp_path / "history", [*writes, *reads]), forbid(*REGISTER_ANOMALIES))
    assert found.verdict is verdict, found.unknown
    assert (found.unknown != ()) is (answered == 0)
    if not answered:
        assert any(one.startswith("no register-write was answered: 30 were issued") for one in found.unknown)
        assert any(one.startswith("stale-read: no write was acknowledged") for one in found.unknown)


@pytest.mark.parametrize(
    ("answered_until", "faults", "verdict"),
    [
        pytest.param(3.0, [], Verdict.UNKNOWN, id="it-falls-silent"),
        pytest.param(6.0, [], Verdict.PASS, id="it-answers-to-the-end"),
        pytest.param(5.3, [], Verdict.PASS, id="only-the-last-few-are-lost"),
        pytest.param(
            3.0, fault(1, "kill", 3 * S, 59 * S // 10), Verdict.UNKNOWN, id="a-fault-explains-it-until-its-heal"
        ),
    ],
)
def test_a_system_that_falls_silent_before_the_end_is_no_pass(
    tmp_path: Path, answered_until: float, faults: list[Row], verdict: Verdict
) -> None:
    """Ids are handed out ten times a second for six seconds."""
    rows = operations("id-generate", 0, int(answered_until * 10), "ok")
    rows += operations("id-generate", int(answered_until * 10), 60 - int(answered_until * 10), "info", "TimeoutError")
    found = judge(write(tmp_path / "history", rows, faults=faults), IDS)
    assert found.verdict is verdict, found.unknown
    silent = [reason for reason in found.unknown if "fell silent" in reason]
    assert bool(silent) is (verdict is Verdict.UNKNOWN and not faults)
    if silent:
        assert silent[0].startswith(
            "no operation was answered after 2.950 s, and 30 were called until 5.900 s: TimeoutError (30)"
        )


def test_a_soak_with_many_faults_has_a_verdict(tmp_path: Path) -> None:
    """SQLite takes no expression of a thousand terms."""
    faults = [
        {**row, "id": number} for number in range(1_100) for row in kill(1.95 + number / 1e4, 1.95005 + number / 1e4)
    ]
    found = judged(tmp_path, operations("set-remove", 20, 38, "info", "TimeoutError"), SOUND, faults=faults)
    assert found.engine == "sqlite"
    assert "38 were issued, 37 of them outside faults, and all ended" in found.unknown[0]


@pytest.mark.parametrize("seed", range(8))
def test_calm_operations_are_those_during_which_no_fault_was_active(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    times = [sorted(draw.sample(range(10, 160), 2)) for _ in range(draw.randint(1, 4))]
    faults = [{**row, "id": number} for number, (a, b) in enumerate(times) for row in kill(a / 10, b / 10)]
    last = draw.choice([None, *faults])
    faults = [row for row in faults if row is not last or row["phase"] != "healed"]
    rows = [*operations("a", 0, 80, "ok"), *operations("b", 80, 80, "info")]
    with opened(write(tmp_path / "history", rows, faults=faults)) as engine:
        found = {int(row["op"]) for row in engine.rows(CALM_OPERATIONS)}
    active = [
        (row["time"], min((heal["time"] for heal in faults if heal["id"] == row["id"] and heal["phase"] == "healed"),
                          default=math.inf))
        for row in faults if row["phase"] == "injected"
    ]  # fmt: skip
    assert found == {
        row["op"] for row in rows
        if not any(row["call"] <= end and (row["ret"] or row["call"]) >= begin for begin, end in active)
    }  # fmt: skip
