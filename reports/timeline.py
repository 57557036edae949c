"""The timeline: faults, findings, throughput, latency, leadership and operations over one time axis in seconds.

The panels share the axis and the fault bands in the background, so that simultaneous events are above each other. They
contain no JavaScript of their own; the page's script zooms and recolours them. Text from the system under test appears
in hover labels, which Bokeh escapes, and in lane labels. ``to_label`` disables mathematics in lane labels, because
Bokeh would download a typesetter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from bokeh.core.properties import value
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, HoverTool, LegendItem, Model, PrintfTickFormatter, Range1d, Span

from assay.checkers.times import NANOSECONDS
from assay.reports.faults import FaultBand
from assay.reports.html import shorten_middle
from assay.reports.leadership import LeadershipTerm
from assay.reports.model import FindingView, RecordedRun, Report
from assay.reports.operations import OperationBar
from assay.reports.palette import NODE_TONES, get_node_tone
from assay.reports.panel import FONT, PlotContext, add_legend, add_panel, label_lanes, shorten, to_label, to_seconds
from assay.reports.resources import MEGABYTE, ResourceLine, order_names
from assay.reports.roles import Roles
from assay.reports.zookeeper import InSyncInterval


@dataclass(frozen=True)
class Timeline:
    """The drawn panels.

    - ``layout``: the Bokeh model of all panels
    - ``axis``: id of the range that all panels share
    - ``operations_source``: id of the data source with the operations that findings name
    - ``order``: the operation index of each row of this source
    - ``colours``: as ``Painter.entries``
    - ``span``: begin and end of the axis in seconds
    """

    layout: Model
    axis: str
    operations_source: str
    order: tuple[int, ...]
    colours: tuple[tuple[str, str, str], ...]
    span: tuple[float, float]
    chosen: tuple[str, ...]
    """Ids of the lines that mark the moment that the reader has chosen."""


def draw_timeline(report: Report, recorded: RecordedRun) -> Timeline:
    """Draws the panels for which there is data."""
    span = (-0.005 * recorded.end / NANOSECONDS, 1.005 * max(recorded.end, 1_000_000) / NANOSECONDS)
    plot = PlotContext(
        Range1d(*span, bounds=span, min_interval=1e-6),
        _build_bands(recorded.faults, recorded.end),
        Span(dimension="height"),
    )
    plot.painter.paint(plot.cursor, line_color="muted")
    _draw_fault_lanes(plot, recorded, report.findings, report.roles)
    _draw_rates(plot, recorded)
    _draw_latencies(plot, recorded)
    if recorded.leadership.lanes:
        _draw_leaders(plot, recorded)
    if recorded.zookeeper_activity.in_sync:
        _draw_in_sync(plot, recorded)
    if recorded.zookeeper_activity.sessions or recorded.zookeeper_activity.writes:
        _draw_sessions(plot, recorded)
    _draw_resources(plot, "Resident memory, MB", recorded.resources.memory, recorded)
    _draw_resources(plot, "Disk space, MB", recorded.resources.disk, recorded)
    named, order = _draw_operations(plot, recorded)
    last = plot.panels[-1]
    last.xaxis.visible = True
    last.xaxis.axis_label = "seconds since the run began"
    last.min_border_bottom = 44
    last.height += 40
    return Timeline(
        layout=column(*plot.panels, sizing_mode="stretch_width", spacing=0),
        axis=plot.axis.id,
        operations_source=named.id,
        order=order,
        colours=tuple(plot.painter.entries),
        span=span,
        chosen=tuple(line.id for line in plot.chosen),
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


_PROVED: Final = {True: "yes", False: "no", None: "unknown"}


def _draw_fault_lanes(plot: PlotContext, recorded: RecordedRun, findings: Sequence[FindingView], roles: Roles) -> None:
    """Draws a lane per kind of fault, and one for the findings."""
    kinds = sorted({band.fault for band in recorded.faults})
    placed = [finding for finding in findings if finding.time is not None]
    labels = (["findings"] if placed else []) + kinds or ["no faults"]
    hit_roles = _find_roles_hit(recorded, roles)
    panel = add_panel(plot, "Faults and findings" if placed else "Faults", (50 if hit_roles else 34) + 24 * len(labels))
    label_lanes(panel, labels)
    lane = {label: -number for number, label in enumerate(kinds, start=1 if placed else 0)}
    _draw_fault_bars(plot, panel, recorded, lane)
    if hit_roles:
        _draw_role_marks(plot, panel, recorded, lane, roles, hit_roles)
    if placed:
        source = ColumnDataSource(
            {
                "x": to_seconds([finding.time or 0 for finding in placed]),
                "number": [finding.number for finding in placed],
                "anomaly": [finding.anomaly for finding in placed],
                "claim": [shorten(finding.claim) for finding in placed],
            }
        )
        marks = panel.scatter(x="x", y=0, source=source, marker="inverted_triangle", size=11, line_width=1)
        plot.painter.paint(marks.glyph, fill_color="named", line_color="card")
        panel.add_tools(HoverTool(renderers=[marks], tooltips=[("finding", "@number: @anomaly"), ("claim", "@claim")]))


def _find_roles_hit(recorded: RecordedRun, roles: Roles) -> list[str]:
    """Returns the roles whose nodes were hit by faults, in order; empty if the cluster has one role only."""
    hit = {roles.common_role(band.targets) for band in recorded.faults if band.injected is not None}
    return [role for role in roles.names if role in hit]


def _draw_role_marks(
    plot: PlotContext,
    panel: Any,
    recorded: RecordedRun,
    lane: Mapping[str, int],
    roles: Roles,
    hit_roles: Sequence[str],
) -> None:
    """Marks the begin of each fault with a square in the colour of its targets' role, if they share one."""
    items = []
    for role in hit_roles:
        hit = [band for band in recorded.faults if band.start is not None and roles.common_role(band.targets) == role]
        marks = panel.scatter(
            x=to_seconds([band.start or 0 for band in hit]), y=[lane[band.fault] for band in hit],
            marker="square", size=9, line_width=1,
        )  # fmt: skip
        plot.painter.paint(marks.glyph, fill_color=roles.role_tone(role), line_color="card")
        items.append(LegendItem(label=to_label(f"on {role}"), renderers=[marks]))
    add_legend(plot, panel, items)


