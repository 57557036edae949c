"""Renders the page of a store: a self-contained HTML file with compact data for its script."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from assay.harness.core.printable import join_some
from assay.reports import html
from assay.reports.index.board import (
    MOST_NIGHTS,
    VerdictCounts,
    build_histories,
    build_matrix,
    count_detections,
    count_verdicts,
    find_newest_runs,
    group_unknowns,
    list_nights,
)
from assay.reports.index.entry import FILES, Entry, NightEntry, RunVerdict, StoreContents
from assay.reports.index.failures import Failure, group_failures
from assay.reports.index.known import KnownFailures
from assay.reports.index.trends import Regression, Trends

OWN: Final = re.compile(html.HEAD + "<title>(?:PASS|FAIL|UNKNOWN) · (?s:.)*<footer>assay · ".encode())
"""Matches each page of ``assay index``."""
FOLDER: Final = Path(__file__).parent
MOST_BYTES: Final = 2_000_000
"""Maximum size in bytes of the list of runs and the histories of cells. Older runs are counted, but not listed."""
MOST_SHOWN: Final = 60
"""Maximum number of failures in a section, of reasons, and of rows or columns of a matrix."""
STANDINGS: Final = tuple(RunVerdict)
"""The verdicts; the page's data name a verdict by its place here."""
WORDS: Final = {
    RunVerdict.FAIL: "fail", RunVerdict.UNKNOWN: "unknown", RunVerdict.NONE: "no verdict", RunVerdict.PASS: "pass"
}  # fmt: skip
SIGNS: Final = {RunVerdict.FAIL: "✗", RunVerdict.UNKNOWN: "?", RunVerdict.NONE: "!", RunVerdict.PASS: "✓"}
"""Signs for readers who cannot see the colours."""
JAVASCRIPT_LIMIT: Final = 2**53


@dataclass(frozen=True)
class RenderedPage:
    """The page and its results. ``counting``: the failures without a mark, or with an expired mark.

    ``damaged``, ``unjudged``, ``overlooked``: runs that may have failed, in sentences.
    """

    html: str
    counting: tuple[Failure, ...]
    damaged: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    overlooked: tuple[str, ...] = ()


def render_page(
    store: StoreContents, known: KnownFailures, trends: Trends | None = None, *, live: bool = False
) -> RenderedPage:
    """Renders the page. ``live``: the page polls its server for changes."""
    found = group_failures(store, known)
    night, runs = store.tonight, find_newest_runs(store)
    board = build_matrix(runs, MOST_SHOWN)
    data, listed, plots_left = _build_data(store, trends)
    scripts = [html.read_source("index/index.js")]
    environment = html.build_environment(FOLDER)
    environment.filters.update(
        date=_format_date,
        count="{:,}".format,
        per_cent=_format_percentage,
        sentence=_capitalize,
        figure=_format_figure,
        length_of_time=_format_duration,
    )
    environment.globals.update(
        signs=SIGNS, words=WORDS, most=MOST_SHOWN, about=_build_query, terms=format_terms, named=_name_failures
    )
    text = environment.get_template("index.html").render(
        store=store,
        night=night,
        known=known,
        lead=_write_lead(found, night),
        trends=trends,
        standing=_find_verdict(found, count_verdicts(runs)),
        sections=_build_sections(found),
        unused_marks=known.unused_marks({(one.system, one.workload, one.anomalies) for one in found}),
        matrix=board,
        tally=count_verdicts(runs),
        all=count_verdicts(store.entries),
        doubts=group_unknowns(runs),
        earlier=sum(1 for one in store.entries if _is_unanswered(one)) - sum(1 for one in runs if _is_unanswered(one)),
        detection=count_detections(store),
        workloads=_list_workloads_with_defects(store),
        listed=listed,
        plots_left=plots_left,
        live=live,
        data=data,
        **html.build_shell(
            scripts, html.read_source("style.css") + html.read_source("index/index.css"), "'self'" if live else ""
        ),
    )
    counting = tuple(one for one in found if one.fails_night)
    return RenderedPage(text, counting, store.damaged, tuple(store.unjudged), store.overlooked)


def _build_sections(found: Sequence[Failure]) -> list[tuple[str, str, list[Failure]]]:
    """Returns id, title and failures of each section. Known failures come last."""
    counting = [one for one in found if one.fails_night]
    return [
        ("new", "New failures", [one for one in counting if one.new]),
        ("open", "Open failures, seen before", [one for one in counting if one.tonight and not one.new]),
        ("quiet", "Open failures, not seen on the newest night", [one for one in counting if not one.tonight]),
        ("known", "Known failures", [one for one in found if not one.fails_night]),
    ]


def _write_lead(found: Sequence[Failure], night: NightEntry | None) -> str:
    """Returns the sentences at the top of the page: the new failures, and the number of failures of each section."""
    if night is None:
        return "There is no run in this store."
    if not found:
        return "No failure."
    sections = {name: failures for name, _, failures in _build_sections(found)}
    words = {"new": "new", "open": "open", "quiet": "not seen again", "known": "known"}
    counts = ", ".join(f"{len(failures)} {words[name]}" for name, failures in sections.items() if failures)
    new = f"New: {_name_failures(sections['new'])}. " if sections["new"] else ""
    return f"{new}Failures: {counts}."


