"""A check that names kinds of effects is not asked of a history without them, in which it would find nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assay.checkers.check import NOTHING_COUNTED, create_views, run_check
from assay.checkers.engine import EngineError, SQLite
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history, register_contract
from assay.checkers.judging.judge import judge
from assay.checkers.log.family import LOG, REPORTED, STATEMENTS
from assay.checkers.log.offset_by_time import TIME_LOOK_UP

from helpers.judging import opened
from helpers.log_histories import Book, Row, SimulatedLog, broken, effect, write

OF_LOGS = (LOG, STATEMENTS, REPORTED)
NAMED = sorted({check.kinds for family in FAMILIES for check in family.checks if check.kinds})


def some_logs() -> list[Row]:
    """Returns logs, most of which contradict themselves.

    They have keys and times of records, and some rows of every kind that checks look for.
    """
    breaker, rows = random.Random(1), list[Row]()
    for number in range(30):
        log = broken(SimulatedLog(f"t-{number}", random.Random(f"kinds/{number}"), number * 1000).run(40), breaker)
        rows += [row | {"timestamp": breaker.randrange(9), "message_key": breaker.choice("ab")} for row in log]
        for each, kind in enumerate(dict.fromkeys(kind for kinds in NAMED for kind in kinds)):
            key = "t#2" if kind == "topic-create" else f"t-{number}"
            known = {"position": breaker.randrange(9), "value": 1, "timestamp": 5, "request": number}
            known |= {"waited_ms": 1, "max_wait_ms": 9, "empty": True}
            recorded = {"source": "callback", "node": "n1", "incarnation": 1, "leader_epoch": 1, "assignment": 1}
            rows.append(effect(number * 1000 + 900 + each, 0, kind, key, 10**6, 2 * 10**6, **known, **recorded))
    return rows


def test_logs_alone_name_kinds() -> None:
    assert sorted({check.kinds for family in OF_LOGS for check in family.checks if check.kinds}) == NAMED


@pytest.mark.parametrize("linearizable", [pytest.param(False, marks=pytest.mark.long), True])
def test_without_its_kinds_a_check_examines_and_finds_nothing(tmp_path: Path, linearizable: bool) -> None:
    rows, contract = some_logs(), Contract(linearizable_ends=linearizable, dense_offsets=True)
    for number, kinds in enumerate(NAMED):
        folder = write(tmp_path / str(number), [row for row in rows if row["kind"] not in kinds])
        with opened(folder) as engine:
            register_contract(engine, contract)
            for family in OF_LOGS:
                create_views(engine, family.views)
                if family.prepare is not None:
                    family.prepare(engine)
                for check in [check for check in family.checks if check.kinds == kinds]:
                    create_views(engine, check.views)
                    assert run_check(engine, check) == NOTHING_COUNTED, check.anomaly


def test_what_a_history_has_none_of_costs_no_table(tmp_path: Path) -> None:
    book = Book()
    book.send([1, 2], 0, (0, 1))
    book.poll(0, [(0, 1), (1, 2)], 2, (2, 3))
    for asked in (0, 1):
        if asked:
            book.add("look-up", (4, 5), 0, timestamp=1)
        with SQLite() as engine:
            judged = judge(open_history(write(tmp_path / str(asked), book.rows)), Contract(), engine)
            examined = {one.check: one.rows for one in judged.examined}
            assert examined[TIME_LOOK_UP.anomaly] == asked
            if asked:
                assert engine.rows("select op from log_look_ups") != []
            else:
                with pytest.raises(EngineError, match="log_look_ups"):
                    engine.rows("select op from log_look_ups")