def _draw_fault_bars(plot: PlotContext, panel: Any, recorded: RecordedRun, lane: dict[str, int]) -> None:
    shown = [band for band in recorded.faults if band.injected is not None]
    source = ColumnDataSource(
        {
            "y": [lane[band.fault] for band in shown],
            "left": to_seconds([band.start or 0 for band in shown]),
            "confirmed": to_seconds([band.injected or 0 for band in shown]),
            "right": to_seconds([recorded.end if band.healed is None else band.healed for band in shown]),
            "who": [to_label(band.target_text if band.targets else band.what, 40) for band in shown],
            "what": [band.what for band in shown],
            "meant": ["—" if band.intended is None else f"{band.intended / NANOSECONDS:.3f} s" for band in shown],
            "until": ["never" if band.healed is None else f"{band.healed / NANOSECONDS:.3f} s" for band in shown],
            "recovered": ["—" if band.recovered is None else f"{band.recovered / NANOSECONDS:.3f} s" for band in shown],
            "took_effect": [_PROVED[band.took_effect] for band in shown],
        }
    )
    bars = panel.hbar(y="y", left="left", right="right", height=0.72, source=source, line_color=None)
    plot.painter.paint(bars.glyph, fill_color="bar")
    text = panel.text(
        x="left", y="y", text="who", source=source, x_offset=9, text_baseline="middle", text_font=value(FONT),
        text_font_size="11px",
    )  # fmt: skip
    plot.painter.paint(text.glyph, text_color="ink")
    tips = [("fault", "@what"), ("on", "@who"), ("intended", "@meant"),
            ("injected", "from @left{0.000} s, confirmed at @confirmed{0.000} s"),
            ("healed", "@until"), ("recovered", "@recovered"), ("took effect", "@took_effect")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=[bars], tooltips=tips))
    failed = [band for band in recorded.faults if band.failed_at is not None]
    if failed:
        crosses = panel.scatter(
            x=to_seconds([band.failed_at or 0 for band in failed]), y=[lane[band.fault] for band in failed],
            marker="x", size=10, line_width=2,
        )  # fmt: skip
        crosses.data_source.data["why"] = ["; ".join(band.failures)[:300] for band in failed]
        plot.painter.paint(crosses.glyph, line_color="unknown")
        panel.add_tools(HoverTool(renderers=[crosses], tooltips=[("went wrong", "@why")]))


