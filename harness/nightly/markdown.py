"""Markdown of a night's account, for the summary of a CI job: failures first, with the commands that repeat them."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from assay.checkers.judging.sensitivity import PlantedShare
from assay.checkers.judging.verdict import Verdict
from assay.harness.core.printable import join_some
from assay.harness.nightly.night_record import AttemptOutcome, AttemptResult, needs_attention
from assay.harness.nightly.night_verdict import CellResult, NightAccount
from assay.reports.index.entry import sanitize_command, sanitize_text
from assay.reports.index.failures import Failure

MOST_ENTRIES: Final = 50
"""Maximum number of entries of one list, because GitHub accepts 1 MiB."""
MOST_NAMES: Final = 10
"""Maximum number of names in one line."""
SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|~#&@!])")
SIGNS: Final = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.UNKNOWN: "❔"}
OWN: Final = re.compile(f"## (?:{'|'.join(SIGNS.values())}) Night ".encode())
"""Matches each file that ``assay summary --markdown`` writes."""


def to_markdown(night: NightAccount) -> str:
    """Returns the summary of a night as Markdown."""
    return "\n\n".join(_make_blocks(night)) + "\n"


def escape(words: str) -> str:
    """Escapes a text for Markdown, in one line."""
    return SPECIAL.sub(r"\\\1", sanitize_text(words))


def make_code_block(command: str) -> str:
    """Returns a code block of one line."""
    line = sanitize_command(command)
    fence = _make_fence(line, 3)
    return f"{fence}\n{line}\n{fence}"


def make_code_span(words: str) -> str:
    """Returns a text as code within a line."""
    text = sanitize_text(words)
    fence = _make_fence(text, 1)
    # Markdown removes one space at each end, so that the text may begin or end with a backtick.
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _make_fence(line: str, least: int) -> str:
    """Returns more backticks than any sequence of them in the line, because that sequence would end the code."""
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    return "`" * max(longest + 1, least)


def _make_blocks(night: NightAccount) -> Iterator[str]:
    counts = Counter(result.outcome for cell in night.cells for result in cell.results)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()) or "nothing was run"
    yield f"## {SIGNS[night.verdict]} Night {escape(night.name)}: {night.verdict}"
    versions = ", ".join(dict.fromkeys(make_code_span(one.version) for one in night.nights if one.version))
    yield f"{outcomes}; {night.seconds / 60:.0f} min in all{f', at {versions}' if versions else ''}."
    if night.missing:
        parts = ", ".join(map(str, night.missing))
        yield f"**No record of part {parts} of {night.parts}:** what it had to do is not known."
    if night.strays:
        yield f"**Another night has this name:** {escape(night.strays[0])}."
    if night.unended:
        folders = ", ".join(map(escape, night.unended))
        yield f"**Has not ended: {folders}.** It goes on, or it was killed; `assay nightly --resume` continues it then."
    if night.lost:
        lines = "\n".join(f"- {escape(str(one))}" for one in night.lost[:MOST_ENTRIES])
        yield f"### Outcomes that are lost\n\nThe record is damaged, so this night is no pass:\n\n{lines}"
    counting = [one for one in night.failures if one.fails_night]
    yield from _make_failures("New failures", [one for one in counting if one.new])
    yield from _make_failures("Open failures", [one for one in counting if not one.new])
    yield from _make_cells("Defects that were missed", night.cells, (AttemptOutcome.MISSED,))
    rest = [
        one
        for one in AttemptOutcome
        if needs_attention([one]) and one not in (AttemptOutcome.FAIL, AttemptOutcome.MISSED)
    ]
    yield from _make_cells("Without an answer", night.cells, rest)
    yield from _make_failures("Known failures", [one for one in night.failures if not one.fails_night])
    yield from _make_sensitivities(night.cells)
    if night.idle:
        names = join_some([escape(one.name) for one in night.idle], MOST_NAMES)
        reasons = ["or with an outcome that is lost"] * bool(night.lost)
        reasons += ["or because the night has not ended"] * bool(night.unended)
        title = "Not begun, or not ended" if night.unended else "Not begun"
        yield f"### {title}\n\n{len(night.idle)} cells, {', '.join(['for want of time', *reasons])}: {names}"
    if night.problems:
        yield "### Not readable\n\n" + "\n".join(f"- {escape(one)}" for one in night.problems[:MOST_ENTRIES])


def _make_failures(title: str, some: Sequence[Failure]) -> Iterator[str]:
    if not some:
        return
    yield f"### {title}"
    for one in some[:MOST_ENTRIES]:
        faults = f", by {' then '.join(map(escape, one.shape))}" if one.shape else ""
        first, last = (entry.started[:16].replace("T", " ") for entry in (one.entries[-1], one.entries[0]))
        what = " + ".join(map(escape, one.anomalies)) or "failed"
        words = [f"**{what}** in {escape(one.workload)} of {escape(one.system)}"]
        words[0] += f"{faults}: {one.rate.failed} of {one.rate.runs} runs, first seen {first}, last {last} (UTC)."
        if one.last_pass_version or one.suspects:
            green = [f"green at {make_code_span(one.last_pass_version)}"] if one.last_pass_version else []
            since = [*green, *map(make_code_span, one.suspects)]
            words.append(f"Versions: {join_some(since, MOST_NAMES)}.")
        if one.mark is not None:
            over = ", which is past" if one.expired else ""
            words.append(f"Known until {one.mark.expires}{over}: {escape(one.mark.reason)}.")
        yield "\n".join(words)
        links = [make_code_span(address) for label, address in one.example.links if label == "report"]
        yield make_code_block(one.example.command) + (f"\n\nReport: {links[0]}" if links else "")
    if len(some) > MOST_ENTRIES:
        yield f"And {len(some) - MOST_ENTRIES} more, which `assay index` shows."


def _make_sensitivities(cells: Sequence[CellResult]) -> Iterator[str]:
    """Yields the cells of low sensitivity, planted violations that a check missed, and the cells without a result."""
    found = [(cell.cell.name, share) for cell in cells if cell.sensitivity for share in cell.sensitivity.low]
    undetected = [(cell.cell.name, share) for cell in cells if cell.sensitivity for share in cell.sensitivity.escaped]
    if found:
        yield "### Low sensitivity"
        yield "In these cells, runs that passed would have shown this share of planted violations:"
        lines = [f"- {escape(cell)}: {escape(share.anomaly)} {share}; {_describe_miss(share)}" for cell, share in found]
        yield "\n".join(lines[:MOST_ENTRIES])
        if len(lines) > MOST_ENTRIES:
            yield f"And {len(lines) - MOST_ENTRIES} more."
    if undetected:
        yield "### Violations that a check missed"
        yield "The history could have shown them. This is a defect of the check, so please report it:"
        lines = [f"- {escape(cell)}: {escape(share.anomaly)}: {escape(share.escaped[0])}" for cell, share in undetected]
        yield "\n".join(lines[:MOST_ENTRIES])
    if unmeasured := [one for one in cells if one.unmeasured]:
        yield "### Sensitivity that is not known"
        lines = [f"- {escape(one.cell.name)}: {escape(one.unmeasured)}" for one in unmeasured]
        yield "\n".join(lines[:MOST_ENTRIES])
        if len(lines) > MOST_ENTRIES:
            yield f"And {len(lines) - MOST_ENTRIES} more."


def _describe_miss(share: PlantedShare) -> str:
    return f"missed, for example: {escape(share.missed)}" if share.missed else ""


def _make_cells(title: str, cells: Sequence[CellResult], outcomes: Sequence[AttemptOutcome]) -> Iterator[str]:
    """Yields a block for each attempt with one of these outcomes, of cells that failed or need attention."""
    found = [
        (cell, result)
        for cell in cells
        if cell.failed or cell.needs_attention
        for result in cell.results
        if result.outcome in outcomes
    ]
    if not found:
        return
    yield f"### {title}"
    for cell, result in found[:MOST_ENTRIES]:
        detail = escape(result.detail) or "no detail"
        yield f"**{result.outcome}** {escape(cell.cell.name)}{_describe_attempt(cell, result)}: {detail}"
        yield make_code_block(result.command)
    if len(found) > MOST_ENTRIES:
        yield f"And {len(found) - MOST_ENTRIES} more, which `assay index` shows."


def _describe_attempt(cell: CellResult, result: AttemptResult) -> str:
    return f", attempt {result.attempt} of {cell.cell.repeat}" if cell.cell.repeat > 1 else ""
