"""Tests the plant of offsets that go back in groups whose owners may commit unrecorded."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from assay.checkers.engine import Engines
from assay.checkers.groups.offsets import OFFSETS
from assay.checkers.judging.contract import Contract
from assay.harness.sensitivity.group_plants import GROUP_PLANTS, gather_offsets
from assay.harness.sensitivity.packing import find_violated, pack
from assay.harness.sensitivity.plant import ObjectRows

from helpers.log_histories import Row, effect
from helpers.plant_histories import to_operations

CONTRACT: Final = Contract(forbidden=(), minimum_operations=0)
HISTORIES: Final = 60
(PLANT,) = (plant for plant in GROUP_PLANTS if plant.anomaly == "offset-regression")


class Group:
    """The history of a group with one partition, whose owners follow each other. Unknown commits may land late."""

    def __init__(self, number: int) -> None:
        self.rng = random.Random(number)
        self.name, self.log = f"g{number}", f"t{number}-0"
        self.next_op = self.clock = number * 1_000
        self.rows: list[Row] = []
        self.silent: list[Row] = []
        """Operations of unknown outcome without effects."""
        self.committed = self.highest = 0
        self.late: list[int] = []

    def run(self) -> Group:
        for process in range(self.next_op, self.next_op + self.rng.randint(2, 8)):
            self.own(process)
            if self.late and self.rng.random() < 0.3:
                self.committed = self.late.pop()
        return self

    def begin_operation(self) -> tuple[int, int]:
        self.next_op, self.clock = self.next_op + 1, self.clock + 2
        return self.next_op, self.clock

    def own(self, process: int) -> None:
        """Begins at the committed offset, and commits higher ones. An unknown outcome ends the process."""
        op, call = self.begin_operation()
        given = {"group": self.name, "process": process, "assignment": process}
        key, at = f"{self.name}/{self.log}", self.committed
        self.rows.append(effect(op, 0, "acquire", self.log, call, call + 1, owner=f"c{process}", **given))
        self.highest = max(self.highest, at)
        if at < self.highest or self.rng.random() < 0.9:
            self.rows.append(effect(op, 1, "resume", key, call, call + 1, position=at, **given))
        for _ in range(self.rng.randint(0, 4)):
            at += self.rng.randint(0, 3)
            op, call = self.begin_operation()
            outcome = self.rng.choice(("ok",) * 6 + ("fail", "info", "silent"))
            if outcome == "ok":
                self.committed = at
                self.highest = max(self.highest, at)
            elif outcome != "fail":
                self.late.append(at)
            if outcome == "silent":
                self.silent.append({"op": op, "process": process, "call": call})
            else:
                known = outcome != "info" or self.rng.random() < 0.5
                ret = None if outcome == "info" else call + 1
                position = at if known else None
                self.rows.append(effect(op, 0, "advance", key, call, ret, position=position, outcome=outcome, **given))
            if outcome in ("info", "silent"):
                return

    def offset(self) -> ObjectRows:
        effects: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            effects[row["key"]].append(row)
        gathered = gather_offsets({key: ObjectRows(rows, self.silent) for key, rows in effects.items()})
        found = gathered.get(f"{self.name}/{self.log}", ObjectRows([]))
        assert isinstance(found, ObjectRows)
        return found

    def operations(self) -> list[Row]:
        unanswered = (effect(one["op"], 0, "poll", None, one["call"], None, outcome="info", process=one["process"])
                      for one in self.silent)  # fmt: skip
        return to_operations([*self.rows, *unanswered])


GROUPS: Final = [Group(number).run() for number in range(HISTORIES)]
CLAIMS: Final = [(group, group.offset(), claim) for group in GROUPS for claim in PLANT.find_claims(group.offset(), -1)]


def judge_copies(copies: Sequence[Sequence[Row]]) -> list[frozenset[str]]:
    silent: defaultdict[int, list[int]] = defaultdict(list)
    for group in GROUPS:
        for one in group.silent:
            silent[one["process"]].append(one["op"])
    ops = {row["index"]: row for group in GROUPS for row in group.operations()}
    packed = pack(copies, ops, [], separate_times=False, silent=silent)
    found = find_violated(packed, CONTRACT, Engines("sqlite"), [OFFSETS])
    return [found.get(number, frozenset()) for number in range(len(copies))]


def test_the_histories_are_legal() -> None:
    assert not any(judge_copies([group.offset() for group in GROUPS]))


def test_each_violation_of_an_exposed_claim_is_caught() -> None:
    exposed = [(rows, claim) for _, rows, claim in CLAIMS if claim.exposed]
    caught = judge_copies([PLANT.edit(rows, claim) for rows, claim in exposed])
    assert [claim for (_, claim), found in zip(exposed, caught, strict=True) if not found] == []


def test_claims_are_exposed_although_an_owner_may_have_committed_late() -> None:
    unsure = [claim for group, _, claim in CLAIMS if any(one["call"] < claim.since for one in group.silent)]
    assert sum(claim.exposed for claim in unsure) > 20
