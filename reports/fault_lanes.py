"""The uppermost panel of the timeline: a lane per kind of fault, and one for the findings."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, HoverTool, LegendItem

from assay.checkers.times import NANOSECONDS
from assay.reports.model import FindingView, RecordedRun
from assay.reports.panel import FONT, PlotContext, add_legend, add_panel, label_lanes, shorten, to_label, to_seconds
from assay.reports.roles import Roles

_PROVED: Final = {True: "yes", False: "no", None: "unknown"}


def draw_fault_lanes(desk: PlotContext, recorded: RecordedRun, findings: Sequence[FindingView], roles: Roles) -> None:
    kinds = sorted({band.fault for band in recorded.faults})
    placed = [finding for finding in findings if finding.time is not None]
    labels = (["findings"] if placed else []) + kinds or ["no faults"]
    hit_roles = _find_roles_hit(recorded, roles)
    panel = add_panel(desk, "Faults and findings" if placed else "Faults", (50 if hit_roles else 34) + 24 * len(labels))
    label_lanes(panel, labels)
    lane = {label: -number for number, label in enumerate(kinds, start=1 if placed else 0)}
    _draw_fault_bars(desk, panel, recorded, lane)
    if hit_roles:
        _draw_role_marks(desk, panel, recorded, lane, roles, hit_roles)
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
        desk.painter.paint(marks.glyph, fill_color="named", line_color="card")
        panel.add_tools(HoverTool(renderers=[marks], tooltips=[("finding", "@number: @anomaly"), ("claim", "@claim")]))


def _find_roles_hit(recorded: RecordedRun, roles: Roles) -> list[str]:
    """Returns the roles whose nodes were hit by faults, in order; empty if the cluster has one role only."""
    hit = {roles.common(band.targets) for band in recorded.faults if band.injected is not None}
    return [role for role in roles.names if role in hit]


def _draw_role_marks(
    desk: PlotContext,
    panel: Any,
    recorded: RecordedRun,
    lane: Mapping[str, int],
    roles: Roles,
    hit_roles: Sequence[str],
) -> None:
    """Marks the begin of each fault with a square in the colour of its targets' role, if they share one."""
    items = []
    for role in hit_roles:
        hit = [band for band in recorded.faults if band.start is not None and roles.common(band.targets) == role]
        marks = panel.scatter(
            x=to_seconds([band.start or 0 for band in hit]), y=[lane[band.fault] for band in hit],
            marker="square", size=9, line_width=1,
        )  # fmt: skip
        desk.painter.paint(marks.glyph, fill_color=roles.tone_of(role), line_color="card")
        items.append(LegendItem(label=to_label(f"on {role}"), renderers=[marks]))
    add_legend(desk, panel, items)


def _draw_fault_bars(desk: PlotContext, panel: Any, recorded: RecordedRun, lane: dict[str, int]) -> None:
    shown = [band for band in recorded.faults if band.injected is not None]
    source = ColumnDataSource(
        {
            "y": [lane[band.fault] for band in shown],
            "left": to_seconds([band.start or 0 for band in shown]),
            "confirmed": to_seconds([band.injected or 0 for band in shown]),
            "right": to_seconds([recorded.end if band.healed is None else band.healed for band in shown]),
            "who": [to_label(band.who, 40) for band in shown],
            "what": [band.what for band in shown],
            "meant": ["—" if band.intended is None else f"{band.intended / NANOSECONDS:.3f} s" for band in shown],
            "until": ["never" if band.healed is None else f"{band.healed / NANOSECONDS:.3f} s" for band in shown],
            "recovered": ["—" if band.recovered is None else f"{band.recovered / NANOSECONDS:.3f} s" for band in shown],
            "took_effect": [_PROVED[band.took_effect] for band in shown],
        }
    )
    bars = panel.hbar(y="y", left="left", right="right", height=0.72, source=source, line_color=None)
    desk.painter.paint(bars.glyph, fill_color="bar")
    text = panel.text(
        x="left", y="y", text="who", source=source, x_offset=9, text_baseline="middle", text_font=value(FONT),
        text_font_size="11px",
    )  # fmt: skip
    desk.painter.paint(text.glyph, text_color="ink")
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
        desk.painter.paint(crosses.glyph, line_color="unknown")
        panel.add_tools(HoverTool(renderers=[crosses], tooltips=[("went wrong", "@why")]))
