"""The timeline: faults, findings, throughput, latency, leadership and operations over one time axis in seconds.

Panels under each other share the axis and the fault bands behind them, so that what happened can be read downwards.
They carry no JavaScript of their own; the page's script zooms them and changes their colours. Text that a system under
test may have chosen is shown by hover labels, which Bokeh escapes, and as labels of lanes, where mathematics is
switched off (``plain``): Bokeh would fetch a typesetter for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from bokeh.core.properties import value
from bokeh.layouts import column
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    CrosshairTool,
    FixedTicker,
    HoverTool,
    Legend,
    LegendItem,
    Model,
    PanTool,
    PrintfTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from reports.faults import FaultBand
from reports.model import FindingView, Recorded, Report
from reports.operations import Bar
from reports.palette import Painter, node_role

NANOSECONDS: Final = 1_000_000_000
LEFT: Final = 92
"""Pixels left of every frame, so that all frames are aligned."""
LABEL: Final = 15
"""Characters of a lane's label that fit there."""
FONT: Final = "system-ui, sans-serif"


@dataclass(frozen=True)
class Timeline:
    """``layout``: one Bokeh model. ``axis``: the id of the range that all panels share. ``named``: id of the source
    whose rows are the named operations, row by row the operation's index in ``order``. ``colours``: see ``Painter``.
    """

    layout: Model
    axis: str
    named: str
    order: tuple[int, ...]
    colours: tuple[tuple[str, str, str], ...]
    span: tuple[float, float]


@dataclass
class _Desk:
    """What all panels share while they are drawn."""

    axis: Range1d
    bands: ColumnDataSource
    cursor: Span
    painter: Painter = field(default_factory=Painter)
    panels: list[Any] = field(default_factory=list)


def timeline(report: Report, recorded: Recorded) -> Timeline:
    """Draws the panels for which there is data."""
    span = (-0.005 * recorded.end / NANOSECONDS, 1.005 * max(recorded.end, 1_000_000) / NANOSECONDS)
    desk = _Desk(
        Range1d(*span, bounds=span, min_interval=1e-6), _bands(recorded.faults, recorded.end), Span(dimension="height")
    )
    desk.painter.paint(desk.cursor, line_color="muted")
    _events(desk, recorded, report.findings)
    _rates(desk, recorded)
    _latencies(desk, recorded)
    if recorded.leadership.lanes:
        _leaders(desk, recorded)
    named, order = _operations(desk, recorded)
    last = desk.panels[-1]
    last.xaxis.visible = True
    last.xaxis.axis_label = "seconds since the run began"
    last.min_border_bottom = 44
    last.height += 40
    return Timeline(
        layout=column(*desk.panels, sizing_mode="stretch_width", spacing=0),
        axis=desk.axis.id,
        named=named.id,
        order=order,
        colours=tuple(desk.painter.entries),
        span=span,
    )


def plain(text: str, limit: int = LABEL) -> str:
    """A label of one short line in which Bokeh sees no mathematics (``$$``, ``\\(``, ``\\[``)."""
    flat = " ".join(text.split()).replace("$$", "$\u2060$").replace("\\", "\u2216")
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _panel(desk: _Desk, title: str, height: int, **options: Any) -> Any:
    panel = figure(
        height=height, sizing_mode="stretch_width", x_range=desk.axis, toolbar_location=None,
        tools="", min_border_left=LEFT, min_border_right=14, min_border_top=6, min_border_bottom=4,
        title=title, background_fill_color=None, border_fill_color=None, outline_line_color=None, **options,
    )  # fmt: skip
    zoom, pan = BoxZoomTool(dimensions="width"), PanTool(dimensions="width")
    panel.add_tools(zoom, pan, CrosshairTool(overlay=desk.cursor))
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
        desk.painter.paint(axis, major_label_text_color="muted", axis_label_text_color="muted")
    desk.painter.paint(panel.title, text_color="muted")
    desk.painter.paint(panel.ygrid[0], grid_line_color="grid")
    _shade(desk, panel)
    desk.panels.append(panel)
    return panel


