"""Order of the cells of a night: recent failures first, then the cells that ran longest ago, by earlier nights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from assay.harness.nightly.night_record import NOTHING_SAID, AttemptResult, MatrixCell, group_by_cell, is_troubled


@dataclass(frozen=True)
class LastEnd:
    """Last end of a cell: whether in trouble, its start (ISO 8601, UTC), and its longest attempt in seconds."""

    troubled: bool
    started: str
    seconds: float


def read_last_ends(nights: Iterable[Sequence[AttemptResult]]) -> dict[str, LastEnd]:
    """Returns the last end of each cell; ``nights`` are the oldest first."""
    found: dict[str, LastEnd] = {}
    for results in nights:
        for name, ended in group_by_cell(results).items():
            said = [one for one in ended if one.outcome not in NOTHING_SAID]
            if said:
                started, longest = max(one.started for one in said), max(one.seconds for one in said)
                found[name] = LastEnd(is_troubled([one.outcome for one in said]), started, longest)
    return found


def sort_by_urgency(cells: Sequence[MatrixCell], earlier: Mapping[str, LastEnd]) -> list[MatrixCell]:
    """Sorts cells by urgency. Cells that never ran count as the oldest; equal cells stay in the matrix's order."""
    never = LastEnd(False, "", 0.0)

    def urgency(cell: MatrixCell) -> tuple[bool, str]:
        one = earlier.get(cell.name, never)
        return not one.troubled, one.started

    return sorted(cells, key=urgency)