def _draw_rates(plot: PlotContext, recorded: RecordedRun) -> None:
    data = recorded.series
    source = ColumnDataSource({"time": data.time, "ok": data.ok, "fail": data.fail, "info": data.info})
    panel = add_panel(plot, f"Operations per second (every {data.width:g} s)", 128)
    top = max(float(np.max(data.ok)), float(np.max(data.fail)), float(np.max(data.info)), 1.0)
    panel.y_range = Range1d(-top * 0.06, top * 1.15)
    panel.yaxis.ticker.desired_num_ticks = 3
    area = panel.varea_step(x="time", y1=0, y2="ok", source=source, step_mode="after", fill_alpha=0.3)
    plot.painter.paint(area.glyph, fill_color="ok")
    items = []
    for name, tone in (("ok", "ok"), ("fail", "failed"), ("info", "info")):
        line = panel.step(x="time", y=name, source=source, mode="after", line_width=1.5)
        plot.painter.paint(line.glyph, line_color=tone)
        items.append(LegendItem(label={"ok": "ok", "fail": "failed", "info": "unknown"}[name], renderers=[line]))
    add_legend(plot, panel, items)
    tips = [("from", "@time{0.000} s"), ("ok", "@ok{0,0.[0]} /s"), ("failed", "@fail{0,0.[0]} /s"),
            ("unknown", "@info{0,0.[0]} /s")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=[items[0].renderers[0]], mode="vline", tooltips=tips))


def _draw_latencies(plot: PlotContext, recorded: RecordedRun) -> None:
    data = recorded.series
    source = ColumnDataSource(
        {"time": data.time + data.width / 2, "median": data.median, "p99": data.p99, "longest": data.longest}
    )
    known = data.longest[~np.isnan(data.longest)]
    if not known.size:
        return
    panel = add_panel(plot, "Latency of successful operations, ms", 140, y_axis_type="log")
    panel.y_range = Range1d(float(np.nanmin(data.median)) / 1.6, float(known.max()) * 1.6)
    panel.yaxis.formatter = PrintfTickFormatter(format="%g")
    panel.yaxis.ticker.desired_num_ticks = 4
    items = []
    for name, label in (("longest", "longest"), ("p99", "99 %"), ("median", "median")):
        line = panel.line(x="time", y=name, source=source, line_width=1.6)
        dots = panel.scatter(x="time", y=name, source=source, size=2.5, line_color=None)
        plot.painter.paint(line.glyph, line_color=name)
        plot.painter.paint(dots.glyph, fill_color=name)
        items.append(LegendItem(label=label, renderers=[line, dots]))
    add_legend(plot, panel, list(reversed(items)))
    tips = [("about", "@time{0.000} s"), ("median", "@median{0,0.[000]} ms"), ("99 %", "@p99{0,0.[000]} ms"),
            ("longest", "@longest{0,0.[000]} ms")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=[items[0].renderers[0]], mode="vline", tooltips=tips))


def _draw_leaders(plot: PlotContext, recorded: RecordedRun) -> None:
    leadership = recorded.leadership
    title = "Who led (thin: still believed so after being superseded)"
    if leadership.from_queries:
        title = "Who led, asked once a second"
    panel = add_panel(plot, title, 40 + 20 * len(leadership.lanes))
    label_lanes(panel, [leadership.label(lane) for lane in leadership.lanes])
    lane = {name: -number for number, name in enumerate(leadership.lanes)}
    items, solid = [], []
    for position, node in enumerate(leadership.nodes):
        own = [term for term in leadership.terms if term.node == node and term.lane in lane]
        stale = [term for term in own if term.believed > term.stop]
        bars = panel.hbar(
            y="y", left="left", right="stop", height=0.66, source=_to_source(own, lane), line_color=None, fill_alpha=0.8
        )
        tails = panel.hbar(
            y="y", left="stop", right="believed", height=0.24, source=_to_source(stale, lane), line_width=0.8
        )
        tails.level = "overlay"
        plot.painter.paint(bars.glyph, fill_color=get_node_tone(position))
        plot.painter.paint(tails.glyph, fill_color=get_node_tone(position), line_color="card")
        solid += [bars, tails]
        items.append(LegendItem(label=to_label(node), renderers=[bars]))
    add_legend(plot, panel, items)
    tips = [("led", "@lane by @node, epoch @epoch"), ("from", "@left{0.000} s to @stop{0.000} s"),
            ("believed so until", "@believed{0.000} s")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=solid, tooltips=tips))