def _shade(desk: _Desk, panel: Any) -> None:
    force = panel.vstrip(x0="injected", x1="healed", source=desk.bands, line_color=None, fill_alpha=0.5)
    after = panel.vstrip(x0="healed", x1="recovered", source=desk.bands, line_color=None, fill_alpha=0.7)
    force.level = after.level = "underlay"
    desk.painter.paint(force.glyph, fill_color="fault")
    desk.painter.paint(after.glyph, fill_color="recover")


def _lanes(panel: Any, labels: Sequence[str]) -> None:
    """One lane per label, the first on top, at the heights 0, -1, -2, ..."""
    heights = [-number for number in range(len(labels))]
    panel.yaxis.ticker = FixedTicker(ticks=heights)
    panel.yaxis.major_label_overrides = dict(zip(heights, map(plain, labels), strict=True))
    panel.y_range = Range1d(-len(labels) + 0.4, 0.6)
    panel.ygrid.grid_line_color = None


def _bands(faults: Sequence[FaultBand], end: int) -> ColumnDataSource:
    shown = [band for band in faults if band.injected is not None]
    healed = [end if band.healed is None else band.healed for band in shown]
    return ColumnDataSource(
        {
            "injected": _seconds([band.injected or 0 for band in shown]),
            "healed": _seconds(healed),
            "recovered": _seconds([band.recovered or stop for band, stop in zip(shown, healed, strict=True)]),
        }
    )


def _events(desk: _Desk, recorded: Recorded, findings: Sequence[FindingView]) -> None:
    kinds = sorted({band.fault for band in recorded.faults})
    placed = [finding for finding in findings if finding.time is not None]
    labels = (["findings"] if placed else []) + kinds or ["no faults"]
    panel = _panel(desk, "Faults and findings" if placed else "Faults", 34 + 24 * len(labels))
    _lanes(panel, labels)
    lane = {label: -number for number, label in enumerate(kinds, start=1 if placed else 0)}
    _fault_bars(desk, panel, recorded, lane)
    if placed:
        source = ColumnDataSource(
            {
                "x": _seconds([finding.time or 0 for finding in placed]),
                "number": [finding.number for finding in placed],
                "anomaly": [finding.anomaly for finding in placed],
                "claim": [finding.claim for finding in placed],
            }
        )
        marks = panel.scatter(x="x", y=0, source=source, marker="inverted_triangle", size=11, line_width=1)
        desk.painter.paint(marks.glyph, fill_color="named", line_color="card")
        panel.add_tools(HoverTool(renderers=[marks], tooltips=[("finding", "@number: @anomaly"), ("claim", "@claim")]))


def _fault_bars(desk: _Desk, panel: Any, recorded: Recorded, lane: dict[str, int]) -> None:
    shown = [band for band in recorded.faults if band.injected is not None]
    source = ColumnDataSource(
        {
            "y": [lane[band.fault] for band in shown],
            "left": _seconds([band.injected or 0 for band in shown]),
            "right": _seconds([recorded.end if band.healed is None else band.healed for band in shown]),
            "who": [plain(band.who, 40) for band in shown],
            "what": [band.what for band in shown],
            "until": ["never" if band.healed is None else f"{band.healed / NANOSECONDS:.3f} s" for band in shown],
            "recovered": ["—" if band.recovered is None else f"{band.recovered / NANOSECONDS:.3f} s" for band in shown],
            "bit": ["yes" if band.bit else "no" if band.bit is False else "unknown" for band in shown],
        }
    )
    bars = panel.hbar(y="y", left="left", right="right", height=0.72, source=source, line_color=None)
    desk.painter.paint(bars.glyph, fill_color="bar")
    text = panel.text(
        x="left", y="y", text="who", source=source, x_offset=6, text_baseline="middle", text_font=value(FONT),
        text_font_size="11px",
    )  # fmt: skip
    desk.painter.paint(text.glyph, text_color="ink")
    tips = [("fault", "@what"), ("on", "@who"), ("injected", "@left{0.000} s"), ("healed", "@until"),
            ("recovered", "@recovered"), ("showed its effect", "@bit")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=[bars], tooltips=tips))
    failed = [band for band in recorded.faults if band.failed_at is not None]
    if failed:
        crosses = panel.scatter(
            x=_seconds([band.failed_at or 0 for band in failed]), y=[lane[band.fault] for band in failed],
            marker="x", size=10, line_width=2,
        )  # fmt: skip
        crosses.data_source.data["why"] = ["; ".join(band.failures)[:300] for band in failed]
        desk.painter.paint(crosses.glyph, line_color="unknown")
        panel.add_tools(HoverTool(renderers=[crosses], tooltips=[("went wrong", "@why")]))


