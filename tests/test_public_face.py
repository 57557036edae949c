"""``import assay`` is all that a user's test needs: complete, lazy, and each module of it loaded under one name."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import assay
from assay.cluster import system
from assay.harness.core import generator

FACE = Path(assay.__file__)


def imported_for_type_checkers() -> dict[str, str]:
    """Name -> module, of the imports below ``TYPE_CHECKING``."""
    (block,) = [node for node in ast.parse(FACE.read_text()).body if isinstance(node, ast.If)]
    return {
        alias.name: node.module or "" for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_what_a_type_checker_sees_is_what_there_is() -> None:
    assert imported_for_type_checkers() == assay._MODULES
    assert sorted(assay.__all__) == sorted(assay._MODULES)
    for name in assay.__all__:
        assert getattr(assay, name) is not None


@pytest.mark.parametrize("module", [generator, system])
def test_all_that_a_system_and_a_workload_are_made_of_is_there(module: ModuleType) -> None:
    """Each optional protocol of a system, and each generator."""
    own = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__
    ]
    assert not {name for name in own if not name.startswith("_")} - set(assay.__all__) - INTERNAL


INTERNAL = {"describe_generator", "split_phases", "step_random", "SupportsNetworkWorker", "WorkerDescription"}
"""Names that only the trial, the clusters and the generators use."""


def test_importing_it_loads_nothing_else() -> None:
    script = "import sys, assay; print([name for name in sys.modules if name.startswith('assay.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_broker_on_a_node_loads_its_own_part_only() -> None:
    script = (
        "import sys, assay.system_under_test.__main__\n"
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('assay.')}))\n"
        "print([name for name in ('pyarrow', 'duckdb', 'numpy', 'pytest') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['system_under_test']\n[]\n"


def test_what_every_session_and_every_passing_run_loads_is_not_what_takes_long_to_load() -> None:
    script = (
        "import sys, assay.harness.plugin.hooks, assay.harness.run.registry, assay.harness.run.attempt\n"
        "print([name for name in ('pandas', 'scipy', 'numba', 'bokeh', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


ONE_NAME = """
import sys
from collections import defaultdict
from pathlib import Path
import pytest

code = pytest.main([*sys.argv[2:], "-q", "-p", "no:cacheprovider"])
assert code == 0, code
names = defaultdict(list)
for name, module in list(sys.modules.items()):
    if name != "__main__" and (file := getattr(module, "__file__", None)) is not None:
        path = Path(file).resolve()
        if path.is_relative_to(sys.argv[1]) and ".venv" not in path.parts:
            names[path].append(name)
assert any("test_log" in path.name for path in names)
wrong = {str(path): found for path, found in names.items() if len(found) > 1 or not found[0].startswith("assay")}
assert not wrong, wrong
"""


def test_no_file_is_imported_under_two_names(tmp_path: Path) -> None:
    """``pytest workloads/`` names the files by another path than ``import assay.workloads`` does."""
    root = Path(__file__).parents[1]
    run = ["workloads/test_log.py", "--cluster=sim", "--rate=30", "--time-limit=2"]
    command = [sys.executable, "-c", ONE_NAME, str(root), *run, f"--store={tmp_path}", "--seed=1"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
