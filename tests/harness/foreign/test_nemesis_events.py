"""The events of another tool's nemesis: which faults they name, and what a failure text says of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.foreign.nemesis_events import ForeignFault, NemesisEvents


@pytest.mark.parametrize(
    ("events", "faults"),
    [
        ([], []),
        (["start", "stop"], [("fault", 0, 1)]),
        (["start-partition", "start-partition", "stop-partition", "stop-partition"], [("partition", 0, 3)]),
        (["start-partition", "stop-partition", "start-partition"], [("partition", 0, 1), ("partition", 2, None)]),
        (["kill", "kill", "start", "start"], [("kill", 0, 3)]),
        (["pause", "kill", "resume", "start"], [("pause", 0, 2), ("kill", 1, 3)]),
        (["start", "kill", "start", "stop"], [("fault", 0, 3), ("kill", 1, 2)]),
        (["start-partition", "kill", "heal", "heal"], [("partition", 0, 3), ("kill", 1, 3)]),
        (["kill", "start", "bump-clock", "start", "stop"], [("kill", 0, 1), ("bump-clock", 2, 2), ("fault", 3, 4)]),
        (["heal-all"], []),
        (["kill", "start", "start-partition", "heal", "heal"], [("kill", 0, 1), ("partition", 2, 4)]),
        (["kill", "heal", "heal", "heal", "heal"], [("kill", 0, 2)]),
        (["kill", "start", "start", "start"], [("kill", 0, 3)]),
        (["bump-clock", "bump-clock"], [("bump-clock", 0, 0), ("bump-clock", 1, 1)]),
        (["heal", "stop-partition"], [("stop-partition", 1, 1)]),
    ],
)
def test_events_are_combined_to_faults(events: list[str], faults: list[tuple[str, int, int | None]]) -> None:
    nemesis = NemesisEvents()
    for moment, f in enumerate(events):
        nemesis.add(f, moment)
    assert nemesis.list_faults() == tuple(ForeignFault(*fault) for fault in faults)
    assert nemesis.count == len(events)


def test_events_that_repeat_cost_no_more_than_others() -> None:
    """The time for n faults that end together, and n further events, must not grow with n * n."""
    nemesis = NemesisEvents()
    events = [*(f"start-{number}" for number in range(20_000)), *["heal"] * 20_000]
    began = time.process_time()
    for moment, f in enumerate(events):
        nemesis.add(f, moment)
    assert len(nemesis.list_faults()) == 20_000
    assert time.process_time() - began < 5


def entries(*nemesis: tuple[int, str]) -> str:
    """A register that shows 1 again after 2 was written, from 0.003 to 0.006 s, in a history of Jepsen."""
    rows = [
        (1, 0, "invoke", "write", 1), (2, 0, "ok", "write", 1), (3, 0, "invoke", "write", 2), (4, 0, "ok", "write", 2),
        (5, 1, "invoke", "read", "nil"), (6, 1, "ok", "read", 1),
        *((time, ":nemesis", "info", f, "nil") for time, f in nemesis),
    ]  # fmt: skip
    return "\n".join(
        f"{{:time {time * 1_000_000}, :process {process}, :type :{type}, :f :{f}, :value {value}}}"
        for time, process, type, f, value in sorted(rows, key=lambda row: row[0])
    )


@pytest.mark.parametrize(
    ("nemesis", "lines"),
    [
        ((), []),
        (
            ((0, "start-partition"), (2, "stop-partition"), (7, "kill")),
            ["  faults in force between 0.003 and 0.006 s, by the nemesis' events in the file: none"],
        ),
        (
            ((0, "start-partition"), (4, "stop-partition"), (5, "kill")),
            [
                "  faults in force between 0.003 and 0.006 s, by the nemesis' events in the file:",
                "    partition from 0.000 s to 0.004 s",
                "    kill from 0.005 s, and was never ended",
            ],
        ),
    ],
)
def test_the_text_names_the_faults_of_the_file_and_says_none_only_if_it_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nemesis: tuple[tuple[int, str], ...], lines: list[str]
) -> None:
    (tmp_path / "history.edn").write_text(entries(*nemesis))
    assert main(["check", str(tmp_path / "history.edn"), "--model=register"]) == ExitCode.FAIL
    text = capsys.readouterr().out.splitlines()
    found = [line for line in text if line.startswith(("  faults in force", "    partition", "    kill"))]
    assert found == lines
    counted = [line for line in text if line.endswith(" no verdict")]
    assert counted == ([f"{len(nemesis)} events of the nemesis, which change no verdict"] if nemesis else [])
