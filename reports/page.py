"""The report page of a run: a self-contained HTML file.

``render`` reads the run's folder (``assay.reports.model``), draws the timeline (``assay.reports.timeline``) and fills
the template. Values come from the system under test and may be hostile. ``assay.reports.html`` escapes them, and its
content security policy blocks scripts that are not the page's own.
"""

import base64
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from bokeh.embed import json_item
from bokeh.resources import Resources
from jinja2 import Environment
from markupsafe import Markup

from assay.checkers.judging.verdict import LONGEST_LIST, Finding, Verdict
from assay.checkers.times import MILLISECONDS, NANOSECONDS, find_digits, in_seconds
from assay.harness.core.files import write_atomically
from assay.harness.core.history import HistoryReader
from assay.harness.core.printable import count_noun
from assay.reports import html, operation_drawing
from assay.reports.coverage import describe_totals
from assay.reports.cycle_drawing import BOX_HEIGHT, BOX_WIDTH, WIDTH
from assay.reports.failure_text import join_reasons
from assay.reports.faults import FaultBand, format_duration
from assay.reports.last_pass import OperationRate
from assay.reports.leadership import natural_sort_key
from assay.reports.model import FindingView, RecordedRun, Report, fold, join_keys, read_report
from assay.reports.operations import OperationRow
from assay.reports.panel import LEFT, RIGHT
from assay.reports.roles import Roles
from assay.reports.timeline import Timeline, draw_timeline

PAGE: Final = "report.html"
"""Name of the page in the folder of its run."""
OWN: Final = re.compile(html.HEAD + rb'<meta name="generator" content="assay report">')
"""Matches each page of ``assay report``."""
VISIBLE_FINDINGS: Final = 2
"""Number of findings of one anomaly that are visible. The reader can unfold the others."""
VISIBLE_CHARACTERS: Final = 110
"""Number of characters of an argument or a result that are visible. The reader can unfold the rest."""


def render(run_dir: Path, history: HistoryReader | None = None) -> Path:
    """Writes the page of a run atomically as ``report.html`` in the run's folder, and returns its path.

    ``history``: the run's history, if the caller has opened it. Raises ``FileNotFoundError`` if there is no such
    folder, and ``OSError`` if the page cannot be written.
    """
    target = run_dir / PAGE
    write_atomically(target, render_html(read_report(run_dir, history)).encode())
    return target


def render_html(report: Report) -> str:
    """Returns the HTML text of a report."""
    drawn = None if report.recorded is None else draw_timeline(report, report.recorded)
    scripts = _read_scripts() if drawn is not None else []
    scripts.append(html.read_source("page.js"))
    return _build_environment().get_template("template.html").render(
        report=report,
        run=report.files.run,
        judgement=report.judgement,
        recorded=report.recorded,
        roles=report.roles,
        standing="none" if report.judgement is None else str(report.judgement.verdict),
        lead=_write_lead(report),
        took=_format_run_time(report),
        described=_list_settings(report),
        plot=None if drawn is None else html.to_inline_json(_build_plot_data(drawn, report)),
        edn=_encode_edn(report.recorded),
        **html.build_shell(scripts, html.read_source("style.css")),
    )  # fmt: skip


def _build_environment() -> Environment:
    environment = html.build_environment()
    environment.filters.update(
        seconds=format_seconds, count="{:,}".format, size=_format_size, milliseconds=_format_milliseconds,
        date=_format_date, gantt=build_gantt,
        sentence=_capitalize, middle=html.shorten_middle, time_link=_format_time_link, rate=_format_rate,
        unsuccessful=_format_unsuccessful, duration=_format_duration,
        fold=lambda texts: fold(texts, str), fold_claims=lambda findings: fold(findings, _format_finding),
        keys=lambda findings: join_keys([finding.key for finding in findings]), joined=join_reasons,
        several=lambda number: "s" * (number != 1), lasted=format_lasting, injection=format_injection,
    )  # fmt: skip
    environment.globals.update(
        box=(WIDTH, BOX_WIDTH, BOX_HEIGHT),
        beside_box=(operation_drawing.WIDTH, operation_drawing.BAR_HEIGHT),
        long=VISIBLE_CHARACTERS,
        longest=LONGEST_LIST,
        shown=VISIBLE_FINDINGS,
        decimals=_count_decimals,
    )
    return environment


