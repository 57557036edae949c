"""The simulation and the commands run without what only Linux has, and only code for Linux uses that."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

from helpers import other_system
from helpers.layout import PARTS, ROOT
from helpers.linux_only import ATTRIBUTES, FOLDERS, FUNCTIONS

MAY_USE: Final = {
    "cluster/operating_system": "the module of look-ups",
    "cluster/ssh/*": "runs on nodes, or builds commands for them",
    "cluster/hosts/upkeep": "builds commands for hosts",
    "cluster/compose/project": "rejects these folders in a Compose file",
    "cluster/docker/power": "runs in a container",
    "system_under_test/storage/local": "runs on nodes; a simulated broker has a simulated disk",
    "checkers/linearizability/worker": "writes to /proc/self/oom_score_adj, and goes on if that fails",
}
"""Modules that may use what only Linux has, and why."""
NAMES: Final = frozenset(name for names in ATTRIBUTES.values() for name in names) | frozenset(FUNCTIONS)
FOLDER: Final = re.compile(rf"(?:{'|'.join(FOLDERS)})(?:/|$)")
WORDS: Final = re.compile(rf"\b(?:{'|'.join(NAMES)})\b|{'|'.join(FOLDERS)}")


def find_linux_only(text: str) -> Iterator[str]:
    """Yields what only Linux has, except in docstrings: attributes, imported names, folders, and names for getattr."""
    if WORDS.search(text) is None:  # parsing takes long
        return
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(module), name) if name in ATTRIBUTES.get(module, ()):
                yield name
            case ast.Attribute(attr=name) if name in FUNCTIONS:
                yield name
            case ast.ImportFrom(module=str(module)):
                yield from (one.name for one in node.names if one.name in ATTRIBUTES.get(module, ()))
            case ast.Constant(str(text)) if id(node) not in docstrings and (FOLDER.match(text) or text in NAMES):
                yield text


def test_what_only_linux_has_is_used_by_code_for_linux_alone() -> None:
    found = {
        f"{path}: {name}"
        for part in PARTS
        for file in (ROOT / part).rglob("*.py")
        if not any(fnmatch(path := file.relative_to(ROOT).with_suffix("").as_posix(), one) for one in MAY_USE)
        for name in find_linux_only(file.read_text())
    }
    assert not found, "cluster/operating_system.py is the place for it"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import os\nos.pidfd_open(1)", ["pidfd_open"]),
        ("from os import sched_getaffinity", ["sched_getaffinity"]),
        ("ctypes.CDLL(None).prctl(1, 9)", ["prctl"]),
        ("Path('/proc/self/stat')", ["/proc/self/stat"]),
        ("f'/proc/{pid}/fd'", ["/proc/"]),
        ("getattr(time, 'CLOCK_BOOTTIME')", ["CLOCK_BOOTTIME"]),
        ('"""Reads /proc/self/stat."""', []),
        ("os.kill(1, 9)\nself.splice()\n'/processes'", []),
    ],
)
def test_such_uses_are_found(text: str, found: list[str]) -> None:
    assert list(find_linux_only(text)) == found


SHELL_FILES: Final = (
    "Makefile",
    "scripts/docker",
    "scripts/packages",
    "scripts/python",
    "scripts/strict-bash",
    ".ci/run",
)
"""Files that macOS runs with make 3.81, bash 3.2 and BSD's tools. ``scripts/in-suite`` refuses there at once."""
NEWER: Final = re.compile(
    r"\b(?:mapfile|readarray|coproc|nproc|sha256sum|setpriv|declare -A|local -A|readlink -f|sed -i|grep -P|date -d)\b"
    r"|\.(?:SHELLFLAGS|ONESHELL)\b|\$\{\w+(?:,,|\^\^|@)|&>>|\|&|\\t"
)
"""Newer features of make and bash, and options and programs of GNU alone."""


@pytest.mark.parametrize("file", SHELL_FILES)
def test_make_and_the_scripts_that_it_calls_need_no_newer_make_or_bash(file: str) -> None:
    lines = [line for line in (ROOT / file).read_text().splitlines() if not line.lstrip().startswith("#")]
    assert not [line for line in lines if NEWER.search(line)]


def test_a_recipe_ends_at_the_first_command_that_fails_also_in_a_pipe(tmp_path: Path) -> None:
    for number, recipe in enumerate(
        ("false; touch after", "false | cat; touch after", 'echo "$$NOT_SET"; touch after')
    ):
        made = tmp_path / f"{number}.mk"
        made.write_text(f"SHELL := {ROOT}/scripts/strict-bash\nall:\n\t@{recipe}\n")
        done = subprocess.run(["make", "-f", str(made)], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode != 0, recipe
    assert not (tmp_path / "after").exists()


SLICE: Final = """
import subprocess, sys, urllib.request
from pathlib import Path
import pytest
store, *steps = sys.argv[1:]
plain = ("workloads/test_log.py", "--cluster=sim", "-q", "-p", "no:cacheprovider", f"--store={store}", "--seed=1",
         "--reports=never")
plays = {
    "run": ("--time-limit=1", "--rate=50"),
    "explore": ("--explore=120s", "--time-limit=2", "--rate=20"),
    "failure": ("--nemesis=kill", "--nemesis-target=leader", "--time-limit=20", "--rate=50",
                "--defect=ack-before-replication"),
}

def serve():
    server = subprocess.Popen([sys.executable, "-m", "assay.harness.cli.main", "serve", store, "--port=0"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        url = next(word for line in server.stdout for word in line.split() if word.startswith("http"))
        return 0 if b"test_log" in urllib.request.urlopen(url).read() else 1
    finally:
        server.terminate()
        server.wait()

for step in steps:
    if step in plays:
        code = pytest.main([*plain, *plays[step]])
    else:
        from assay.harness.cli.main import main
        run = str(Path(store, "latest").resolve())
        arguments = {"check": [run], "report": [run], "index": [store], "gc": [store], "doctor": []}
        shrink = ["shrink", run, "--yes", "--budget=60", "--replays=1"]
        code = serve() if step == "serve" else main(shrink if step == "shrink" else [step, *arguments[step]])
    print(f"== {step} {int(code)}", flush=True)
"""


def play(form: str, scratch: Path, *steps: str) -> list[str]:
    """Returns each step with its exit code."""
    done = other_system.run(form, scratch, sys.executable, "-c", SLICE, str(scratch / "store"), *steps)
    print(done.stdout, done.stderr)
    assert "Traceback" not in done.stdout + done.stderr
    return re.findall(r"^== (.*)", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_a_run_is_made_and_judged_without_what_only_linux_has(tmp_path: Path) -> None:
    assert play("linux", tmp_path, "run", "check", "gc", "doctor") == ["run 0", "check 0", "gc 0", "doctor 0"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("form", other_system.FORMS)
def test_runs_are_searched_shrunk_shown_and_served_without_what_only_linux_has(form: str, tmp_path: Path) -> None:
    if form == "darwin":
        pytest.importorskip("psutil")
    steps = ("explore", "run", "report", "index", "serve", "doctor", "failure", "check", "shrink")
    assert play(form, tmp_path, *steps) == [f"{step} {int(step in ('failure', 'check'))}" for step in steps]
