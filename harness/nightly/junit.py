"""JUnit XML report of a nightly run: a test case for each attempt, with its seed and the command that repeats it."""

import re
from typing import Final
from xml.etree import ElementTree as ET

from assay.harness.nightly.night_record import AttemptOutcome, AttemptResult, MatrixCell
from assay.harness.nightly.night_verdict import CellResult, NightAccount
from assay.reports.index.entry import sanitize_command, sanitize_text

FAILURES: Final = (AttemptOutcome.FAIL, AttemptOutcome.MISSED)
NOT_RUN: Final = (AttemptOutcome.SKIPPED, AttemptOutcome.INTERRUPTED)
PASSES: Final = (AttemptOutcome.PASS, AttemptOutcome.DETECTED)
OWN: Final = re.compile(
    rb"<\?xml [^<>]*>\s*<testsuites [^<>]*>\s*<testsuite name=\"assay nightly [^<>]*>"
    rb"(?s:(?!.*<testsuite ).*)</testsuites>\s*\Z"
)
"""Matches each file that ``assay summary --junit`` writes. It has one suite, which is a night's."""
LONGEST_DETAIL: Final = 2_000
"""Maximum number of characters of each text of an attempt, except its command."""
NO_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Matches a character that XML 1.0 does not allow, not even escaped."""


def to_junit(night: NightAccount) -> bytes:
    """Returns a ``testsuites`` document. docs/guide/ci.md lists the properties of a case.

    - ``skipped``: known failures, skipped attempts, and cells that were not begun
    - ``error``: attempts that crashed, hung or have no verdict
    """
    suite = ET.Element("testsuite", name=f"assay nightly {sanitize_text(night.name)}",
    timestamp=night.nights[0].started[:19],
                       hostname=sanitize_text(night.nights[0].host))  # fmt: skip
    _add_properties(
        suite, [("night", night.name), ("verdict", night.verdict), ("version", night.nights[0].version or "")]
    )
    for cell_result in night.cells:
        for result in cell_result.results:
            _add_case(suite, cell_result, result)
    for cell in night.idle:
        why = (
            "not started, or unfinished because the night has not ended"
            if night.unended
            else "not started: no time was left"
        )
        ET.SubElement(_add_element(suite, cell, cell.name, 0.0), "skipped", message=why)
    missing = [(f"part {part} of {night.parts}", "this part of the night left no record") for part in night.missing]
    missing += [(f"night {name}", "this night has not ended: it goes on, or was killed") for name in night.unended]
    missing += [("another night of this name", one) for one in night.strays]
    lost = [(f"line {line.number} of the record" if line.number else "the record", str(line)) for line in night.lost]
    for name, message in [*missing, *lost]:
        case = ET.SubElement(suite, "testcase", classname="night", name=name, time="0")
        ET.SubElement(case, "error", message=sanitize_text(message))
    counts = {"tests": len(suite.findall("testcase")), **{
        f"{kind}s" if kind != "skipped" else kind: len(suite.findall(f"testcase/{kind}"))
        for kind in ("failure", "error", "skipped")
    }, "time": f"{night.seconds:.3f}"}  # fmt: skip
    root = ET.Element("testsuites")
    for one in (suite, root):
        one.attrib |= {key: str(value) for key, value in counts.items()}
    root.append(suite)
    for element in root.iter():
        element.text = NO_XML.sub("\N{REPLACEMENT CHARACTER}", element.text or "") or None
        element.attrib = {key: NO_XML.sub("\N{REPLACEMENT CHARACTER}", value) for key, value in element.attrib.items()}
    ET.indent(root)
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _add_case(suite: ET.Element, cell_result: CellResult, result: AttemptResult) -> None:
    cell = cell_result.cell
    case = _add_element(suite, cell, cell.name + f" [{result.attempt}]" * (cell.repeat > 1), result.seconds)
    entries = cell_result.entries[result.attempt]
    anomalies = sorted({name for entry in entries for name in entry.anomalies})
    _add_properties(
        case,
        [
            ("seed", str(result.seed)), ("nemesis", cell.nemesis), ("cluster", cell.cluster),
            ("defect", cell.defect or ""), ("outcome", result.outcome),
            *(("verdict", entry.verdict) for entry in entries), *(("anomaly", name) for name in anomalies),
            *(("run", run) for run in result.runs), *(pair for entry in entries for pair in entry.counts),
            *(("report", address) for entry in entries for label, address in entry.links if label == "report"),
            ("command", result.command),
        ],
    )  # fmt: skip
    message = sanitize_text(", ".join(anomalies) or result.detail or result.outcome)
    body = "\n".join(filter(None, (sanitize_text(result.detail, LONGEST_DETAIL), sanitize_command(result.command))))
    mark = cell_result.marks.get(result.attempt)
    if mark is not None:
        ET.SubElement(case, "skipped", message=sanitize_text(f"known until {mark.expires}: {message}: {mark.reason}"))
    elif result.outcome in NOT_RUN:
        ET.SubElement(case, "skipped", message=message)
    elif result.outcome is AttemptOutcome.MISSED and not cell_result.failed:
        ET.SubElement(case, "skipped", message=sanitize_text(f"missed, and detected by another attempt: {message}"))
    elif result.outcome not in PASSES:
        kind = "failure" if result.outcome in FAILURES else "error"
        ET.SubElement(case, kind, type=result.outcome, message=message).text = body


def _add_element(suite: ET.Element, cell: MatrixCell, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=sanitize_text(f"{cell.kind}.{cell.system}.{cell.workload}"),
                         name=sanitize_text(name), time=f"{seconds:.3f}")  # fmt: skip


def _add_properties(parent: ET.Element, pairs: list[tuple[str, str]]) -> None:
    inner = ET.SubElement(parent, "properties")
    for name, value in pairs:
        text = sanitize_command(value) if name == "command" else sanitize_text(value, LONGEST_DETAIL)
        if value:
            ET.SubElement(inner, "property", name=name, value=text)
