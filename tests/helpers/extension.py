"""A ``conftest.py`` that adds a fault, a check and a model; docs/cookbook/extending.md shows its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay import (
    Action,
    Call,
    Check,
    Family,
    Fault,
    Impact,
    Injection,
    Model,
    Node,
    ProcessState,
    ServerFault,
)


class Hiccup(ServerFault):
    """A fault: the process is stopped, and goes on at the heal."""

    name = "hiccup"
    description = "the process stands still (SIGSTOP) until the heal"
    impact = Impact(pauses_process=True)

    async def strike(self, injection: Injection, node: Node) -> None:
        await node.stop()

    async def undo(self, injection: Injection, node: Node) -> None:
        await node.resume()

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        state = seen.get("at_heal", {}).get("state")
        return None if state == ProcessState.STOPPED else f"was {state} at the heal, not stopped"


REUSED = Check(
    anomaly="reused-offset",
    meaning="two acknowledged sends were given one offset",
    violations="""
        select a.key, a.position, a.op as first_op, a.value as first_value, b.op as other_op, b.value as other_value
        from effects a join effects b on a.key = b.key and a.position = b.position and a.value < b.value
        where a.kind = 'append' and b.kind = 'append' and a.outcome = 'ok' and b.outcome = 'ok'
        """,
    evidence="select * from found_reused_offset order by key, position, first_op, other_op limit 20",
    examined="select count(*) from effects where kind = 'append' and outcome = 'ok'",
    claim="{first_op} and {other_op} both got offset {position} of {key}, for values {first_value} and {other_value}",
)

OFFSETS = Family(
    name="offsets-of-sends",
    checks=(REUSED,),
    applies="select count(*) as examined from effects where kind = 'append'",
)


class LogEnd(Model):
    """A model: the end of a log is the sum of the sizes of all earlier sends."""

    name = "ends"

    def encode(self, call: Call) -> Action | None:
        if call.f == "end":
            return Action(0, call.result["offset"], reads=True) if call.known else None
        if call.f == "send":
            return Action(1, call.result["offset"] if call.known else -1, len(call.argument))
        return None

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        return (state == x, state) if f == 0 else (x in (-1, state), state + y)


def pytest_assay_nemeses() -> list[Fault]:
    return [Hiccup()]


def pytest_assay_checks() -> list[Family]:
    return [OFFSETS]


def pytest_assay_models() -> list[Model]:
    return [LogEnd()]
