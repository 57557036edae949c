"""Ids are generated, and each is handed out once: for any system that makes ids (Jepsen's unique-ids).

A client answers ``generate``, whose result is the new id: a number or a text. Its ``effects`` are those here, and its
contract is ``forbid(*ID_ANOMALIES)``.
"""

from collections.abc import Sequence
from typing import Final

from assay import Completed, Effect, Generator, Operation, Outcome, Phase, repeat

KEY: Final = "ids"
GENERATE: Final = "generate"
LARGEST: Final = 2**63 - 1
"""That a history keeps as a number; what is larger, such as a UUID, is kept as text."""


def traffic() -> Generator:
    """Ids one after the other, and some when all faults are healed: a system that came back may begin again."""
    return repeat(Operation(GENERATE, KEY)) | [Operation(GENERATE, KEY, phase=Phase.DRAIN)] * 50


def effects(completed: Completed) -> Sequence[Effect]:
    if completed.completion.outcome is not Outcome.OK:
        return [Effect("id-generate", KEY)]
    got = completed.completion.result
    number = got if isinstance(got, int) and abs(got) <= LARGEST else None
    return [Effect("id-generate", KEY, value=number, name=None if number is not None else str(got))]
