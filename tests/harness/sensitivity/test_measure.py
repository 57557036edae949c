"""Tests measurements of tiny runs, whose numbers are known by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from assay.checkers.check import Check, family_of
from assay.checkers.engine import Engines
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.judge import judge
from assay.checkers.judging.sensitivity import PlantedShare, Sensitivity
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.core.history import HistoryReader
from assay.harness.sensitivity import measure as measuring
from assay.harness.sensitivity.measure import measure
from assay.harness.sensitivity.register_plants import (
    _find_chained,
    _find_reads_before_writes,
    _find_writes,
    _keep,
)

from helpers.fault_rows import impact
from helpers.log_histories import Book, Row, effect, write

S: Final = 1_000_000_000
SETS: Final = Contract(forbidden=("set-phantom",), minimum_operations=1).forbid_also(
    "set-lost", "set-vanished", "set-stale"
)


def add(op: int, value: int, key: str = "seen", **given: Any) -> Row:
    return effect(op, 0, "set-add", key, 2 * op * S, (2 * op + 1) * S, value=value, process=op, **given)


def read(op: int, values: Sequence[int], key: str = "seen") -> list[Row]:
    return [
        effect(op, sub, "set-read", key, 2 * op * S, (2 * op + 1) * S, value=value, process=op)
        for sub, value in enumerate(values or [None])
    ]


def judged(history: HistoryReader, contract: Contract, engines: Engines, **given: Any) -> Judgement:
    with engines.open(history) as engine:
        return judge(history, contract, engine, **given)


def measured(
    folder: Path, rows: Sequence[Row], contract: Contract = SETS, engine: str = "auto", faults: Sequence[Row] = (),
    events: Sequence[Row] = (), **given: Any,
) -> Sensitivity:  # fmt: skip
    if not folder.exists():
        write(folder, rows, faults=faults, events=events)
    history, engines = open_history(folder), Engines(engine)
    judgement = judged(history, contract, engines)
    assert judgement.verdict is Verdict.PASS, judgement.unknown
    return measure(history, contract, judgement, engines, **given)


def without_times(measured: Sensitivity) -> Sensitivity:
    return msgspec.structs.replace(measured, seconds=0, judging_seconds=0)


def by_anomaly(measured: Sensitivity) -> dict[str, PlantedShare]:
    return {share.anomaly: share for share in measured.shares}


SEEN: Final = [*(add(op, op) for op in range(8)), *read(8, range(8))]
BLIND: Final = [add(10 + op, op, "blind") for op in range(4)]


def test_the_numbers_of_a_tiny_run_with_a_key_that_no_one_reads(tmp_path: Path) -> None:
    found = measured(tmp_path / "history", [*SEEN, *BLIND])
    shares = by_anomaly(found)
    assert shares["set-lost"] == PlantedShare(
        anomaly="set-lost",
        meaning="an acknowledged element disappears at the last fault, or at once if it was added later",
        claims=12,
        exposed=8,
        planted=12,
        caught=8,
        planted_exposed=8,
        caught_exposed=8,
        found_as={"set-lost": 16},
        missed=shares["set-lost"].missed,
    )
    assert shares["set-lost"].missed is not None
    assert shares["set-lost"].missed.startswith("element ")
    assert shares["set-lost"].missed.endswith(
        " of blind: no read was called after it and after the heal of the last fault"
    )
    assert shares["set-lost"].is_low
    counts = {name: (one.claims, one.exposed, one.planted, one.caught) for name, one in shares.items()}
    assert counts == {
        "set-lost": (12, 8, 12, 8),
        "set-stale": (12, 8, 12, 8),
        "set-vanished": (8, 0, 8, 0),  # nothing was read after the only read
        "set-phantom": (1, 1, 1, 1),
    }
    assert found.copies == 16 + 16 + 0 + 2
    assert (found.escaped, found.left_out, found.not_planted) == ((), None, ())


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
@pytest.mark.parametrize("key", ["it's", "a\\' or 1 = 1", "a\0b", "INJECTED"], ids=["quote", "backslash", "NUL", "SQL"])
def test_no_key_becomes_sql(tmp_path: Path, engine: str, key: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("a file of the user")
    if key == "INJECTED":
        statement = f"copy (select 42 as pwned) to '{victim}' (header false)"
        key = f"a'); {statement}; select * from effects where key in ('a"
    rows = [{**row, "key": key} for row in SEEN]
    found = by_anomaly(measured(tmp_path / "history", rows, engine=engine))["set-lost"]
    assert (found.claims, found.planted, found.caught) == (8, 8, 8)
    assert victim.read_text() == "a file of the user"


def registers(count: int, seed: int) -> list[dict[str, Any]]:
    """Returns overlapping writes and reads of one register in random order of their times, many of them equal."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for op in range(count):
        call = rng.randrange(2 * count)
        kind = rng.choice(["register-write", "register-read"])
        row = effect(op, 0, kind, "k", call, call + rng.randrange(1, 9), value=op, process=op)
        rows.append({"version": None, "position": None, **row})
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_a_register_claim_names_the_write_before_or_after_it(seed: int) -> None:
    rows = registers(30, seed)
    writes = [row for row in rows if row["kind"] == "register-write"]
    for claim in _find_writes(rows, 0):
        assert claim.row is not None
        before = [one for one in writes if one["ret"] < claim.row["call"]]
        assert (claim.other or {}).get("ret") == max((one["ret"] for one in before), default=None)
    for claim in _find_reads_before_writes(rows, 0):
        assert claim.row is not None
        after = [one for one in writes if one["call"] > claim.row["ret"]]
        assert (claim.other or {}).get("call") == min((one["call"] for one in after), default=None)


