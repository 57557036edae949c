"""Sessions end as they end by themselves, or are stopped; nothing of them is left, and no more run than were asked."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.harness.cli import sessions
from assay.harness.cli.sessions import PytestSession, SessionEnd, run_sessions
from assay.harness.run.interrupt import SIGNALS

from helpers.process_tree import left

LIMIT = 60.0


def session(folder: Path, program: str) -> PytestSession:
    return PytestSession((sys.executable, "-I", "-S", "-c", program), folder)


def performed(
    programs: dict[Path, str], jobs: int = 2, limit: float = LIMIT, stopped: Sequence[int] = ()
) -> tuple[bool, dict[str, SessionEnd]]:
    """``stopped``: how many are under way when a signal comes."""
    found: dict[str, SessionEnd] = {}
    stopping: list[int] = []
    every = [session(folder, program) for folder, program in programs.items()]
    complete = run_sessions(every, jobs, limit, lambda one, end: found.update({one.folder.name: end}), stopping.append)
    assert stopping == list(stopped)
    return complete, found


def test_how_each_ended_what_it_used_and_what_it_printed(tmp_path: Path) -> None:
    programs = {
        tmp_path / "well": "",
        tmp_path / "badly": "import sys; print('first'); print('', file=sys.stderr); sys.exit('second')",
        tmp_path / "killed": "import os; os.kill(os.getpid(), 9)",
        tmp_path / "busy": "import time\nwhile time.process_time() < 0.2: pass",
    }
    complete, found = performed(programs)
    assert complete
    assert {name: end.code for name, end in found.items()} == {"well": 0, "badly": 1, "killed": -9, "busy": 0}
    assert found["busy"].cpu_seconds >= 0.2
    assert found["busy"].seconds >= 0.2
    printed = PytestSession((), tmp_path / "badly").read_last_lines(2).split(" | ")
    assert sorted(printed) == ["first", "second"]


ALONE = """
import os, pathlib, time
here = pathlib.Path({here!r})
mine = here / "running"
others = [one for one in here.parent.glob("*/running")]
mine.touch()
time.sleep(0.2)
mine.unlink()
raise SystemExit(len(others))
"""


def test_one_at_a_time_is_one_at_a_time_and_two_are_two(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    _, found = performed({folder: ALONE.format(here=str(folder)) for folder in folders}, jobs=1)
    assert [end.code for end in found.values()] == [0, 0, 0]
    assert list(found) == ["a", "b", "c"]
    meeting = (
        "import pathlib, time; me = pathlib.Path({me!r}); (me / 'here').touch()\n"
        "while not (me.parent / {other!r} / 'here').exists(): time.sleep(0.01)"
    )
    pair = {"d": "e", "e": "d"}
    programs = {tmp_path / me: meeting.format(me=str(tmp_path / me), other=other) for me, other in pair.items()}
    _, found = performed(programs, jobs=2)
    assert [end.code for end in found.values()] == [0, 0]


CHILD = """
import pathlib, signal, subprocess, sys, time
{first}
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
try:
    (pathlib.Path({here!r}) / "part").write_text(str(child.pid))
    (pathlib.Path({here!r}) / "part").rename(pathlib.Path({here!r}) / "child")  # complete, once it exists
    {then}
    time.sleep(600)
except KeyboardInterrupt:
    (pathlib.Path({here!r}) / "asked").touch()
"""
TO_US = "import os; os.kill(os.getppid(), signal.SIG{})"


def started(*folders: Path) -> list[int]:
    return [int((folder / "child").read_text()) for folder in folders]


def test_one_that_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    folder = tmp_path / "slow"
    complete, found = performed({folder: CHILD.format(here=str(folder), first="", then="")}, limit=1.0)
    assert complete
    assert found["slow"].code is None
    assert not (folder / "asked").exists()
    assert not left(started(folder))


@pytest.mark.parametrize("number", ["INT", "TERM", "HUP"])
def test_a_signal_asks_each_to_end_and_nothing_is_left(number: str, tmp_path: Path) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    waiting, asking, never = (tmp_path / name for name in ("waiting", "asking", "never"))
    once_both = f"while not pathlib.Path({str(waiting / 'child')!r}).exists(): time.sleep(0.01)\n    "
    complete, found = performed(
        {
            waiting: CHILD.format(here=str(waiting), first="", then=""),
            asking: CHILD.format(here=str(asking), first="", then=once_both + TO_US.format(number)),
            never: "",
        },
        stopped=[2],
    )
    assert not complete
    assert not found
    assert (waiting / "asked").exists()
    assert (asking / "asked").exists()
    assert not never.exists()
    assert not left(started(waiting, asking))
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_one_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PATIENCE", (0.1, 0.1))
    deaf, asking = tmp_path / "deaf", tmp_path / "asking"
    first = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    once_both = f"while not pathlib.Path({str(deaf / 'child')!r}).exists(): time.sleep(0.01)\n    "
    complete, _ = performed(
        {
            deaf: CHILD.format(here=str(deaf), first=first, then=""),
            asking: CHILD.format(here=str(asking), first="", then=once_both + TO_US.format("INT")),
        },
        stopped=[2],
    )
    assert not complete
    assert not (deaf / "asked").exists()
    assert not left(started(deaf, asking))


def test_while_sessions_are_waited_for_a_line_now_and_then_says_for_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PATIENCE", (1.0, 0.5))
    monkeypatch.setattr(sessions, "REPORT_INTERVAL", 0.2)
    deaf, said = tmp_path / "deaf", list[tuple[int, float]]()
    first = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    one = session(deaf, CHILD.format(here=str(deaf), first=first, then=TO_US.format("TERM")))
    assert not run_sessions([one], 1, LIMIT, lambda *_: None, lambda _: None, lambda *about: said.append(about))
    assert len(said) >= 2
    assert {under_way for under_way, _ in said} == {1}
    left_at_most = [seconds for _, seconds in said]
    assert left_at_most == sorted(left_at_most, reverse=True)
    assert all(0 <= seconds <= 1.5 for seconds in left_at_most)