def format_seconds(time: int | None, decimals: int = MILLISECONDS) -> str:
    """Formats nanoseconds since the run began as ``14.203 s``."""
    return "—" if time is None else f"{in_seconds(time, decimals)} s"


def build_gantt(row: OperationRow, finding: FindingView) -> list[tuple[str, float, float]]:
    """Returns the bars of an operation and of faults in a finding's interval: kind (``fault`` or an outcome), left edge
    and width in per cent."""
    assert finding.start is not None, "a finding with an operation has a window"
    assert finding.stop is not None, "a finding with an operation has a window"
    margin = max((finding.stop - finding.start) // 12, 50_000)  # nanoseconds
    start, stop = finding.start - margin, finding.stop + margin

    def mark(kind: str, begin: int, end: int | None) -> tuple[str, float, float]:
        left = min(max(begin, start), stop)
        right = stop if end is None else min(max(end, left), stop)
        return kind, round(100 * (left - start) / (stop - start), 3), round(100 * (right - left) / (stop - start), 3)

    bands = [
        mark("fault", band.start, band.healed)
        for band in finding.faults
        if band.start is not None and band.overlaps(start, stop)
    ]
    return [*bands, mark(row.outcome if row.outcome in ("ok", "fail") else "info", row.call, row.ret)]


def _count_decimals(finding: FindingView) -> int:
    """Returns the number of digits that distinguish all times of this finding, its operations and its faults."""
    times = [finding.start, finding.stop, finding.since, finding.until]
    times += [time for row in finding.operations for time in (row.call, row.ret)]
    times += [time for band in finding.faults for time in (band.injected, band.healed)]
    return find_digits(times)


def format_lasting(band: FaultBand, decimals: int) -> str:
    return (
        "never injected" if band.injected is None else format_duration(band.began, band.injected, band.healed, decimals)
    )


def format_injection(band: FaultBand) -> str:
    """Formats the injection: ``1.480 – 1.512 s``, from its begin to its completion, or one time if these are equal."""
    if band.start is None or format_seconds(band.start) == format_seconds(band.injected):
        return format_seconds(band.injected)
    return f"{in_seconds(band.start)} – {format_seconds(band.injected)}"


def _write_lead(report: Report) -> str:
    """Returns the first sentence of the page."""
    judgement = report.judgement
    if judgement is None:
        # The last line of a traceback is the error; the full text is below.
        lines = (report.files.run.problem or "it did not come to its end.").strip().splitlines() or [""]
        return f"This run has no verdict: {lines[-1][:300]}"
    if judgement.verdict is Verdict.FAIL:
        return report.findings[0].claim if report.findings else "The contract was broken; no finding says where."
    if judgement.verdict is Verdict.UNKNOWN:
        # The first line states the reason; a traceback may follow.
        reasons = judgement.unknown or ("The history proves neither a pass nor a fail.",)
        return reasons[0].strip().partition("\n")[0]
    clear = sum(1 for check in report.checks if check.rows)
    faults = [] if report.recorded is None else [band for band in report.recorded.faults if band.took_effect]
    under = f", under {count_noun(len(faults), 'fault')}" if faults else ", without faults"
    if report.file is not None:
        under = ""  # the nemesis of another tool proves no effect
    tolerated = sum(judgement.anomalies.values())
    found = f"{tolerated:,} tolerated anomalies and no forbidden one" if tolerated else "No anomaly"
    return f"{found} in {describe_totals(judgement)}{under}; {clear} checks had data."


def _capitalize(text: str) -> str:
    """Capitalizes the first word, unless it is the name of a node or a key."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def _format_run_time(report: Report) -> str | None:
    run = report.files.run
    if run.started is None or run.ended is None:
        return None
    try:
        span = datetime.fromisoformat(run.ended) - datetime.fromisoformat(run.started)
    except ValueError:
        return None
    return f"{span.total_seconds():.1f} s"


def _list_settings(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the sections of ``settings.json``, each as lines."""
    return [
        (name, [(str(key), _format_setting(inner)) for key, inner in value.items()])
        for name, value in report.files.settings.items()
        if isinstance(value, dict) and value
    ]


def _format_setting(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value) or "—"
    return msgspec.json.encode(value).decode()


def _format_date(text: str | None) -> str:
    """Formats an ISO 8601 time as ``2026-01-02 03:04:05 UTC``. Returns other text unchanged."""
    if text is None:
        return "—"
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S %Z").strip()
    except ValueError:
        return text


def _format_size(octets: int) -> str:
    return f"{octets} B" if octets < 1024 else f"{octets / 1024:,.1f} KiB"


def _format_milliseconds(value: float | None) -> str:
    return "—" if value is None else f"{value:,.1f} ms" if value >= 10 else f"{value:.3f} ms"


def _format_finding(finding: Finding) -> str:
    return f"{finding.anomaly}: {finding.claim}"


def _format_time_link(row: OperationRow) -> str:
    """Returns the address of the operation's time in this page, for sharing."""
    return f"#t={in_seconds(row.call, MILLISECONDS)}&op={row.index}"


def _format_rate(operations: OperationRate | None) -> str:
    return "—" if operations is None else f"{operations.rate:,.1f}"


def _format_unsuccessful(operations: OperationRate | None) -> str:
    """Returns the share of operations that failed or have an unknown outcome."""
    return (
        "—"
        if operations is None or not operations.counts.total
        else f"{(operations.counts.total - operations.counts.ok) / operations.counts.total:.1%}"
    )


def _format_duration(value: float | None) -> str:
    return "—" if value is None else f"{value:.3f} s"


def _encode_edn(recorded: RecordedRun | None) -> Markup | None:
    """Encodes the history in base64, which needs no escapes in HTML."""
    return None if recorded is None or recorded.edn is None else Markup(base64.b64encode(recorded.edn).decode())


def _build_plot_data(drawn: Timeline, report: Report) -> dict[str, Any]:
    """Returns the data of the page's script: the plot, and the position of each finding in it.

    ``item``: the plot as Bokeh's JSON. ``axis``, ``named``, ``colours``, ``span`` and ``chosen``: as in
    :class:`Timeline`. ``rows``: the row of each operation in the source ``named``. ``frame``: the plot's left and right
    margins in pixels.
    """
    row_of = {index: row for row, index in enumerate(drawn.order)}
    findings = {
        str(finding.number): {
            "start": finding.start / NANOSECONDS,
            "stop": finding.stop / NANOSECONDS,
            "rows": [row_of[row.index] for row in finding.operations if row.index in row_of],
        }
        for finding in report.findings
        if finding.start is not None and finding.stop is not None
    }
    return {
        "item": json_item(drawn.layout, "plot"),
        "axis": drawn.axis,
        "named": drawn.operations_source,
        "colours": drawn.colours,
        "span": drawn.span,
        "findings": findings,
        "rows": {str(index): row for index, row in row_of.items()},
        "frame": [LEFT, RIGHT],
        "chosen": drawn.chosen,
        "log": _build_log_data(report.recorded, report.roles) if report.recorded is not None else None,
    }


def _build_log_data(recorded: RecordedRun, roles: Roles) -> dict[str, Any]:
    """Returns the log lines for the page's script. A line has seconds, node, 1 for an event, text, and time source.

    ``roles``: name and CSS class of each node's role, if there are several roles.
    """
    nodes = sorted({line.node for line in recorded.log.lines}, key=natural_sort_key)
    place = {node: number for number, node in enumerate(nodes)}
    return {
        "nodes": nodes,
        "roles": [[roles.by_node.get(node, ""), roles.node_tone(node) or ""] for node in nodes]
        if roles.has_several
        else None,
        "moment": None if recorded.log_view_time is None else recorded.log_view_time / NANOSECONDS,
        "lines": [
            [round(line.time / NANOSECONDS, 6), place[line.node], int(line.event), line.text, line.time_source.value]
            for line in recorded.log.lines
        ],
    }


def _read_scripts() -> list[str]:
    """Returns Bokeh's core scripts, without widgets, tables and typesetting."""
    return [script.replace("\r\n", "\n") for script in Resources(mode="inline", components=["bokeh"]).js_raw]
