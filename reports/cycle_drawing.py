"""The drawing of a cycle of operations: a ring of boxes, with a numbered arrow for each edge.

The boxes stand on an ellipse, clockwise from the top. An arrow is a curve that bulges outwards, so that the two arrows
of a cycle of two operations are apart. The page lists the reason of each arrow under its number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LARGEST: Final = 10
"""Maximum number of operations in a drawing. Larger cycles are only listed."""
WIDTH: Final = 520
BOX_WIDTH: Final = 96
BOX_HEIGHT: Final = 38
MARGIN: Final = 30
"""Space around the boxes for the arrows that bulge outwards."""
_BULGE: Final = 0.4
"""Distance of an arrow's bend from the straight line, relative to the arrow's length."""


@dataclass(frozen=True)
class Node:
    """A box. ``x``, ``y``: its centre, in units of the drawing."""

    operation: int
    process: str
    x: float
    y: float


@dataclass(frozen=True)
class Arrow:
    """The arrow ``number``. ``path``: as in SVG. ``x``, ``y``: the place of its number."""

    number: int
    source: int
    target: int
    reason: str
    path: str
    x: float
    y: float


@dataclass(frozen=True)
class CycleDrawing:
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    height: float


def draw_cycle(operations: Sequence[tuple[int, str]], reasons: Sequence[str]) -> CycleDrawing | None:
    """Returns the drawing; None for a cycle that is too large, or whose reasons are unknown.

    ``operations``: index and process of each operation, in the order of the cycle. ``reasons``: why each
    operation comes before the next one; the last reason leads back to the first operation.
    """
    count = len(reasons)
    if not 2 <= count <= LARGEST or len(operations) < count:
        return None
    height = 170.0 if count == 2 else 130.0 + 45 * math.ceil(count / 2)
    nodes = tuple(_place(operations[number], number, count, height) for number in range(count))
    arrows = tuple(
        _connect(number + 1, nodes[number], nodes[(number + 1) % count], reason, height)
        for number, reason in enumerate(reasons)
    )
    return CycleDrawing(nodes, arrows, height)


def _place(operation: tuple[int, str], number: int, count: int, height: float) -> Node:
    # Two boxes stand side by side.
    angle = math.pi * (2 * number / count - (1.0 if count == 2 else 0.5))
    across, down = (WIDTH - BOX_WIDTH) / 2 - MARGIN, (height - BOX_HEIGHT) / 2 - MARGIN
    index, process = operation
    return Node(index, process, WIDTH / 2 + across * math.cos(angle), height / 2 + down * math.sin(angle))


def _connect(number: int, source: Node, target: Node, reason: str, height: float) -> Arrow:
    dx, dy = target.x - source.x, target.y - source.y
    length = math.hypot(dx, dy)
    # Clockwise on a screen, the outside of an arrow is on its left.
    side_x, side_y = dy / length, -dx / length
    bulge = min(max(_BULGE * length, 24), 90)
    bend_x, bend_y = (source.x + target.x) / 2 + side_x * bulge, (source.y + target.y) / 2 + side_y * bulge
    begin_x, begin_y = _leave_box(source, bend_x, bend_y)
    end_x, end_y = _leave_box(target, bend_x, bend_y)
    path = f"M{begin_x:.1f} {begin_y:.1f} Q{bend_x:.1f} {bend_y:.1f} {end_x:.1f} {end_y:.1f}"
    x, y = (begin_x + 2 * bend_x + end_x) / 4, (begin_y + 2 * bend_y + end_y) / 4
    return Arrow(number, source.operation, target.operation, reason, path, round(x, 1), round(y, 1))


def _leave_box(node: Node, x: float, y: float) -> tuple[float, float]:
    """Returns the point at which the line from the centre of a box to a point crosses the edge of the box."""
    dx, dy = x - node.x, y - node.y
    share = min(
        BOX_WIDTH / 2 / abs(dx) if dx else math.inf,
        BOX_HEIGHT / 2 / abs(dy) if dy else math.inf,
        1.0,
    )
    return node.x + dx * share, node.y + dy * share
