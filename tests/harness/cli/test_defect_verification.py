"""``assay defects --verify``: what is taken for a catch, for an alarm, and for neither; with fakes and for real."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.harness.cli import defect_verification
from assay.harness.cli import defects as command_line
from assay.harness.cli.command import ExitCode
from assay.harness.cli.defect_verification import build_command
from assay.harness.cli.main import main
from assay.system_under_test.defects import DEFECTS, Defect

FAKE = '''
"""Leaves a run as pytest does; SCRIPT says which, by defect and seed."""
import json, os, signal, sys, time
from pathlib import Path
options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
here = Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(*[word for word in sys.argv[1:] if not word.startswith("--store=")], file=calls)
script = json.loads((here / "script.json").read_text())
name = options.get("--defect", "none")
does = script.get(f"{name} {options['--seed']}") or script.get(name) or {"verdict": "pass"}
if "signal" in does:
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(600)
for number, verdict in enumerate(does["verdict"].split()):
    run = Path(options["--store"]) / "test_a" / f"2026010{number + 1}T000000.000Z"
    run.mkdir(parents=True)
    info = dict(test="t", status=does.get("status", "finished"), started="2026-01-01T00:00:00+00:00", owner="o",
        seed=1, cluster="sim", nemesis="none", command="pytest", verdict=verdict, problem=does.get("problem"))
    (run / "run.json").write_text(json.dumps(info))
    anomalies = {one: 1 for one in does.get("found", ())} if verdict == "fail" else {}
    judged = dict(verdict=verdict, anomalies=anomalies, forbidden=["lost-write", "vanished"],
        tolerated=["duplicate"], findings=[], examined=[],
        unknown=["too\\n little"] if verdict == "unknown" else [], operations=1, effects=1, seconds=0.0, engine="e")
    (run / "verdict.json").write_text("{" if "damaged" in does else json.dumps(judged))
print("the last of it")
sys.exit(does.get("exit", 0 if does["verdict"] == "pass" else 1))
'''
TEST = "test_a.py"
LAST = "its last lines: the last of it"
CAUGHT = {"verdict": "fail", "found": ["lost-write", "duplicate"]}
"""``duplicate`` is tolerated."""


def defect(name: str, *options: str) -> Defect:
    return Defect(name, "it goes wrong", "a fault", ("lost-write", "phantom"), "folklore", " ".join([TEST, *options]))


Verify = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verify:
    """Does ``assay defects --verify --json`` with sessions that do what a script says; its exit code and output."""
    fake = tmp_path / "fake.py"
    fake.write_text(FAKE)
    (tmp_path / TEST).touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(defect_verification, "SESSION", (sys.executable, "-I", "-S", str(fake)))

    def verify(script: dict[str, Any], *options: str, zoo: tuple[Defect, ...] = (defect("d"),)) -> Any:
        (tmp_path / "script.json").write_text(json.dumps(script))
        monkeypatch.setattr(command_line, "list_defects", lambda system: zoo)
        code = main(["defects", "--verify", "--json", *options])
        return code, json.loads(capsys.readouterr().out)

    return verify


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def kept(folder: Path) -> list[str]:
    return [path.name for path in (folder / "temporary").rglob("*") if path.name == "output.txt"]


def test_a_defect_that_is_caught_and_green_without_is_0_and_leaves_nothing(verified: Verify, tmp_path: Path) -> None:
    code, found = verified({"d": {"verdict": "pass"}, "d 3": CAUGHT}, "--seeds=3")
    (one,) = found["defects"]
    assert code == ExitCode.PASS
    assert (one["name"], one["cluster"], one["caught"], found["complete"]) == ("d", "sim", 1, True)
    assert [(run["seed"], run["came"], run["reported"]) for run in one["runs"]] == [
        (1, "pass", []),
        (2, "pass", []),
        (3, "fail", ["lost-write"]),
    ]
    assert [run["came"] for run in one["without"]] == ["pass"] * 3
    assert one["detection"][1] == pytest.approx(sum(run["seconds"] for run in one["runs"]))
    assert sorted(calls(tmp_path)) == sorted(
        f"{TEST} --cluster=sim --rate=100 {switch}--seed={seed}" for switch in ("--defect=d ", "") for seed in (1, 2, 3)
    )
    assert one["runs"][0]["command"] == f"pytest {TEST} --cluster=sim --rate=100 --defect=d --seed=1"
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("does", "came", "why"),
    [
        ({"verdict": "fail", "found": ["vanished"]}, "fail", None),
        ({"verdict": "unknown"}, "unknown", "too little"),
        (CAUGHT | {"damaged": 1}, "broken", "a run has no verdict (verdict.json cannot be read)"),
        (CAUGHT | {"exit": 3}, "broken", "pytest ended with 3"),
        (CAUGHT | {"exit": -9}, "broken", "pytest ended with 247"),
        (CAUGHT | {"exit": 0}, "broken", "pytest ended with 0, and the verdict is fail"),
        (CAUGHT | {"status": "error", "problem": "no disk"}, "broken", "a run has no verdict (no disk)"),
        ({"verdict": "", "exit": 0}, "broken", "it left no run"),
        ({"verdict": "pass", "exit": 1}, "broken", "pytest ended with 1, and the verdict is pass"),
    ],
)
def test_what_is_no_catch(does: dict[str, Any], came: str, why: str | None, verified: Verify, tmp_path: Path) -> None:
    code, found = verified({"d": does}, "--seeds=1")
    (one,) = found["defects"]
    assert (code, one["caught"], one["detection"]) == (ExitCode.FAIL, 0, None)
    assert one["runs"][0]["came"] == came
    problem = one["runs"][0]["problem"]
    assert (problem is None) is (why is None)
    assert problem is None or (problem.startswith(why) and problem.endswith(LAST) is (came == "broken"))
    assert len(kept(tmp_path)) == (came == "broken")


def test_a_catch_in_one_of_two_tests_of_a_session_is_one(verified: Verify) -> None:
    code, found = verified({"d": CAUGHT | {"verdict": "pass fail"}}, "--seeds=1")
    assert (code, found["defects"][0]["caught"]) == (ExitCode.PASS, 1)


@pytest.mark.parametrize(
    ("does", "code"),
    [
        ({"verdict": "fail", "found": ["vanished"]}, ExitCode.FAIL),
        ({"verdict": "pass", "exit": 3}, ExitCode.FAIL),
        ({"verdict": "unknown"}, ExitCode.UNKNOWN),
        ({"verdict": "pass unknown", "exit": 1}, ExitCode.UNKNOWN),
    ],
)
def test_a_run_without_that_is_not_green_is_kept_apart(
    does: dict[str, Any], code: ExitCode, verified: Verify, tmp_path: Path
) -> None:
    ended, found = verified({"d": CAUGHT, "none 2": does}, "--seeds=1..2")
    (one,) = found["defects"]
    assert (ended, one["caught"]) == (code, 2)
    assert [run["came"] == "pass" for run in one["without"]] == [True, False]
    assert len(kept(tmp_path)) == (code is ExitCode.FAIL), "an alarm is kept, with its run"
    assert [run["kept"] is not None for run in one["without"]] == [False, code is ExitCode.FAIL]


def test_equal_runs_without_are_done_once(verified: Verify, tmp_path: Path) -> None:
    zoo = (defect("d"), defect("e"), defect("f", "--nodes=5"))
    code, found = verified({name: CAUGHT for name in "def"}, "--seeds=7..8", zoo=zoo)
    assert code == ExitCode.PASS
    assert sum("--defect" not in call for call in calls(tmp_path)) == 4
    assert [[run["seed"] for run in one["without"]] for one in found["defects"]] == [[7, 8]] * 3


def test_ctrl_c_leaves_what_there_was_and_nothing_else(verified: Verify, tmp_path: Path) -> None:
    zoo = (defect("d"), defect("e"))
    code, found = verified({"d": CAUGHT, "e": {"signal": 1}}, "--seeds=1", "--jobs=1", zoo=zoo)
    assert (code, found["complete"]) == (ExitCode.INTERRUPTED, False)
    assert [(len(one["runs"]), len(one["without"])) for one in found["defects"]] == [(1, 1), (0, 1)]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_store_that_is_named_keeps_every_run(verified: Verify, tmp_path: Path) -> None:
    _, found = verified({"d": CAUGHT}, "--seeds=1", "--store=all")
    (one,) = found["defects"]
    assert all((Path(run["kept"]) / "store" / "test_a").is_dir() for run in (*one["runs"], *one["without"]))
    assert len(list((tmp_path / "all").rglob("verdict.json"))) == 2


def test_the_table_and_the_progress_name_what_matters(
    verified: Verify, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missed = {"verdict": "fail", "found": ["vanished"]}
    script = {
        "d": CAUGHT | {"found": ["vanished", "lost-write", "duplicate"]},
        "e": missed,
        "e 2": missed | {"exit": 3},
        "none": {"verdict": "unknown"},
        "none 2": CAUGHT,
    }
    verified(script, "--seeds=2", zoo=(defect("d"), defect("e", "--nodes=5")))
    assert main(["defects", "--verify", "--seeds=2", "--jobs=1"]) == ExitCode.FAIL
    said = capsys.readouterr()
    rows = [re.split(" {2,}", line) for line in said.out.splitlines()[:5]]
    assert rows[0] == ["defect", "cluster", "caught", "without", "CPU s", "s"]
    assert rows[1][:4] == ["d", "sim", "2 of 2", "1 unknown, 1 fail"]
    assert rows[2] == ["", "reported: lost-write 2; also vanished 2"]
    assert rows[3:] == [
        ["e", "sim", "0 of 2", "1 unknown, 1 fail", "-", "-"],
        ["", "reported: none expected; also vanished 1"],
    ]
    command = "\n  pytest test_a.py --nodes=5 --cluster=sim --rate=100"
    for part in (
        "\ne was not caught (1 fail, 1 broken); one must be reported: lost-write, phantom\n",
        f"phantom{command} --defect=e --seed=1\n",
        f"\ne, seed 2: broken, pytest ended with 3; {LAST}{command} --defect=e --seed=2\n  {tmp_path}",
        f"\nwithout e, seed 2: fail, lost-write{command} --seed=2\n  {tmp_path}",
        f"\nwithout e, seed 1: unknown, too little{command} --seed=1\n",
        "\n1 of 2 defects were caught",
    ):
        assert part in said.out
    progress = said.err.splitlines()
    assert progress[0].startswith("assay: 8 runs, 1 at a time, in ")
    assert re.match(r"assay: 1 of 8, about .+ left: d, seed 1: caught \(lost-write, vanished\), ", progress[1])
    assert progress[8].startswith("assay: 8 of 8: without e, seed 2: fail (lost-write), ")


def test_the_table_fits_a_terminal_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    run = defect_verification.SessionResult(
        seed=1, came=defect_verification.SessionVerdict.FAIL, reported=("a",), seconds=1e4, cpu_seconds=1e3, command="-"
    )
    mixed = [run, msgspec.structs.replace(run, came=defect_verification.SessionVerdict.UNKNOWN)] * 10
    longest = max(DEFECTS, key=len)
    result = defect_verification.DefectResult(
        name=longest, cluster="docker", expected=("a",), runs=[run] * 10, without=mixed
    )
    command_line.show_results([result], complete=True, as_json=False)
    header, row, _ = capsys.readouterr().out.split("\n", 2)
    assert row.split() == f"{longest} docker 10 of 10 10 unknown, 10 fail 1000 10000".split()
    assert len(header) <= len(row) <= 80


def test_what_cannot_be_done_is_64_and_says_why(
    verified: Verify, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    verified({"d": CAUGHT}, "--seeds=1")
    assert main(["defects", "--verify", "x"]) == ExitCode.USAGE
    assert "there is no defect x; the defects are d" in capsys.readouterr().err
    (tmp_path / TEST).unlink()
    assert main(["defects", "--verify"]) == ExitCode.USAGE
    assert f"d is caught by {TEST}, which is not in" in capsys.readouterr().err
    for wrong in ("0", "5..4", "x"):
        with pytest.raises(SystemExit):
            main(["defects", "--verify", f"--seeds={wrong}"])


def test_a_run_of_the_simulation_stays_there_and_one_with_a_rate_keeps_it() -> None:
    ours = defect("d", "--cluster=sim", "--rate=7")
    assert build_command(ours, "docker", 1, switched_on=True) == (
        TEST,
        "--cluster=sim",
        "--rate=7",
        "--defect=d",
        "--seed=1",
    )
    assert build_command(defect("d"), "docker", 1, switched_on=False) == (TEST, "--cluster=docker", "--seed=1")
    assert build_command(defect("d", "--cluster", "sim"), "docker", 1, switched_on=False)[-2:] == (
        "--rate=100",
        "--seed=1",
    )


ZOO = """
from dataclasses import dataclass
from assay.system_under_test.defects import Defect
from toy_log import ToySystem

