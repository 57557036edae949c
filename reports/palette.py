"""The colours of a report, by name and by theme, for the page's style and for the plots.

Fault bands are a warm tint in the background. The red of ``named`` is only used for operations that a finding names.
Nodes use eight colours in order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

LIGHT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "page": "#f7f7f5", "card": "#ffffff", "ink": "#1d2127", "muted": "#646c78", "line": "#e3e4e1",
        "grid": "#ececea", "accent": "#2f5f8f", "code": "#f1f2f0",
        "pass": "#2f7d4f", "fail": "#bf2f2a", "unknown": "#9a6b00",
        "ok": "#6c9cc4", "failed": "#c98a2b", "info": "#8a63b8", "named": "#d0281f",
        "median": "#2f5f8f", "p99": "#5f8fb9", "longest": "#b3c4d4",
        "fault": "#f3cfae", "recover": "#f9e8d8", "bar": "#ebb27f",
        "node0": "#3f7fb5", "node1": "#4a9d7c", "node2": "#c2883a", "node3": "#8c6bb1",
        "node4": "#5aa2ad", "node5": "#b5657f", "node6": "#7d8b3d", "node7": "#7a7f87",
        "role0": "#2a5580", "role1": "#70408f", "role2": "#1d6347", "role3": "#7c420f", "role4": "#962b53",
        "role5": "#4a5510",
    }
)  # fmt: skip

DARK: Final[Mapping[str, str]] = MappingProxyType(
    {
        "page": "#14161a", "card": "#1b1e23", "ink": "#e5e7ea", "muted": "#969ea9", "line": "#2d3138",
        "grid": "#262a30", "accent": "#8ab4de", "code": "#23272d",
        "pass": "#6cc38d", "fail": "#ff7a70", "unknown": "#e0b04a",
        "ok": "#4f86b5", "failed": "#d69a3f", "info": "#a98ad6", "named": "#ff6258",
        "median": "#a5c9ec", "p99": "#5d93c4", "longest": "#3c566f",
        "fault": "#5e4330", "recover": "#3a2f27", "bar": "#8f6039",
        "node0": "#4f8fc6", "node1": "#57ab89", "node2": "#cf9748", "node3": "#9b7cc2",
        "node4": "#68b1bc", "node5": "#c4758f", "node6": "#91a04d", "node7": "#8f959e",
        "role0": "#a5c9ec", "role1": "#d0b4ee", "role2": "#8fdcb6", "role3": "#edbb88", "role4": "#f5abc6",
        "role5": "#ccd884",
    }
)  # fmt: skip

NODE_TONES: Final = 8
ROLE_TONES: Final = 6


def get_node_tone(position: int) -> str:
    """Returns the colour name of the node at this position; after eight nodes the colours repeat."""
    return f"node{position % NODE_TONES}"


def get_role_tone(position: int) -> str:
    """Returns the colour name of the node role at this position, dark enough for text; after six roles they repeat."""
    return f"role{position % ROLE_TONES}"


def iterate_css_variables(palette: Mapping[str, str]) -> Iterator[str]:
    """Yields CSS declarations: ``--c-ink: #1d2127;``."""
    for name, colour in palette.items():
        yield f"--c-{name}: {colour};"


@dataclass
class Painter:
    """Colours Bokeh models, and records the colour name of each property, so that the page can change the theme.

    ``entries``: model id, property, colour name.
    """

    entries: list[tuple[str, str, str]] = field(default_factory=list)

    def paint(self, model: Any, **colour_names: str) -> None:
        """Paints properties: ``paint(axis, axis_line_color="grid")``."""
        for name, colour_name in colour_names.items():
            setattr(model, name, LIGHT[colour_name])
            self.entries.append((model.id, name, colour_name))
