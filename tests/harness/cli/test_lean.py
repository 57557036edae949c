"""A small question is answered without what only large ones need: what is imported, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay.harness.synthetic.generate import generate
from assay.harness.synthetic.plan import Plan

ROOT = Path(__file__).parents[3]
HEAVY = {
    "bokeh", "docker", "duckdb", "jinja2", "llvmlite", "numba", "numpy", "pandas", "paramiko", "pyarrow",
    "pyarrow.dataset", "pyspark", "requests", "rich", "scipy",
}  # fmt: skip
JUDGING = {"numpy", "pyarrow"}
"""A history is read with these, and judged."""

OPERATION = """\
{{:process {0}, :type :invoke, :f :write, :value {1}}}
{{:process {0}, :type :ok, :f :write, :value {1}}}
{{:process {0}, :type :invoke, :f :read, :value nil}}
{{:process {0}, :type :ok, :f :read, :value {1}}}
"""
LOADED = "import json, sys; print(json.dumps(list(sys.modules)), file=sys.stderr)"


def loaded(program: str, *arguments: str) -> tuple[str, set[str]]:
    """Returns what a program prints, and which of the heavy modules it has imported by its end."""
    text = f"import sys\nsys.argv[1:] = {list(arguments)!r}\ntry:\n    {program}\nfinally:\n    {LOADED}"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout, HEAVY.intersection(json.loads(done.stderr.splitlines()[0]))


ASSAY = "from assay.harness.cli.main import main; main(sys.argv[1:])"
PYTEST = "import pytest; pytest.main(sys.argv[1:])"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_need_none_of_it(option: str) -> None:
    printed, modules = loaded(ASSAY, option)
    assert "assay" in printed
    assert not modules


@pytest.mark.parametrize("values", [44, 5], ids=["each-once", "again-and-again"])
def test_a_small_file_of_another_tool_is_judged_with_what_reads_it(tmp_path: Path, values: int) -> None:
    """Registers whose values are written once need no search; the others a small one."""
    path = tmp_path / "history.edn"
    path.write_text("".join(OPERATION.format(number % 3, number % values) for number in range(1, 44)))
    printed, modules = loaded(ASSAY, "check", str(path), "--model=register")
    assert printed.startswith("PASS: 86 operations")
    assert modules == JUDGING


def test_a_small_history_is_judged_with_what_reads_it(tmp_path: Path) -> None:
    generate("log", Plan(operations=86, clients=4, keys=2), tmp_path / "made")
    printed, modules = loaded(ASSAY, "check", str(tmp_path / "made"))
    assert printed.startswith("PASS")
    assert modules == JUDGING


def test_tests_for_the_simulation_are_collected_without_what_docker_reports_and_searches_need() -> None:
    arguments = ("workloads/test_log.py", "--cluster=sim", "--collect-only", "-q", "-p", "no:cacheprovider")
    printed, modules = loaded(PYTEST, *arguments)
    assert "test_log" in printed
    assert modules <= JUDGING