def _draw_in_sync(plot: PlotContext, recorded: RecordedRun) -> None:
    """Draws a bar per interval. If replicas are missing, the bar is darker and has the number of in-sync replicas."""
    known = recorded.zookeeper_activity.in_sync
    lanes = [lane for lane in recorded.leadership.lanes if any(interval.key == lane for interval in known)]
    most = {lane: max(len(interval.members) for interval in known if interval.key == lane) for lane in lanes}
    panel = add_panel(plot, "In-sync replicas of each partition", 40 + 18 * len(lanes))
    label_lanes(panel, [recorded.leadership.label(lane) for lane in lanes])
    shown = [interval for interval in known if interval.key in most]
    items, hovered = [], []
    for tone, label, alpha in (("ok", "all", 0.22), ("failed", "some missing", 0.6), ("unknown", "one left", 0.9)):
        intervals = [interval for interval in shown if _classify_in_sync(interval, most[interval.key]) == label]
        if not intervals:
            continue
        source = ColumnDataSource(
            {
                "y": [-lanes.index(interval.key) for interval in intervals],
                "left": to_seconds([interval.start for interval in intervals]),
                "right": to_seconds([interval.stop for interval in intervals]),
                "size": [str(len(interval.members)) for interval in intervals],
                "members": [", ".join(map(str, interval.members)) for interval in intervals],
                "out": [_format_out_of_sync(interval) for interval in intervals],
                "lane": [interval.key for interval in intervals],
                "said": [f"{one.node}, epoch {'—' if one.epoch is None else one.epoch}" for one in intervals],
            }
        )
        bars = panel.hbar(
            y="y", left="left", right="right", height=0.6, source=source, line_color=None, fill_alpha=alpha
        )
        plot.painter.paint(bars.glyph, fill_color=tone)
        if tone != "ok":
            text = panel.text(
                x="left", y="y", text="size", source=source, x_offset=3, text_baseline="middle", text_font=value(FONT),
                text_font_size="10px",
            )  # fmt: skip
            plot.painter.paint(text.glyph, text_color="ink")
        items.append(LegendItem(label=label, renderers=[bars]))
        hovered.append(bars)
    add_legend(plot, panel, items)
    tips = [("in sync", "@members of @lane"), ("out of sync", "@out"), ("from", "@left{0.000} s to @right{0.000} s"),
            ("said by", "@said")]  # fmt: skip
    panel.add_tools(HoverTool(renderers=hovered, tooltips=tips))


def _format_out_of_sync(interval: InSyncInterval) -> str:
    if interval.out is None:
        return "not said"
    return f"{', '.join(map(str, interval.out))} (under-replicated)" if interval.out else "none"


def _classify_in_sync(interval: InSyncInterval, most: int) -> str:
    """Classifies an interval. ``most``: the maximum number of in-sync replicas in the run. It counts as the number of
    replicas if the node does not report out-of-sync replicas."""
    members = len(interval.members)
    replicas = most if interval.out is None else members + len(interval.out)
    return "all" if members == replicas else "some missing" if members > 1 else "one left"


WRITES = "writes"


def _draw_sessions(plot: PlotContext, recorded: RecordedRun) -> None:
    activity = recorded.zookeeper_activity
    nodes = list(dict.fromkeys(session.node for session in activity.sessions))
    labels = ([WRITES] if activity.writes else []) + nodes
    panel = add_panel(plot, "ZooKeeper: sessions of the nodes as they knew them, and writes", 34 + 18 * len(labels))
    label_lanes(panel, labels)
    lane = {label: -number for number, label in enumerate(labels)}
    source = ColumnDataSource(
        {
            "y": [lane[session.node] for session in activity.sessions],
            "left": to_seconds([session.start for session in activity.sessions]),
            "right": to_seconds([session.stop for session in activity.sessions]),
            "node": [to_label(session.node) for session in activity.sessions],
            "end": ["it lost the session" if session.lost else "its process or the run ended"
                    for session in activity.sessions],
        }
    )  # fmt: skip
    bars = panel.hbar(y="y", left="left", right="right", height=0.5, source=source, line_color=None, fill_alpha=0.55)
    plot.painter.paint(bars.glyph, fill_color="median")
    panel.add_tools(
        HoverTool(
            renderers=[bars],
            tooltips=[("session of", "@node"), ("from", "@left{0.000} s to @right{0.000} s"), ("end", "@end")],
        )
    )
    if activity.writes:
        source = ColumnDataSource(
            {
                "x": to_seconds([write.time for write in activity.writes]),
                "y": [lane[WRITES]] * len(activity.writes),
                "node": [to_label(write.node) for write in activity.writes],
                "what": [shorten(write.what, 60) for write in activity.writes],
                "zxid": [str(write.zxid) for write in activity.writes],
            }
        )
        marks = panel.scatter(x="x", y="y", source=source, marker="dash", angle=np.pi / 2, size=11, line_width=1.4)
        plot.painter.paint(marks.glyph, line_color="accent")
        panel.add_tools(
            HoverTool(
                renderers=[marks], tooltips=[("write", "@what"), ("said by", "@node at @x{0.000} s"), ("zxid", "@zxid")]
            )
        )