class CountedRow(dict[str, Any]):
    reads = 0

    def __getitem__(self, column: str) -> Any:
        CountedRow.reads += 1
        return super().__getitem__(column)


def count_reads(rows: list[dict[str, Any]]) -> int:
    counted = [CountedRow(row) for row in rows]
    before = CountedRow.reads
    assert _find_writes(counted, 0)
    assert _find_reads_before_writes(counted, 0)
    return CountedRow.reads - before


def test_the_work_for_claims_of_a_register_grows_with_its_rows() -> None:
    assert count_reads(registers(2_000, 1)) < 2.5 * count_reads(registers(1_000, 1))


def test_a_read_before_the_heal_exposes_no_element_that_the_fault_may_have_destroyed(tmp_path: Path) -> None:
    shared = {"id": 1, "fault": "power-loss", "targets": "[]", "detail": "{}", **impact("power-loss")}
    loss = [
        {**shared, "phase": "injected", "time": 18 * S}, {**shared, "phase": "healed", "time": 19 * S,
                                                          "took_effect": True},
    ]  # fmt: skip
    late = [add(30, 30), *read(31, [*range(8), 30])]
    contract = msgspec.structs.replace(SETS, minimum_during_fault=0)
    early = by_anomaly(measured(tmp_path / "early", [*SEEN, add(30, 30)], contract, faults=loss))
    assert (early["set-lost"].claims, early["set-lost"].exposed) == (9, 0)
    found = by_anomaly(measured(tmp_path / "late", [*SEEN, *late], contract, faults=loss))
    assert (found["set-lost"].claims, found["set-lost"].exposed, found["set-lost"].caught) == (9, 9, 9)


def test_one_seed_gives_one_result_and_another_seed_draws_others(tmp_path: Path) -> None:
    rows = [*SEEN, *(add(10 + op, op, "blind") for op in range(40))]
    folder = tmp_path / "history"
    first, again = (without_times(measured(folder, rows, plants=2, seed=3)) for _ in range(2))
    assert first == again
    missed = {by_anomaly(measured(folder, rows, plants=2, seed=seed))["set-lost"].missed for seed in range(4)}
    assert len(missed) > 1
    assert {one.planted for one in first.shares} <= {1, 2}


def test_only_the_wanted_anomalies_are_measured(tmp_path: Path) -> None:
    found = measured(tmp_path / "history", SEEN, anomalies=["set-lost"])
    assert [one.anomaly for one in found.shares] == ["set-lost"]
    assert found.not_planted == ()


def test_a_run_that_did_not_pass_is_refused(tmp_path: Path) -> None:
    engines = Engines()
    for name, rows, verdict in (("fail", [*SEEN[:8], *read(8, range(7))], "fail"), ("unknown", SEEN[:8], "unknown")):
        contract = forbid("set-lost")
        history = open_history(write(tmp_path / name, rows))
        judgement = judged(history, contract, engines)
        assert judgement.verdict == verdict
        with pytest.raises(ValueError, match=f"the verdict is {verdict}"):
            measure(history, contract, judgement, engines)


def test_each_anomaly_without_a_plant_is_named_with_the_reason(tmp_path: Path) -> None:
    log = Book("orders-0")
    log.send(range(12), 0, (200, 201), process=900)
    log.send([99], 12, (202, 203), process=900, phase="sentinel")
    log.poll(0, [*enumerate(range(12)), (12, 99)], 13, (204, 205), process=901, phase="drain")
    log.add("drained", (206, 207), 13, phase="drain", process=902)
    rows = [*SEEN, *({**row, "op": row["op"] + 500} for row in log.rows)]
    exit_event = {"time": 5, "node": "n1", "incarnation": 1, "seq": 1, "event": "first-append-in-epoch",
                  "key": "orders-0", "epoch": 1, "position": 0, "detail": "{}"}  # fmt: skip
    contract = SETS.forbid_also("no-recovery", "two-leaders", "unseen")
    found = measured(tmp_path / "history", rows, contract, events=[exit_event])
    assert {one.anomaly: one.reason for one in found.not_planted} == {
        "no-recovery": measuring.WHOLE_RUN,
        "two-leaders": measuring.SERVERS,
        "unseen": measuring.DEADLINE,
    }


