"""Text of a failing test: at most 25 lines.

The order is: the claim, the operations that contradict each other, the active faults, other findings, the command that
repeats the run, and the path of the report. Each anomaly has one headline with its count, and at most one further
example. The text of an unknown verdict begins with UNKNOWN and the missing evidence. If several anomalies have an equal
reason, one sentence names all of them.

The module is pure; its caller reads the history.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from assay.checkers.judging.contract import BROKEN_INVARIANT
from assay.checkers.judging.verdict import LONGEST_LIST, Finding, Judgement, Verdict, find_beneath
from assay.checkers.times import MILLISECONDS, find_digits, in_seconds
from assay.harness.core.printable import count_noun, inflect, to_printable
from assay.reports.coverage import describe_kinds, describe_totals

FORBIDDEN: Final = " is forbidden, but "
"""Separates, in a reason, an anomaly's name from the reason why the anomaly could not be judged."""
_NUMBER: Final = re.compile(r"\d+")
OF_SEVERAL: Final = (
    ("its check had", "their checks had"),
    ("has no data for it", "has no data for them"),
    ("to which it applies", "to which they apply"),  # in stored verdicts of assay 0.1.0
)
"""Wordings after the separator, in the singular and in the plural."""


def join_reasons(reasons: Sequence[str]) -> list[str]:
    """Returns the reasons in order of first occurrence: ``a, b and c are forbidden, but their checks had no data``."""
    subjects: dict[tuple[bool, str], list[str]] = {}
    for reason in reasons:
        subject, separator, rest = reason.partition(FORBIDDEN)
        # Only a line about one anomaly counts, because a traceback may contain the same words.
        separator = "" if "\n" in reason else separator
        subjects.setdefault((bool(separator), rest if separator else reason), []).append(subject)
    return [_format_reason(names, rest) if forbidden else rest for (forbidden, rest), names in subjects.items()]


def _format_reason(names: Sequence[str], rest: str) -> str:
    if len(names) == 1:
        return f"{names[0]}{FORBIDDEN}{rest}"
    for one, several in OF_SEVERAL:
        rest = rest.replace(one, several)
    return f"{', '.join(names[:-1])} and {names[-1]}{FORBIDDEN.replace(' is ', ' are ')}{rest}"


# Maximum numbers of lines in the text, of characters in a line, and of items of each kind.
MAX_LINES: Final = 25
MAX_WIDTH: Final = 300
MAX_FAULTS: Final = 3
MAX_SAME_CAUSE: Final = 2
MAX_ANOMALIES: Final = 4
MAX_REASONS: Final = 6
MAX_REMARKS: Final = 3
MAX_REASON: Final = 240
"""Maximum number of characters of a reason."""
MAX_ENDING: Final = 50
"""Number of characters reserved at the end of a line of reasons, for the number of omitted reasons."""


@dataclass(frozen=True)
class EvidenceLines:
    """Lines of the failure text from the history, by operation index and by fault id."""

    operations: Mapping[int, str] = field(default_factory=dict)
    """Lines of operations, in the order of the text."""
    faults: Mapping[int, str] = field(default_factory=dict)
    digits: int = MILLISECONDS
    """Number of decimals that keep all times distinct."""
    last_fault: str | None = None
    """The last fault that was healed before the first finding, if no fault was active at that time."""
    knows_faults: bool = True
    """False if faults are not known for sure, because another tool wrote the history, or a model alone judged it."""
    named_faults: tuple[str, ...] | None = None
    """The active faults by the events of another tool's nemesis; None if there are no such events."""
    first: str | None = None
    """Time and operation of the first occurrence of the anomaly, unless ``operations`` shows it."""


@dataclass(frozen=True)
class FailureFooter:
    """Last lines of the text: seed, command to repeat the run, path of its report, digest of its history, remarks. A
    value that is None has no line."""

    seed: int | None = None
    command: str | None = None
    report: str | None = None
    digest: str | None = None
    remarks: tuple[str, ...] = ()


def describe(judgement: Judgement, evidence: EvidenceLines, footer_data: FailureFooter) -> str:
    """Returns at most 25 lines. The first line begins with ``FAIL``, ``UNKNOWN`` or ``PASS``.

    Lines are cut at ``MAX_WIDTH`` characters. The command and the path are never cut, because a part of a command would
    do something else.
    """
    footer = list(_iterate_footer(footer_data))
    room = MAX_LINES - len(footer)
    body = list(_iterate_body(judgement, evidence, examples=True))
    if len(body) > room:
        body = list(_iterate_body(judgement, evidence, examples=False))[:room]
    return "\n".join([*map(_clip, body), *footer])