@dataclass(frozen=True)
class Zoo(ToySystem):
    described_defects = (
        Defect("forgetful", "forgets", "none needed", ("lost-write",), "-", "test_file.py --nodes=1 --time-limit=1"),
    )
"""


@pytest.mark.slow
@pytest.mark.long
def test_the_defect_of_another_system_is_verified_in_the_simulation(toy_project: pytest.Pytester) -> None:
    (toy_project.path / "toy_zoo.py").write_text(ZOO)
    argv = [sys.executable, "-m", "assay.harness.cli.main", "defects", "--verify", "--system=toy_zoo:Zoo"]
    before = {path.name for path in toy_project.path.iterdir()}
    done = subprocess.run(
        [*argv, "--seeds=1", "--json"], cwd=toy_project.path, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.PASS, done.stderr
    (one,) = json.loads(done.stdout)["defects"]
    assert (one["name"], one["caught"], [run["came"] for run in one["without"]]) == ("forgetful", 1, ["pass"])
    assert "lost-write" in one["runs"][0]["reported"]
    assert {path.name for path in toy_project.path.iterdir()} - before <= {"__pycache__"}


@pytest.mark.slow
@pytest.mark.long
def test_one_of_the_brokers_defects_is_caught_by_its_own_run(capfd: pytest.CaptureFixture[str]) -> None:
    """With the first seed; the shortest run of all."""
    assert DEFECTS["zombie-commit"].run.endswith("--time-limit=20")
    assert main(["defects", "--verify", "zombie-commit", "--seeds=1"]) == ExitCode.PASS
    assert "1 of 1" in capfd.readouterr().out