def test_no_built_in_anomaly_is_without_a_plant_or_a_reason() -> None:
    planted = {plant.anomaly for plant in measuring.PLANTS}
    known = {check.anomaly for family in FAMILIES for check in family.checks}
    assert planted <= known
    reasons = {name: measuring.explain_unplanted(name, FAMILIES, FAMILIES) for name in known - planted}
    about_topics = {"forbidden-deletion", "resurrected", "done-but-lost"}
    assert {name for name, reason in reasons.items() if reason == measuring.TOPICS} == about_topics


OWN: Final = family_of(
    Check(
        anomaly="set-odd",
        meaning="a set has an odd element",
        violations="select key, value from effects where kind = 'set-add' and value = 999",
        evidence="select key, value from found_set_odd limit 3",
        examined="select count(*) as examined from effects where kind = 'set-add'",
        claim="{key} has {value}.",
    ),
    applies="effects where kind = 'set-add'",
)


def test_a_check_of_your_own_has_no_plant(tmp_path: Path) -> None:
    contract = msgspec.structs.replace(SETS, forbidden=("set-phantom", "set-odd"), needed=None)
    history, engines = open_history(write(tmp_path / "history", [*SEEN, *BLIND])), Engines()
    families = (*FAMILIES, OWN)
    judgement = judged(history, contract, engines, families=families)
    assert judgement.verdict is Verdict.PASS, judgement.unknown
    found = measure(history, contract, judgement, engines, families=families)
    assert {one.anomaly: one.reason for one in found.not_planted} == {"set-odd": measuring.OWN_CHECK}


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def test_other_engines_measure_what_duckdb_does(tmp_path: Path, engine: str) -> None:
    rows, folder = [*SEEN, *BLIND], tmp_path / "history"
    assert without_times(measured(folder, rows, engine=engine)) == without_times(
        measured(folder, rows, engine="duckdb")
    )


def test_truth_values_stay_such_in_every_engine(tmp_path: Path) -> None:
    """SQLite has none, and a copy is a history like any other."""
    rows = [add(op, op, tombstone=False) for op in range(8)] + read(8, range(8))
    assert by_anomaly(measured(tmp_path / "history", rows, engine="sqlite"))["set-lost"].caught == 8


def test_objects_beyond_the_limit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.harness.sensitivity.measure.MOST_ROWS", 10)
    found = measured(tmp_path / "history", [*SEEN, *BLIND])
    assert found.left_out == "of 2 objects, 1 were looked at"
    assert by_anomaly(found)["set-lost"].claims in (4, 8)


def test_objects_that_do_not_fit_into_memory_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.harness.sensitivity.measure.LARGEST", 3)
    found = measured(tmp_path / "history", [*SEEN, *BLIND])
    assert found.left_out == "of 2 objects, 0 were looked at; 2 with more than 3 effects were not"
    assert found.shares == ()


def test_a_compare_and_set_is_no_rival_of_one_that_replaced_its_value() -> None:
    """The later one was called first: both were open at once."""
    common = {"version": None, "position": None}
    rows = [
        {**effect(0, 0, "register-write", "k", 0, 1, value=1, process=0), **common, "expected": None},
        {**effect(1, 0, "register-cas", "k", 2, 9, value=3, process=1), **common, "expected": 2},
        {**effect(2, 0, "register-cas", "k", 3, 5, value=2, process=2), **common, "expected": 1},
    ]
    first, second = _find_chained(rows, 0)
    assert (first.row, first.other) == (rows[1], rows[2])
    assert (second.row, second.other, second.exposed) == (rows[2], None, False)


def test_a_selection_of_a_register_has_what_its_rows_saw_and_nothing_else() -> None:
    common = {"version": None, "position": None}
    chain = [
        {**effect(op, 0, "register-cas", "k", 3 * op, 3 * op + 1, value=op, process=op), **common, "expected": op - 1}
        for op in range(1, 5)
    ]
    writes = [
        {**effect(op, 0, "register-write", "k", 3 * op, 3 * op + 1, value=op, process=op), **common, "expected": None}
        for op in range(5, 8)
    ]
    read = {**effect(9, 0, "register-read", "k", 30, 31, value=7, process=9), **common, "expected": None}
    rows = [*chain, *writes, read]
    assert _keep(rows, [read]) == [writes[2], read]
    assert _keep(rows, [chain[2]]) == chain[:3]
