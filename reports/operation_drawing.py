"""The drawing of a few operations side by side: a line for each process, and a bar for each operation.

It shows which operations overlap. Calls and returns stand in their order, at equal distances, because their times may
differ by orders of magnitude. A bar without an end belongs to an operation that never returned.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from assay.reports.operations import OperationRow

LARGEST: Final = 12
"""Maximum number of operations in a drawing."""
WIDTH: Final = 640
LABEL_WIDTH: Final = 90
"""Width of the names of processes."""
LINE_HEIGHT: Final = 40
BAR_HEIGHT: Final = 24
NO_VALUE: Final = "null"
"""The argument of an operation without one."""
LONGEST_TEXT: Final = 40
"""Maximum characters of the text above a bar."""


@dataclass(frozen=True)
class Bar:
    """An operation. ``x``, ``y``: its upper left corner. ``is_marked``: it contradicts another one."""

    operation: int
    text: str
    x: float
    y: float
    width: float
    is_marked: bool
    is_open: bool
    """Whether the operation never returned."""


@dataclass(frozen=True)
class OperationDrawing:
    """``lines``: the name of each process and its height in the drawing."""

    lines: tuple[tuple[str, float], ...]
    bars: tuple[Bar, ...]
    height: float


def draw_operations(operations: Sequence[OperationRow], marked: Collection[int]) -> OperationDrawing | None:
    """Returns the drawing of the first operations; None if there are none.

    ``marked``: the operations that contradict each other, by index.
    """
    if not operations:
        return None
    operations = operations[:LARGEST]
    moments = sorted({time for row in operations for time in (row.call, row.ret) if time is not None})
    step = (WIDTH - LABEL_WIDTH) / (len(moments) + 1)
    place = {time: LABEL_WIDTH + step * (number + 0.5) for number, time in enumerate(moments)}
    processes = list(dict.fromkeys(row.process for row in sorted(operations, key=lambda row: row.call)))
    tops = {process: LINE_HEIGHT * number + 14.0 for number, process in enumerate(processes)}
    bars = tuple(
        Bar(
            operation=row.index,
            text=_make_label(row),
            x=round(place[row.call], 1),
            y=tops[row.process],
            width=round((WIDTH if row.ret is None else place[row.ret]) - place[row.call], 1),
            is_marked=row.index in marked,
            is_open=row.ret is None,
        )
        for row in operations
    )
    lines = tuple((f"process {process}", top + BAR_HEIGHT / 2) for process, top in tops.items())
    return OperationDrawing(lines, bars, LINE_HEIGHT * len(processes) + 14.0)


def _make_label(row: OperationRow) -> str:
    text = f"op {row.index}: {row.f}{'' if row.argument == NO_VALUE else f' {row.argument}'}"
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