def find_operations(findings: Sequence[Finding]) -> tuple[int, ...]:
    """Returns the operations whose lines ``describe`` needs. ``findings``: the forbidden findings."""
    return findings[0].operations[:LONGEST_LIST] if findings else ()


def find_forbidden(judgement: Judgement) -> list[Finding]:
    """Returns the forbidden findings, without findings that are shown beneath another one of the same cause.

    Broken invariants come last, because violations that clients saw are more important.
    """
    return sorted(
        (
            finding
            for finding in judgement.findings
            if finding.anomaly in judgement.forbidden and finding.same_cause_as is None
        ),
        key=is_about_invariant,
    )


def is_about_invariant(finding: Finding) -> bool:
    """Returns whether a finding is about the system's own invariants, whose violation clients may not notice."""
    return finding.anomaly == BROKEN_INVARIANT


def replace_numbers(text: str) -> str:
    """Returns the text with ``#`` for each number, so that sentences that differ only in numbers become equal."""
    return _NUMBER.sub("#", text)


def _iterate_body(judgement: Judgement, evidence: EvidenceLines, *, examples: bool) -> Iterator[str]:
    """Yields the lines before the footer. ``examples``: whether all anomalies have a further example, or only the first
    one."""
    if judgement.verdict is Verdict.FAIL:
        yield from _iterate_failure(judgement, evidence, examples=examples)
    elif judgement.verdict is Verdict.UNKNOWN:
        yield from _iterate_unknown(judgement)
    else:
        yield f"PASS: {describe_totals(judgement)}, {judgement.effects:,} {inflect(judgement.effects, 'effect')}"
    yield from _iterate_tolerated(judgement)
    if judgement.verdict is Verdict.FAIL and judgement.unknown:
        yield _format_doubts(judgement)
    yield from (f"warning: {warning}" for warning in judgement.warnings[:MAX_REMARKS])
    if more := max(len(judgement.warnings) - MAX_REMARKS, 0):
        yield f"and {more} more warning{'s' * (more > 1)} (verdict.json)"


def _iterate_failure(judgement: Judgement, evidence: EvidenceLines, *, examples: bool) -> Iterator[str]:
    by_anomaly: dict[str, list[Finding]] = {}
    for finding in find_forbidden(judgement):
        by_anomaly.setdefault(finding.anomaly, []).append(finding)
    for number, (anomaly, findings) in enumerate(islice(by_anomaly.items(), MAX_ANOMALIES)):
        head, *others = findings
        beneath = sum(one.anomaly == anomaly and one.same_cause_as is not None for one in judgement.findings)
        times = judgement.anomalies.get(anomaly, len(findings)) - beneath
        yield f"FAIL {anomaly}{_format_times(times)}: {head.claim}"
        if number == 0:
            yield from _iterate_details(head, evidence)
            yield from _iterate_beneath(head, judgement)
        if number == 0 or examples:
            yield from (f"  another: {claim}" for claim in _find_examples(head, others))
    if not by_anomaly:
        yield "FAIL: the contract was broken, and no finding says where (see verdict.json)"
    counts = [f"{name} {count}" for name, count in sorted(judgement.anomalies.items()) if name in judgement.forbidden]
    if counts:
        yield f"forbidden: {', '.join(counts)}, in {describe_totals(judgement)}"


def _format_times(times: int) -> str:
    return f" ({times:,} times)" if times > 1 else ""


def _find_examples(head: Finding, others: Sequence[Finding]) -> list[str]:
    """Returns at most one claim of ``others`` that differs from that of ``head``, preferably not only in numbers."""
    claims = [finding.claim for finding in others if finding.claim != head.claim]
    words = replace_numbers(head.claim)
    return sorted(claims, key=lambda claim: replace_numbers(claim) == words)[:1]


def _iterate_details(finding: Finding, evidence: EvidenceLines) -> Iterator[str]:
    named = find_operations([finding])
    known = {index: line for index, line in evidence.operations.items() if index in named}
    yield from (f"  {line}" for line in known.values())
    yield from (f"  operation {index}" for index in named if index not in known)
    rest = len(finding.operations) - len(named)
    if more := finding.omitted + rest:
        where = f", {rest} of them in the report" if rest else ", not listed"
        yield f"  and {count_noun(more, 'more operation')}{where}"
    if evidence.first is not None:
        yield f"  {evidence.first}"
    if finding.leader is not None:
        yield f"  leader then: {finding.leader}" + (f", epoch {finding.epoch}" if finding.epoch is not None else "")
    yield from _iterate_faults(finding, evidence)