def _rates(desk: _Desk, recorded: Recorded) -> None:
    data = recorded.series
    source = ColumnDataSource({"time": data.time, "ok": data.ok, "fail": data.fail, "info": data.info})
    panel = _panel(desk, f"Operations per second (every {data.width:g} s)", 128)
    top = max(float(np.max(data.ok)), float(np.max(data.fail)), float(np.max(data.info)), 1.0)
    panel.y_range = Range1d(0, top * 1.15)
    panel.yaxis.ticker.desired_num_ticks = 3
    area = panel.varea_step(x="time", y1=0, y2="ok", source=source, step_mode="after", fill_alpha=0.3)
    desk.painter.paint(area.glyph, fill_color="ok")
    items = []
    for name, role in (("ok", "ok"), ("fail", "failed"), ("info", "info")):
        line = panel.step(x="time", y=name, source=source, mode="after", line_width=1.5)
        desk.painter.paint(line.glyph, line_color=role)
        items.append(LegendItem(label={"ok": "ok", "fail": "failed", "info": "unknown"}[name], renderers=[line]))
    _legend(desk, panel, items)
    tips = [("from", "@time{0.000} s"), ("ok", "@ok{0,0.[0]} /s"), ("failed", "@fail{0,0.[0]} /s"),
            ("unknown", "@info{0,0.[0]} /s")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=[items[0].renderers[0]], mode="vline", tooltips=tips))


def _latencies(desk: _Desk, recorded: Recorded) -> None:
    data = recorded.series
    source = ColumnDataSource(
        {"time": data.time + data.width / 2, "median": data.median, "p99": data.p99, "longest": data.longest}
    )
    known = data.longest[~np.isnan(data.longest)]
    if not known.size:
        return
    panel = _panel(desk, "Latency of successful operations, ms", 140, y_axis_type="log")
    panel.y_range = Range1d(float(np.nanmin(data.median)) / 1.6, float(known.max()) * 1.6)
    panel.yaxis.formatter = PrintfTickFormatter(format="%g")
    panel.yaxis.ticker.desired_num_ticks = 4
    items = []
    for name, label in (("longest", "longest"), ("p99", "99 %"), ("median", "median")):
        line = panel.line(x="time", y=name, source=source, line_width=1.6)
        dots = panel.scatter(x="time", y=name, source=source, size=2.5, line_color=None)
        desk.painter.paint(line.glyph, line_color=name)
        desk.painter.paint(dots.glyph, fill_color=name)
        items.append(LegendItem(label=label, renderers=[line, dots]))
    _legend(desk, panel, list(reversed(items)))
    tips = [("about", "@time{0.000} s"), ("median", "@median{0,0.[000]} ms"), ("99 %", "@p99{0,0.[000]} ms"),
            ("longest", "@longest{0,0.[000]} ms")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=[items[0].renderers[0]], mode="vline", tooltips=tips))


def _leaders(desk: _Desk, recorded: Recorded) -> None:
    told = recorded.leadership
    panel = _panel(desk, "Who led (thin: still believed so after being superseded)", 40 + 20 * len(told.lanes))
    _lanes(panel, told.lanes)
    lane = {name: -number for number, name in enumerate(told.lanes)}
    items, solid = [], []
    for position, node in enumerate(told.nodes):
        own = [reign for reign in told.reigns if reign.node == node and reign.lane in lane]
        source = ColumnDataSource(
            {
                "y": [lane[reign.lane] for reign in own],
                "left": _seconds([reign.start for reign in own]),
                "stop": _seconds([reign.stop for reign in own]),
                "believed": _seconds([reign.believed for reign in own]),
                "lane": [reign.lane for reign in own],
                "node": [reign.node for reign in own],
                "epoch": ["—" if reign.epoch is None else str(reign.epoch) for reign in own],
            }
        )
        bars = panel.hbar(y="y", left="left", right="stop", height=0.66, source=source, line_color=None, fill_alpha=0.8)
        tails = panel.hbar(y="y", left="stop", right="believed", height=0.2, source=source, line_color=None)
        for bar in (bars, tails):
            desk.painter.paint(bar.glyph, fill_color=node_role(position))
        solid += [bars, tails]
        items.append(LegendItem(label=plain(node), renderers=[bars, tails]))
    _legend(desk, panel, items)
    tips = [("led", "@lane by @node, epoch @epoch"), ("from", "@left{0.000} s to @stop{0.000} s"),
            ("believed so until", "@believed{0.000} s")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=solid, tooltips=tips))


