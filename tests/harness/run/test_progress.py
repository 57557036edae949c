"""Progress: what the line says, and that it does not come too often."""

from __future__ import annotations

import io

from rich.console import Console

from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.run.progress import PlainProgress, RunTally, TerminalProgress


def tally() -> RunTally:
    made = RunTally(stage="main", elapsed=2.0)
    for outcome in (Outcome.OK, Outcome.OK, Outcome.INFO, Outcome.FAIL):
        made.completed(Completed(0, 0, "w0", Operation("send"), Completion(outcome), 0, 1))
    made.active_faults = {2: "kill n1", 1: "partition n2"}
    return made


def test_the_line_counts_outcomes_and_names_faults_in_force() -> None:
    line = tally().format_line()
    assert "2.0 s  ok 2 info 1 fail 1  2 ops/s  faults: partition n2, kill n1" in line
    assert RunTally().format_line().endswith("faults: none")
    assert RunTally(injected=3).format_line().endswith("faults: none (3 healed)"), (
        "a short fault falls between two lines"
    )


def test_plain_lines_come_every_five_seconds_at_most() -> None:
    now, lines = [0.0], list[str]()
    plain = PlainProgress(lines.append, clock=lambda: now[0])
    for tenth in range(121):
        now[0] = tenth / 10
        plain.update(tally())
    assert len(lines) == 2
    plain.note("building the image")
    assert lines[-1] == "building the image"


def test_the_live_line_is_gone_when_closed() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60)
    live = TerminalProgress(console)
    live.update(tally())
    live.close()
    assert "ok 2" in out.getvalue()
    assert out.getvalue().rstrip().endswith("\x1b[2K")
