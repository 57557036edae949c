"""The drawing of operations side by side: a line for each process, bars that overlap as the operations do."""

from __future__ import annotations

from assay.reports.operation_drawing import LABEL_WIDTH, LARGEST, LONGEST_TEXT, WIDTH, draw_operations
from assay.reports.operations import OperationRow


def row(index: int, process: int, call: int, ret: int | None, argument: str = "1") -> OperationRow:
    return OperationRow(index, process, str(process), "write", None, argument, None, call, ret, "ok", None)


def test_bars_overlap_as_their_operations_do() -> None:
    rows = [row(1, 0, 10, 1_000_000), row(2, 1, 20, 30), row(3, 1, 40, None), row(4, 0, 2_000_000, 2_000_001)]
    drawing = draw_operations(rows, (2, 4))
    assert drawing is not None
    bars = {bar.operation: bar for bar in drawing.bars}
    for one in rows:
        for other in rows:
            apart = one.ret is not None and one.ret < other.call
            assert apart == (bars[one.index].x + bars[one.index].width < bars[other.index].x)
    assert all(LABEL_WIDTH <= bar.x <= bar.x + bar.width <= WIDTH for bar in drawing.bars)
    assert [bar.operation for bar in drawing.bars if bar.is_marked] == [2, 4]
    assert [bar.operation for bar in drawing.bars if bar.is_open] == [3]
    assert bars[1].y == bars[4].y != bars[2].y == bars[3].y
    assert [name for name, _ in drawing.lines] == ["process 0", "process 1"]


def test_long_texts_and_long_lists_are_cut() -> None:
    drawing = draw_operations([row(n, 0, 2 * n, 2 * n + 1, "9" * 100) for n in range(LARGEST + 3)], ())
    assert drawing is not None
    assert len(drawing.bars) == LARGEST
    assert all(len(bar.text) == LONGEST_TEXT for bar in drawing.bars)
    assert draw_operations([], ()) is None
