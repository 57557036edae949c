"""The drawing of a cycle: a box for each operation, an arrow for each edge, all apart and inside."""

from __future__ import annotations

import math
import re

import pytest

from assay.reports.cycle_drawing import BOX_HEIGHT, BOX_WIDTH, LARGEST, WIDTH, draw_cycle


def operations(count: int) -> list[tuple[int, str]]:
    return [(10 + number, f"process {number}") for number in range(count)]


@pytest.mark.parametrize("count", range(2, LARGEST + 1))
def test_boxes_and_numbers_are_apart_and_inside(count: int) -> None:
    drawing = draw_cycle([*operations(count), (99, "a reader")], ["because"] * count)
    assert drawing is not None
    assert [node.operation for node in drawing.nodes] == [10 + number for number in range(count)]
    for node in drawing.nodes:
        assert BOX_WIDTH / 2 <= node.x <= WIDTH - BOX_WIDTH / 2
        assert BOX_HEIGHT / 2 <= node.y <= drawing.height - BOX_HEIGHT / 2
        for other in drawing.nodes:
            apart = abs(node.x - other.x) >= BOX_WIDTH or abs(node.y - other.y) >= BOX_HEIGHT
            assert other is node or apart, (node, other)
    for arrow in drawing.arrows:
        points = [float(text) for text in re.findall(r"-?[0-9.]+", arrow.path)]
        assert all(-1 <= value <= max(WIDTH, drawing.height) + 1 for value in points[:2] + points[4:])
        assert 8 <= arrow.x <= WIDTH - 8
        assert 8 <= arrow.y <= drawing.height - 8
        for other_arrow in drawing.arrows:
            distance = math.hypot(arrow.x - other_arrow.x, arrow.y - other_arrow.y)
            assert other_arrow is arrow or distance > 20


def test_arrows_follow_the_cycle_and_have_its_reasons() -> None:
    drawing = draw_cycle(operations(3), ["first", "second", "third"])
    assert drawing is not None
    assert [(arrow.source, arrow.target, arrow.reason) for arrow in drawing.arrows] == [
        (10, 11, "first"),
        (11, 12, "second"),
        (12, 10, "third"),
    ]


def test_unknown_reasons_and_large_cycles_are_not_drawn() -> None:
    assert draw_cycle(operations(3), ()) is None
    assert draw_cycle(operations(1), ("once",)) is None
    assert draw_cycle(operations(2), ("a", "b", "c")) is None
    assert draw_cycle(operations(LARGEST + 1), ["because"] * (LARGEST + 1)) is None
