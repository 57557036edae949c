"""Unique-ids workload (as in Jepsen): a system must issue each id only once; for any system that makes ids.

A client executes ``generate``, whose result is the new id: a number or a text. It uses this module's ``effects``, and
its contract is ``forbid(*ID_ANOMALIES)``.
"""

from collections.abc import Sequence
from typing import Final

from assay import Completed, Effect, Generator, Operation, Outcome, Phase, repeat

KEY: Final = "ids"
GENERATE: Final = "generate"
LARGEST: Final = 2**63 - 1
"""Largest number that a history can store; larger ids, such as UUIDs, are stored as text."""


def traffic() -> Generator:
    """Yields operations that generate ids, also after the last heal, because a restarted system may repeat ids."""
    return repeat(Operation(GENERATE, KEY)) | [Operation(GENERATE, KEY, phase=Phase.DRAIN)] * 50


def effects(completed: Completed) -> Sequence[Effect]:
    if completed.completion.outcome is not Outcome.OK:
        return [Effect("id-generate", KEY)]
    got = completed.completion.result
    number = got if isinstance(got, int) and abs(got) <= LARGEST else None
    return [Effect("id-generate", KEY, value=number, name=None if number is not None else str(got))]