def _name_failures(some: Sequence[Failure], most: int = 3) -> str:
    """Names at most ``most`` failures, such as ``lost-write in test_log``, and counts the others."""
    named = [f"{' + '.join(one.anomalies) or 'a failure'} in {one.workload}" for one in some]
    return join_some(named, most)


def _find_verdict(found: Sequence[Failure], runs: VerdictCounts) -> str:
    """Returns the verdict over the store, by its failures, and by the verdicts ``runs`` of the newest night."""
    if any(one.fails_night for one in found):
        return "fail"
    doubtful = runs.counts[RunVerdict.UNKNOWN] + runs.counts[RunVerdict.NONE]
    return "unknown" if doubtful or not runs.total else "pass"


def _is_unanswered(entry: Entry) -> bool:
    """Returns whether a run neither passed nor failed. Runs with a planted defect do not count."""
    return not entry.cell.defect and entry.verdict in (RunVerdict.UNKNOWN, RunVerdict.NONE)


def _list_workloads_with_defects(store: StoreContents) -> list[str]:
    return sorted({one.cell.workload for one in store.entries if one.cell.defect})


@dataclass
class _InternTable:
    """Interns texts or cells as numbers. ``size``: bytes of the table in the page."""

    numbers: dict[Any, int] = field(default_factory=dict)
    size: int = 0

    def get_number(self, one: Any) -> int:
        if one not in self.numbers:
            self.numbers[one] = len(self.numbers)
            self.size += _measure_inline(one)
        return self.numbers[one]


def _measure_inline(value: Any) -> int:
    """Returns the bytes of a value in the page, with a comma. Escapes make it longer than plain JSON."""
    return len(html.to_inline_json(value).encode()) + 1


def _build_data(store: StoreContents, trends: Trends | None) -> tuple[Any, int, int]:
    """Returns the script's data, the number of listed runs (the newest ones), and the number of cells without a plot.

    Runs and plots are left out beyond ``MOST_BYTES``; plots take at most half of it.
    """
    cells, texts, names = _InternTable(), _InternTable(), list_nights(store, trends)
    nights = {night: place for place, night in enumerate(names)}
    size, every, plots = _measure_inline(names), build_histories(store, trends), []
    for cell, figures in every.items():
        size += _measure_inline(plot := [cells.get_number(cell), figures])
        if size + cells.size > MOST_BYTES / 2:
            break
        plots.append(plot)
    rows: list[list[Any]] = []
    for one in reversed(store.entries):
        size += _measure_inline(row := _build_row(one, cells.get_number(one.cell), nights[one.night], texts))
        if size + texts.size + cells.size > MOST_BYTES:
            break
        rows.append(row)
    data = {
        "cells": list(cells.numbers),
        "nights": names,
        "first": max(0, len(names) - MOST_NIGHTS),
        "standings": [[one, WORDS[one], SIGNS[one]] for one in STANDINGS],
        "files": list(FILES.items()),
        "texts": list(texts.numbers),
        "runs": rows,
        "plots": plots,
    }
    return html.to_inline_json(data), len(rows), len(every) - len(plots)


def _build_row(one: Entry, cell: int, night: int, texts: _InternTable) -> list[Any]:
    """Returns a run's row. A large seed is a text, because JavaScript would round it. A name equal to the address is
    omitted.
    """
    home, _, last = one.address.rpartition("/")
    said = ", ".join(one.anomalies) or one.reason
    command = one.command.replace(f"--seed={one.seed}", "--seed=\0", 1)
    seed = one.seed if one.seed is None or abs(one.seed) < JAVASCRIPT_LIMIT else str(one.seed)
    files = sum(1 << place for place, file in enumerate(FILES) if file in one.files)
    row = [
        cell, night, STANDINGS.index(one.verdict), int(datetime.fromisoformat(one.started).timestamp()),
        texts.get_number(home), last, texts.get_number(one.status), texts.get_number(said), texts.get_number(command),
        seed, one.figures.operations, files,
    ]  # fmt: skip
    return row if one.name == one.address and not one.extra_links else [*row, one.name, one.extra_links]


def _build_query(one: Failure | Entry | Regression) -> str:
    """Returns a search query that lists the runs of a failure or a cell."""
    if isinstance(one, Regression):
        return format_terms(**{key: value for key, value in one.cell._asdict().items() if value})
    if isinstance(one, Failure):
        return format_terms(
            workload=one.workload, system=one.system, verdict=RunVerdict.FAIL, said=", ".join(one.anomalies)
        )
    return format_terms(workload=one.cell.workload, nemesis=one.cell.nemesis, night=one.night)


def format_terms(**wanted: str) -> str:
    """Returns ``workload:test_log nemesis:"two words"``."""
    return " ".join(f'{key}:"{value}"' if " " in value else f"{key}:{value}" for key, value in wanted.items())


def _format_date(text: str | None) -> str:
    return "—" if text is None else f"{text[:10]} {text[11:16]}"


def _format_duration(seconds: float) -> str:
    """Formats minutes up to two hours, then hours."""
    return f"{seconds / 60:.3g} min" if seconds <= 7_200 else f"{seconds / 3600:.3g} h"


def _format_percentage(part: float) -> str:
    return f"{100 * part:.2g} %" if part < 0.1 else f"{100 * part:.0f} %"


def _format_figure(value: float) -> str:
    """Formats a number with three digits."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
