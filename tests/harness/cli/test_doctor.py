"""Tests that ``assay doctor`` prints each finding at once, and says what it is doing meanwhile."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator

import pytest

from assay.cluster import doctor
from assay.cluster.doctor import DoctorFinding
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.cli.time_estimate import StepLine

FINDINGS = (
    DoctorFinding("python", True, "3.11", enables="everything", required=True),
    DoctorFinding("java", False, "no java command", "`apt install java`", "Spark"),
)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The output of the command before each step, and its standard error after it."""
    seen: list[str] = []

    def diagnose(announce: Callable[[str], None]) -> Iterator[DoctorFinding]:
        for finding in FINDINGS:
            announce(f"looking at {finding.name}")
            seen.extend(capsys.readouterr())
            yield finding

    monkeypatch.setattr(doctor, "diagnose", diagnose)
    return seen


def test_a_finding_is_printed_before_the_next_is_looked_for(
    printed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == ExitCode.PASS
    assert printed == [
        "",
        "assay: looking at python ...\n",
        f"ok      {'python':<{doctor.NAME_WIDTH}}  3.11\n",
        "assay: looking at java ...\n",
    ]
    assert capsys.readouterr().out.splitlines() == [
        f"no      {'java':<{doctor.NAME_WIDTH}}  no java command",
        f"        {'':<{doctor.NAME_WIDTH}}  `apt install java` (for Spark)",
    ]


def test_json_is_one_list_at_the_end(printed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == ExitCode.PASS
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["python", "java"]
    assert printed[::2] == ["", ""]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_step_is_gone_when_its_result_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    step = StepLine()
    for name in ("one", "two"):
        step.show(f"looking at {name}")
        shown = terminal.getvalue()
        assert f"looking at {name} ..." in shown
        step.clear()
        erased = terminal.getvalue().removeprefix(shown)
        assert "\x1b[2K" in erased or "\x1b[1A" in erased
        step.clear()