def _iterate_faults(finding: Finding, evidence: EvidenceLines) -> Iterator[str]:
    """Yields the active faults; no line if it is unknown whether there were any."""
    between = ""
    if finding.since is not None and finding.until is not None:
        digits = max(evidence.digits, find_digits((finding.since, finding.until)))
        between = f" between {in_seconds(finding.since, digits)} and {in_seconds(finding.until, digits)} s"
    if evidence.knows_faults:
        source, lines = "", [evidence.faults.get(number, f"fault {number}") for number in finding.faults]
    elif evidence.named_faults is not None:
        source, lines = ", by the nemesis' events in the file", list(evidence.named_faults)
    else:
        return
    yield f"  faults in force{between}{source}:{'' if lines else ' none'}"
    yield from (f"    {line}" for line in lines[:MAX_FAULTS])
    if not lines and evidence.last_fault is not None:
        yield f"    last: {evidence.last_fault}"
    if len(lines) > MAX_FAULTS:
        yield f"    and {len(lines) - MAX_FAULTS} more (the report has them)"


def _iterate_beneath(head: Finding, judgement: Judgement) -> Iterator[str]:
    """Yields the other findings of the same cause: one per anomaly, and the number of findings with equal words."""
    by_anomaly: dict[str, list[Finding]] = {}
    alike = 0
    for finding in find_beneath(judgement, head):
        if finding.anomaly == head.anomaly and replace_numbers(finding.claim) == replace_numbers(head.claim):
            alike += 1
        else:
            by_anomaly.setdefault(finding.anomaly, []).append(finding)
    if alike:
        yield f"  and {alike} more like it, of the same cause"
    each = list(by_anomaly.items())
    for anomaly, findings in each[:MAX_SAME_CAUSE]:
        yield f"  also seen as {anomaly}{_format_times(len(findings))}: {findings[0].claim}"
    if more := sum(len(findings) for _, findings in each[MAX_SAME_CAUSE:]):
        yield f"  and as {count_noun(more, 'more finding')} (verdict.json)"


def _iterate_unknown(judgement: Judgement) -> Iterator[str]:
    reasons, more = _find_first_lines(judgement)
    yield f"UNKNOWN: {reasons[0] if reasons else 'no reason was given'}"
    yield from (f"  {reason}" for reason in reasons[1:])
    if more:
        yield f"  and {count_noun(more, 'more reason')} (verdict.json)"
    yield f"{describe_totals(judgement)}, {judgement.effects:,} {inflect(judgement.effects, 'effect')}"
    if judgement.kinds:
        yield f"  {describe_kinds(judgement)}"


def _format_doubts(judgement: Judgement) -> str:
    """Returns one line with all reasons that fit into it, and the number of the others."""
    reasons, more = _find_first_lines(judgement)
    text = f"not a pass: {reasons[0]}"
    for number, reason in enumerate(reasons[1:], start=1):
        if len(text) + len(reason) > MAX_WIDTH - MAX_ENDING:
            more += len(reasons) - number
            break
        text += f"; {reason}"
    return text + (f"; and {count_noun(more, 'more reason')} (verdict.json)" if more else "")


def _find_first_lines(judgement: Judgement) -> tuple[list[str], int]:
    """Returns the first lines of the first reasons, and the number of other reasons. Only verdict.json has tracebacks.

    A long line is cut in its middle, because a reason ends with advice.
    """
    lines = join_reasons([reason.strip().partition("\n")[0].removesuffix(":") for reason in judgement.unknown])
    return [_cut_middle(line) for line in lines[:MAX_REASONS]], max(len(lines) - MAX_REASONS, 0)


def _iterate_tolerated(judgement: Judgement) -> Iterator[str]:
    counts = [f"{name} {count}" for name, count in sorted(judgement.anomalies.items()) if name in judgement.tolerated]
    if counts:
        yield f"tolerated: {', '.join(counts)}"
        yield from (f"  {name}: {why}" for name, why in judgement.reasons.items() if name in judgement.anomalies)


def _iterate_footer(footer_data: FailureFooter) -> Iterator[str]:
    yield from (_clip(f"remark: {remark}") for remark in footer_data.remarks[:MAX_REMARKS])
    if footer_data.seed is not None:
        yield f"seed: {footer_data.seed}" + (f", history {footer_data.digest[:16]}" if footer_data.digest else "")
    if footer_data.command is not None:
        yield to_printable(f"repeat: {footer_data.command}")
    if footer_data.report is not None:
        yield to_printable(f"report: {footer_data.report}")


def _cut_middle(reason: str) -> str:
    half = MAX_REASON // 2
    return reason if len(reason) <= MAX_REASON else f"{reason[: half - 2]} … {reason[1 - half :]}"


def _clip(line: str) -> str:
    flat = to_printable(" ".join(line.splitlines()))
    return flat if len(flat) <= MAX_WIDTH else flat[: MAX_WIDTH - 1] + "…"