def _operations(desk: _Desk, recorded: Recorded) -> tuple[ColumnDataSource, tuple[int, ...]]:
    told = recorded.lanes
    panel = _panel(desk, "Operations, by worker", 44 + 22 * len(told.workers))
    _lanes(panel, told.workers)
    items, hovered = [], []
    for outcome, role, label in (("ok", "ok", "ok"), ("fail", "failed", "failed"), ("info", "info", "unknown")):
        bars = [bar for bar in told.bars if not bar.named and bar.row.outcome == outcome]
        if bars:
            glyphs = _bars(panel, bars, 0.56, fill_alpha=0.2 if outcome == "info" else 0.65, line_alpha=0.9)
            desk.painter.paint(glyphs.glyph, fill_color=role, line_color=role)
            items.append(LegendItem(label=label, renderers=[glyphs]))
            hovered.append(glyphs)
    named = sorted((bar for bar in told.bars if bar.named), key=lambda bar: bar.row.index)
    glyphs = _bars(panel, named, 0.86, fill_alpha=0.75, line_alpha=1.0)
    glyphs.selection_glyph, glyphs.nonselection_glyph = glyphs.glyph.clone(), glyphs.glyph.clone()
    glyphs.nonselection_glyph.fill_alpha = glyphs.nonselection_glyph.line_alpha = 0.25
    for glyph in (glyphs.glyph, glyphs.selection_glyph, glyphs.nonselection_glyph):
        desk.painter.paint(glyph, fill_color="named", line_color="named")
    if named:
        items.append(LegendItem(label="named by a finding", renderers=[glyphs]))
        hovered.append(glyphs)
    _legend(desk, panel, items)
    tips = [("operation", "@index: @f @key by process @process"), ("argument", "@argument"), ("outcome", "@told"),
            ("time", "@left{0.000000} s to @until")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=hovered, tooltips=tips))
    return glyphs.data_source, tuple(bar.row.index for bar in named)


def _bars(panel: Any, bars: Sequence[Bar], height: float, **look: Any) -> Any:
    rows = [bar.row for bar in bars]
    source = ColumnDataSource(
        {
            "y": np.array([-bar.lane for bar in bars], dtype=np.int32),
            "left": _seconds([row.call for row in rows]),
            "right": _seconds([bar.stop for bar in bars]),
            "index": [row.index for row in rows],
            "process": np.array([row.process for row in rows], dtype=np.int32),
            "f": [row.f for row in rows],
            "key": [row.key or "" for row in rows],
            "argument": ["—" if row.argument == "null" else row.argument for row in rows],
            "told": [" ".join(filter(None, (row.outcome, row.result, row.error))) for row in rows],
            "until": ["?" if row.ret is None else f"{row.ret / NANOSECONDS:.6f} s" for row in rows],
        }
    )
    return panel.hbar(y="y", left="left", right="right", height=height, source=source, line_width=1, **look)


def _legend(desk: _Desk, panel: Any, items: Sequence[LegendItem]) -> None:
    legend = Legend(
        items=list(items), orientation="horizontal", location="top_right", border_line_color=None,
        background_fill_color=None, label_text_font=FONT, label_text_font_size="11px", glyph_height=10, glyph_width=14,
        spacing=10, padding=0, margin=0, label_standoff=4, label_height=12,
    )  # fmt: skip
    desk.painter.paint(legend, label_text_color="muted")
    panel.add_layout(legend, "above")


def _seconds(times: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(times, dtype=np.float64) / NANOSECONDS
