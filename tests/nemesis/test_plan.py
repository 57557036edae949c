from __future__ import annotations

from assay.nemesis.plan import plan
from assay.nemesis.schedule import Record, Resolved, Schedule, Step
from assay.nemesis.target import parse

KILL = Step(2.0, "kill", parse("leader:orders-0"), 5.0)
STOP = Step(4.0, "stop", parse("one"), 5.0)
LATE = Step(12.0, "kill", parse("all"), 5.0)
SCHEDULE = Schedule(1, (KILL, STOP, LATE), ("partition",))


def test_the_plan_of_what_is_meant() -> None:
    meant = plan(SCHEDULE)
    assert meant.lines()[0] == "  2.000 s -   7.000 s  kill leader of orders-0"
    assert meant.ends == 17.0
    assert [fault.id for fault in meant.in_force(5.0)] == [1, 2]
    assert meant.in_force(9.0) == ()
    assert meant.lines()[-1] == "no time for partition"


def test_the_plan_of_what_came_out() -> None:
    no_one = Resolved(STOP, (), 4.0, None, {"reason": "busy"})
    came_out = plan(Record(SCHEDULE, (Resolved(KILL, ("n2",), 2.5, 7.5, {}), no_one)))
    assert str(came_out.faults[0]) == "  2.500 s -   7.500 s  kill leader of orders-0 (n2)"


def test_no_faults() -> None:
    assert plan(Schedule(1)).ends == 0.0
