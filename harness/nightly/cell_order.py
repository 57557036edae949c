"""What a night does first: what failed lately, then what ran longest ago. Both are read from earlier nights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from assay.harness.nightly.night_record import NOTHING_SAID, Cell, Result, settled, troubled


@dataclass(frozen=True)
class Past:
    """How a cell ended last: in trouble or not, when it was started (ISO 8601, UTC), its longest attempt in seconds."""

    troubled: bool
    started: str
    seconds: float


def past(nights: Iterable[Sequence[Result]]) -> dict[str, Past]:
    """By cell, from the nights in which it came to an end; ``nights``: the oldest first."""
    found: dict[str, Past] = {}
    for results in nights:
        for name, ended in settled(results).items():
            said = [one for one in ended if one.outcome not in NOTHING_SAID]
            if said:
                started, longest = max(one.started for one in said), max(one.seconds for one in said)
                found[name] = Past(troubled([one.outcome for one in said]), started, longest)
    return found


def ordered(cells: Sequence[Cell], earlier: Mapping[str, Past]) -> list[Cell]:
    """Those that never ran are those that ran longest ago; among equals the matrix has its order."""
    never = Past(False, "", 0.0)

    def urgency(cell: Cell) -> tuple[bool, str]:
        one = earlier.get(cell.name, never)
        return not one.troubled, one.started

    return sorted(cells, key=urgency)
