"""The toy system for all tests of the application, and a test file that uses it for pytest within pytest."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

# Extension modules cannot be loaded twice, and a pytest within this process forgets what it has loaded itself;
# some of these take long to load.
for name in (
    "assay.checkers.log.family",
    "assay.cluster.sim.cluster",
    "duckdb",
    "assay.harness.run.attempt",
    "assay.harness.run.faults",
    "assay.harness.stored.by_contract",
    "assay.harness.plugin.hooks",
    "assay.reports.page",
    "assay.workloads.broker.log_drain",
    "pandas",
    "scipy.sparse.csgraph",
):
    import_module(name)

TOY = Path(__file__).parents[1] / "helpers" / "toy_log.py"

TEST_FILE = '''
from assay.checkers.judging.contract import forbid
from assay.checkers.log.family import LOG_ANOMALIES
from assay.harness.run.experiment import experiment
from assay.harness.core.generator import phases
from toy_log import ToyClient, ToySystem
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic

SYSTEM = ToySystem()

@experiment(system=SYSTEM, client=ToyClient, contract=forbid(*LOG_ANOMALIES))
def test_toy(settings):
    """What was acknowledged is there."""
    return traffic(SYSTEM.keys()) | drain(SYSTEM.keys(), seconds=10)
'''


@pytest.fixture(scope="session")
def toy() -> ModuleType:
    """``toy_log.py``, which lies in no package."""
    if "toy_log" not in sys.modules:
        spec = spec_from_file_location("toy_log", TOY)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["toy_log"] = module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["toy_log"]


@pytest.fixture
def toy_project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with one experiment on the toy system, ready for ``runpytest_subprocess``."""
    pytester.makepyfile(test_file=TEST_FILE)
    (pytester.path / "toy_log.py").write_text(TOY.read_text())
    sys.modules.pop("toy_log", None)  # another test of this process may have left its own
    pytester.makeini("[pytest]\npythonpath = .\n")
    return pytester
