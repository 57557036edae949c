"""The timeline: faults, findings, throughput, latency, leadership and operations over one time axis in seconds.

The panels share the axis and the fault bands behind them, so that simultaneous events are above each other. They
contain no JavaScript of their own; the page's script zooms and recolours them. Text from the system under test appears
in hover labels, which Bokeh escapes, and in lane labels, where mathematics is disabled (``to_label``), because Bokeh
would download a typesetter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, HoverTool, LegendItem, Model, PrintfTickFormatter, Range1d, Span

from assay.checkers.times import NANOSECONDS
from assay.reports.fault_lanes import draw_fault_lanes
from assay.reports.faults import FaultBand
from assay.reports.html import shorten_middle
from assay.reports.leadership import LeadershipTerm
from assay.reports.model import RecordedRun, Report
from assay.reports.operations import OperationBar
from assay.reports.palette import get_node_role
from assay.reports.panel import FONT, PlotContext, add_legend, add_panel, label_lanes, shorten, to_label, to_seconds
from assay.reports.zookeeper import InSyncInterval


@dataclass(frozen=True)
class Timeline:
    """``layout``: one Bokeh model. ``axis``: id of the range that all panels share. ``named``: id of the source of the
    named operations; ``order`` has the operation index of each of its rows. ``colours``: see ``Painter``.
    """

    layout: Model
    axis: str
    named: str
    order: tuple[int, ...]
    colours: tuple[tuple[str, str, str], ...]
    span: tuple[float, float]
    chosen: tuple[str, ...]
    """Ids of the lines that mark the chosen moment."""


def draw_timeline(report: Report, recorded: RecordedRun) -> Timeline:
    """Draws the panels for which there is data."""
    span = (-0.005 * recorded.end / NANOSECONDS, 1.005 * max(recorded.end, 1_000_000) / NANOSECONDS)
    desk = PlotContext(
        Range1d(*span, bounds=span, min_interval=1e-6),
        _build_bands(recorded.faults, recorded.end),
        Span(dimension="height"),
    )
    desk.painter.paint(desk.cursor, line_color="muted")
    draw_fault_lanes(desk, recorded, report.findings, report.roles)
    _draw_rates(desk, recorded)
    _draw_latencies(desk, recorded)
    if recorded.leadership.lanes:
        _draw_leaders(desk, recorded)
    if recorded.agreement.in_sync:
        _draw_in_sync(desk, recorded)
    if recorded.agreement.sessions or recorded.agreement.writes:
        _draw_sessions(desk, recorded)
    named, order = _draw_operations(desk, recorded)
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
        chosen=tuple(line.id for line in desk.chosen),
    )


def _build_bands(faults: Sequence[FaultBand], end: int) -> ColumnDataSource:
    shown = [band for band in faults if band.injected is not None]
    healed = [end if band.healed is None else band.healed for band in shown]
    return ColumnDataSource(
        {
            "injected": to_seconds([band.start or 0 for band in shown]),
            "healed": to_seconds(healed),
            "recovered": to_seconds([band.recovered or stop for band, stop in zip(shown, healed, strict=True)]),
        }
    )


def _draw_rates(desk: PlotContext, recorded: RecordedRun) -> None:
    data = recorded.series
    source = ColumnDataSource({"time": data.time, "ok": data.ok, "fail": data.fail, "info": data.info})
    panel = add_panel(desk, f"Operations per second (every {data.width:g} s)", 128)
    top = max(float(np.max(data.ok)), float(np.max(data.fail)), float(np.max(data.info)), 1.0)
    panel.y_range = Range1d(-top * 0.06, top * 1.15)
    panel.yaxis.ticker.desired_num_ticks = 3
    area = panel.varea_step(x="time", y1=0, y2="ok", source=source, step_mode="after", fill_alpha=0.3)
    desk.painter.paint(area.glyph, fill_color="ok")
    items = []
    for name, role in (("ok", "ok"), ("fail", "failed"), ("info", "info")):
        line = panel.step(x="time", y=name, source=source, mode="after", line_width=1.5)
        desk.painter.paint(line.glyph, line_color=role)
        items.append(LegendItem(label={"ok": "ok", "fail": "failed", "info": "unknown"}[name], renderers=[line]))
    add_legend(desk, panel, items)
    tips = [("from", "@time{0.000} s"), ("ok", "@ok{0,0.[0]} /s"), ("failed", "@fail{0,0.[0]} /s"),
            ("unknown", "@info{0,0.[0]} /s")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=[items[0].renderers[0]], mode="vline", tooltips=tips))


def _draw_latencies(desk: PlotContext, recorded: RecordedRun) -> None:
    data = recorded.series
    source = ColumnDataSource(
        {"time": data.time + data.width / 2, "median": data.median, "p99": data.p99, "longest": data.longest}
    )
    known = data.longest[~np.isnan(data.longest)]
    if not known.size:
        return
    panel = add_panel(desk, "Latency of successful operations, ms", 140, y_axis_type="log")
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
    add_legend(desk, panel, list(reversed(items)))
    tips = [("about", "@time{0.000} s"), ("median", "@median{0,0.[000]} ms"), ("99 %", "@p99{0,0.[000]} ms"),
            ("longest", "@longest{0,0.[000]} ms")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=[items[0].renderers[0]], mode="vline", tooltips=tips))


def _draw_leaders(desk: PlotContext, recorded: RecordedRun) -> None:
    led = recorded.leadership
    title = "Who led, asked once a second" if led.asked else "Who led (thin: still believed so after being superseded)"
    panel = add_panel(desk, title, 40 + 20 * len(led.lanes))
    label_lanes(panel, [led.label(lane) for lane in led.lanes])
    lane = {name: -number for number, name in enumerate(led.lanes)}
    items, solid = [], []
    for position, node in enumerate(led.nodes):
        own = [reign for reign in led.reigns if reign.node == node and reign.lane in lane]
        stale = [reign for reign in own if reign.believed > reign.stop]
        bars = panel.hbar(
            y="y", left="left", right="stop", height=0.66, source=_to_source(own, lane), line_color=None, fill_alpha=0.8
        )
        tails = panel.hbar(
            y="y", left="stop", right="believed", height=0.24, source=_to_source(stale, lane), line_width=0.8
        )
        tails.level = "overlay"
        desk.painter.paint(bars.glyph, fill_color=get_node_role(position))
        desk.painter.paint(tails.glyph, fill_color=get_node_role(position), line_color="card")
        solid += [bars, tails]
        items.append(LegendItem(label=to_label(node), renderers=[bars]))
    add_legend(desk, panel, items)
    tips = [("led", "@lane by @node, epoch @epoch"), ("from", "@left{0.000} s to @stop{0.000} s"),
            ("believed so until", "@believed{0.000} s")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=solid, tooltips=tips))


def _draw_in_sync(desk: PlotContext, recorded: RecordedRun) -> None:
    """Draws a bar per interval: strong if replicas are missing, with the number of remaining ones."""
    known = recorded.agreement.in_sync
    lanes = [lane for lane in recorded.leadership.lanes if any(spell.key == lane for spell in known)]
    most = {lane: max(len(spell.members) for spell in known if spell.key == lane) for lane in lanes}
    panel = add_panel(desk, "In-sync replicas of each partition", 40 + 18 * len(lanes))
    label_lanes(panel, [recorded.leadership.label(lane) for lane in lanes])
    shown = [spell for spell in known if spell.key in most]
    items, hovered = [], []
    for role, label, alpha in (("ok", "all", 0.22), ("failed", "some missing", 0.6), ("unknown", "one left", 0.9)):
        spells = [spell for spell in shown if _classify_in_sync(spell, most[spell.key]) == label]
        if not spells:
            continue
        source = ColumnDataSource(
            {
                "y": [-lanes.index(spell.key) for spell in spells],
                "left": to_seconds([spell.start for spell in spells]),
                "right": to_seconds([spell.stop for spell in spells]),
                "size": [str(len(spell.members)) for spell in spells],
                "members": [", ".join(map(str, spell.members)) for spell in spells],
                "out": [_format_out_of_sync(spell) for spell in spells],
                "lane": [spell.key for spell in spells],
                "said": [f"{spell.node}, epoch {'—' if spell.epoch is None else spell.epoch}" for spell in spells],
            }
        )
        bars = panel.hbar(
            y="y", left="left", right="right", height=0.6, source=source, line_color=None, fill_alpha=alpha
        )
        desk.painter.paint(bars.glyph, fill_color=role)
        if role != "ok":
            text = panel.text(
                x="left", y="y", text="size", source=source, x_offset=3, text_baseline="middle", text_font=value(FONT),
                text_font_size="10px",
            )  # fmt: skip
            desk.painter.paint(text.glyph, text_color="ink")
        items.append(LegendItem(label=label, renderers=[bars]))
        hovered.append(bars)
    add_legend(desk, panel, items)
    tips = [("in sync", "@members of @lane"), ("out of sync", "@out"), ("from", "@left{0.000} s to @right{0.000} s"),
            ("said by", "@said")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=hovered, tooltips=tips))


def _format_out_of_sync(spell: InSyncInterval) -> str:
    if spell.out is None:
        return "not said"
    return f"{', '.join(map(str, spell.out))} (under-replicated)" if spell.out else "none"


def _classify_in_sync(spell: InSyncInterval, most: int) -> str:
    """``most``: maximum in-sync replicas ever, for nodes that do not report out-of-sync replicas."""
    members = len(spell.members)
    replicas = most if spell.out is None else members + len(spell.out)
    return "all" if members == replicas else "some missing" if members > 1 else "one left"


WRITES = "writes"


def _draw_sessions(desk: PlotContext, recorded: RecordedRun) -> None:
    agreed = recorded.agreement
    nodes = list(dict.fromkeys(session.node for session in agreed.sessions))
    labels = ([WRITES] if agreed.writes else []) + nodes
    panel = add_panel(desk, "ZooKeeper: sessions of the nodes as they knew them, and writes", 34 + 18 * len(labels))
    label_lanes(panel, labels)
    lane = {label: -number for number, label in enumerate(labels)}
    source = ColumnDataSource(
        {
            "y": [lane[session.node] for session in agreed.sessions],
            "left": to_seconds([session.start for session in agreed.sessions]),
            "right": to_seconds([session.stop for session in agreed.sessions]),
            "node": [to_label(session.node) for session in agreed.sessions],
            "end": ["it lost the session" if session.lost else "its process or the run ended"
                    for session in agreed.sessions],
        }
    )  # fmt: skip
    bars = panel.hbar(y="y", left="left", right="right", height=0.5, source=source, line_color=None, fill_alpha=0.55)
    desk.painter.paint(bars.glyph, fill_color="median")
    panel.add_tools(
        HoverTool(
            renderers=[bars],
            tooltips=[("session of", "@node"), ("from", "@left{0.000} s to @right{0.000} s"), ("end", "@end")],
        )
    )
    if agreed.writes:
        source = ColumnDataSource(
            {
                "x": to_seconds([write.time for write in agreed.writes]),
                "y": [lane[WRITES]] * len(agreed.writes),
                "node": [to_label(write.node) for write in agreed.writes],
                "what": [shorten(write.what, 60) for write in agreed.writes],
                "zxid": [str(write.zxid) for write in agreed.writes],
            }
        )
        marks = panel.scatter(x="x", y="y", source=source, marker="dash", angle=np.pi / 2, size=11, line_width=1.4)
        desk.painter.paint(marks.glyph, line_color="accent")
        panel.add_tools(
            HoverTool(
                renderers=[marks], tooltips=[("write", "@what"), ("said by", "@node at @x{0.000} s"), ("zxid", "@zxid")]
            )
        )


def _to_source(reigns: Sequence[LeadershipTerm], lane: Mapping[str, int]) -> ColumnDataSource:
    return ColumnDataSource(
        {
            "y": [lane[reign.lane] for reign in reigns],
            "left": to_seconds([reign.start for reign in reigns]),
            "stop": to_seconds([reign.stop for reign in reigns]),
            "believed": to_seconds([reign.believed for reign in reigns]),
            "lane": [reign.lane for reign in reigns],
            "node": [reign.node for reign in reigns],
            "epoch": ["—" if reign.epoch is None else str(reign.epoch) for reign in reigns],
        }
    )


def _draw_operations(desk: PlotContext, recorded: RecordedRun) -> tuple[ColumnDataSource, tuple[int, ...]]:
    drawn = recorded.lanes
    panel = add_panel(desk, "Operations, by worker", 44 + 22 * len(drawn.workers))
    label_lanes(panel, drawn.workers)
    items, hovered = [], []
    for outcome, role, label in (("ok", "ok", "ok"), ("fail", "failed", "failed"), ("info", "info", "unknown")):
        bars = [bar for bar in drawn.bars if not bar.named and bar.row.outcome == outcome]
        if bars:
            glyphs = _draw_bars(panel, bars, 0.56, fill_alpha=0.2 if outcome == "info" else 0.65, line_alpha=0.9)
            desk.painter.paint(glyphs.glyph, fill_color=role, line_color=role)
            items.append(LegendItem(label=label, renderers=[glyphs]))
            hovered.append(glyphs)
    named = sorted((bar for bar in drawn.bars if bar.named), key=lambda bar: bar.row.index)
    glyphs = _draw_bars(panel, named, 0.86, fill_alpha=0.75, line_alpha=1.0)
    glyphs.selection_glyph, glyphs.nonselection_glyph = glyphs.glyph.clone(), glyphs.glyph.clone()
    glyphs.nonselection_glyph.fill_alpha = glyphs.nonselection_glyph.line_alpha = 0.25
    for glyph in (glyphs.glyph, glyphs.selection_glyph, glyphs.nonselection_glyph):
        desk.painter.paint(glyph, fill_color="named", line_color="named")
    if named:
        items.append(LegendItem(label="named by a finding", renderers=[glyphs]))
        hovered.append(glyphs)
    add_legend(desk, panel, items)
    tips = [("operation", "@index: @f @key by process @process"), ("argument", "@argument"), ("outcome", "@ended"),
            ("time", "@left{0.000000} s to @until")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=hovered, tooltips=tips))
    return glyphs.data_source, tuple(bar.row.index for bar in named)


def _draw_bars(panel: Any, bars: Sequence[OperationBar], height: float, **look: Any) -> Any:
    rows = [bar.row for bar in bars]
    source = ColumnDataSource(
        {
            "y": np.array([-bar.lane for bar in bars], dtype=np.int32),
            "left": to_seconds([row.call for row in rows]),
            "right": to_seconds([bar.stop for bar in bars]),
            "index": [row.index for row in rows],
            "process": np.array([row.process for row in rows], dtype=np.int32),
            "f": [shorten(row.f, 30) for row in rows],
            "key": [shorten_middle(row.key or "", 40) for row in rows],
            "argument": ["—" if row.argument == "null" else row.argument for row in rows],
            "ended": [" ".join(filter(None, (row.outcome, row.result, row.error))) for row in rows],
            "until": ["?" if row.ret is None else f"{row.ret / NANOSECONDS:.6f} s" for row in rows],
        }
    )
    return panel.hbar(y="y", left="left", right="right", height=height, source=source, line_width=1, **look)
