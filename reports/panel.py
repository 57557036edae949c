"""Panels of the timeline, with a common layout: frame, axis, fault bands, lanes and legend."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    CrosshairTool,
    FixedTicker,
    Legend,
    LegendItem,
    PanTool,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from assay.checkers.times import NANOSECONDS
from assay.reports.html import shorten_middle
from assay.reports.palette import Painter

LEFT: Final = 92
"""Pixels left of every frame, so that all frames are aligned."""
RIGHT: Final = 14
"""Pixels right of every frame."""
LONGEST_LABEL: Final = 15
"""Maximum characters of a lane's label."""
FONT: Final = "system-ui, sans-serif"


@dataclass
class PlotContext:
    """Shared state of all panels while they are drawn."""

    axis: Range1d
    bands: ColumnDataSource
    cursor: Span
    painter: Painter = field(default_factory=Painter)
    panels: list[Any] = field(default_factory=list)
    chosen: list[Span] = field(default_factory=list)
    """Lines at the moment that the reader has chosen, one per panel."""


def to_label(text: str, limit: int = LONGEST_LABEL) -> str:
    """Returns a short label of one line, without Bokeh's delimiters of mathematics (``$$``, ``\\(``, ``\\[``)."""
    flat = " ".join(text.split()).replace("$$", "$\u2060$").replace("\\", "\u2216")
    return shorten_middle(flat, limit)


def shorten(text: str, limit: int = 100) -> str:
    """Cuts text for a hover label, which does not wrap."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def add_panel(plot: PlotContext, title: str, height: int, **options: Any) -> Any:
    """Adds the next panel below, ``height`` pixels high. ``options``: options of ``bokeh.plotting.figure``."""
    panel = figure(
        height=height, sizing_mode="stretch_width", x_range=plot.axis, toolbar_location=None,
        tools="", min_border_left=LEFT, min_border_right=RIGHT, min_border_top=6, min_border_bottom=4,
        title=title, background_fill_color=None, border_fill_color=None, outline_line_color=None, **options,
    )  # fmt: skip
    zoom, pan = BoxZoomTool(dimensions="width"), PanTool(dimensions="width")
    panel.add_tools(zoom, pan, CrosshairTool(overlay=plot.cursor))
    panel.toolbar.active_drag = zoom
    panel.title.text_font_size = "11.5px"
    panel.title.text_font = FONT
    panel.title.text_font_style = "bold"
    panel.title.standoff = 4
    panel.xaxis.visible = False
    panel.xgrid.grid_line_color = None
    for axis in (panel.xaxis[0], panel.yaxis[0]):
        axis.major_label_text_font = axis.axis_label_text_font = FONT
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "11px"
        axis.axis_label_text_font_style = "normal"
        axis.minor_tick_line_color = None
        axis.major_tick_line_color = None
        axis.axis_line_color = None
        plot.painter.paint(axis, major_label_text_color="muted", axis_label_text_color="muted")
    plot.painter.paint(panel.title, text_color="muted")
    plot.painter.paint(panel.ygrid[0], grid_line_color="grid")
    _shade_faults(plot, panel)
    chosen = Span(dimension="height", location=None, line_width=1.5, line_dash="dashed")
    plot.painter.paint(chosen, line_color="accent")
    panel.add_layout(chosen)
    plot.chosen.append(chosen)
    plot.panels.append(panel)
    return panel


def _shade_faults(plot: PlotContext, panel: Any) -> None:
    force = panel.vstrip(x0="injected", x1="healed", source=plot.bands, line_color=None, fill_alpha=0.5)
    after = panel.vstrip(x0="healed", x1="recovered", source=plot.bands, line_color=None, fill_alpha=0.7)
    force.level = after.level = "underlay"
    plot.painter.paint(force.glyph, fill_color="fault")
    plot.painter.paint(after.glyph, fill_color="recover")


def label_lanes(panel: Any, labels: Sequence[str]) -> None:
    """Labels the lanes, which are at the heights 0, -1, -2, ... from top to bottom."""
    heights = [-number for number in range(len(labels))]
    panel.yaxis.ticker = FixedTicker(ticks=heights)
    panel.yaxis.major_label_overrides = dict(zip(heights, map(to_label, labels), strict=True))
    panel.y_range = Range1d(-len(labels) + 0.4, 0.6)
    panel.ygrid.grid_line_color = None


def add_legend(plot: PlotContext, panel: Any, items: Sequence[LegendItem]) -> None:
    """Adds a legend in one line above the frame, at its right end."""
    legend = Legend(
        items=list(items), orientation="horizontal", location="top_right", border_line_color=None,
        background_fill_color=None, label_text_font=FONT, label_text_font_size="11px", glyph_height=10, glyph_width=14,
        spacing=10, padding=0, margin=0, label_standoff=4, label_height=12,
    )  # fmt: skip
    plot.painter.paint(legend, label_text_color="muted")
    panel.add_layout(legend, "above")


def to_seconds(times: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Converts nanoseconds to seconds."""
    return np.asarray(times, dtype=np.float64) / NANOSECONDS
