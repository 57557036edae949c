"""Order of the cells of a night: recent failures first, then the cells that ran longest ago, by earlier nights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from assay.harness.nightly.night_record import NOTHING_SAID, Cell, Result, settled, troubled


@dataclass(frozen=True)
class Past:
    """Last end of a cell: whether in trouble, its start (ISO 8601, UTC), and its longest attempt in seconds."""

    troubled: bool
    started: str
    seconds: float


def past(nights: Iterable[Sequence[Result]]) -> dict[str, Past]:
    """Returns the last end of each cell; ``nights`` are the oldest first."""
    found: dict[str, Past] = {}
    for results in nights:
        for name, ended in settled(results).items():
            said = [one for one in ended if one.outcome not in NOTHING_SAID]
            if said:
                started, longest = max(one.started for one in said), max(one.seconds for one in said)
                found[name] = Past(troubled([one.outcome for one in said]), started, longest)
    return found


def ordered(cells: Sequence[Cell], earlier: Mapping[str, Past]) -> list[Cell]:
    """Sorts cells by urgency. Cells that never ran count as the oldest; equal cells stay in the matrix's order."""
    never = Past(False, "", 0.0)

    def urgency(cell: Cell) -> tuple[bool, str]:
        one = earlier.get(cell.name, never)
        return not one.troubled, one.started

    return sorted(cells, key=urgency)