def _draw_resources(plot: PlotContext, title: str, lines: Sequence[ResourceLine], recorded: RecordedRun) -> None:
    """Draws a line per node, in its colour of the leadership panel. The line of the tester itself is dashed."""
    if not lines:
        return
    panel = add_panel(plot, title, 140)
    top = max(line.most for line in lines)
    panel.y_range = Range1d(-top * 0.06, top * 1.15)
    panel.yaxis.formatter = PrintfTickFormatter(format="%g")
    panel.yaxis.ticker.desired_num_ticks = 4
    positions = order_names(lines, recorded.leadership.nodes)
    items, hovered = [], []
    for line in lines:
        source = ColumnDataSource(
            {
                "time": np.array([time for time, _ in line.samples], dtype=np.float64),
                "value": np.array([value for _, value in line.samples], dtype=np.float64) / MEGABYTE,
            }
        )
        position = positions.get(line.name)
        dash = "dashed" if position is None else "solid" if position < NODE_TONES else "dotted"
        tone = "ink" if position is None else get_node_tone(position)
        drawn = panel.line(x="time", y="value", source=source, line_width=1.6, line_dash=dash)
        dots = panel.scatter(
            x="time", y="value", source=source, size=2.5, line_color=None, name=to_label(line.label, 40)
        )
        plot.painter.paint(drawn.glyph, line_color=tone)
        plot.painter.paint(dots.glyph, fill_color=tone)
        items.append(LegendItem(label=to_label(line.label), renderers=[drawn, dots]))
        hovered.append(dots)
    add_legend(plot, panel, items)
    tips = [("of", "$name"), ("at", "@time{0.0} s"), ("MB", "@value{0,0.[000]}")]
    panel.add_tools(HoverTool(renderers=hovered, tooltips=tips))


def _to_source(terms: Sequence[LeadershipTerm], lane: Mapping[str, int]) -> ColumnDataSource:
    return ColumnDataSource(
        {
            "y": [lane[term.lane] for term in terms],
            "left": to_seconds([term.start for term in terms]),
            "stop": to_seconds([term.stop for term in terms]),
            "believed": to_seconds([term.believed for term in terms]),
            "lane": [term.lane for term in terms],
            "node": [term.node for term in terms],
            "epoch": ["—" if term.epoch is None else str(term.epoch) for term in terms],
        }
    )


def _draw_operations(plot: PlotContext, recorded: RecordedRun) -> tuple[ColumnDataSource, tuple[int, ...]]:
    drawn = recorded.lanes
    panel = add_panel(plot, "Operations, by worker", 44 + 22 * len(drawn.workers))
    label_lanes(panel, drawn.workers)
    items, hovered = [], []
    for outcome, tone, label in (("ok", "ok", "ok"), ("fail", "failed", "failed"), ("info", "info", "unknown")):
        bars = [bar for bar in drawn.bars if not bar.named and bar.row.outcome == outcome]
        if bars:
            glyphs = _draw_bars(panel, bars, 0.56, fill_alpha=0.2 if outcome == "info" else 0.65, line_alpha=0.9)
            plot.painter.paint(glyphs.glyph, fill_color=tone, line_color=tone)
            items.append(LegendItem(label=label, renderers=[glyphs]))
            hovered.append(glyphs)
    named = sorted((bar for bar in drawn.bars if bar.named), key=lambda bar: bar.row.index)
    glyphs = _draw_bars(panel, named, 0.86, fill_alpha=0.75, line_alpha=1.0)
    glyphs.selection_glyph, glyphs.nonselection_glyph = glyphs.glyph.clone(), glyphs.glyph.clone()
    glyphs.nonselection_glyph.fill_alpha = glyphs.nonselection_glyph.line_alpha = 0.25
    for glyph in (glyphs.glyph, glyphs.selection_glyph, glyphs.nonselection_glyph):
        plot.painter.paint(glyph, fill_color="named", line_color="named")
    if named:
        items.append(LegendItem(label="named by a finding", renderers=[glyphs]))
        hovered.append(glyphs)
    add_legend(plot, panel, items)
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
