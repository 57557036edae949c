"""The layout's promises: who may import whom, and what code that runs in the simulation never calls."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from assay.harness.run.attempt import SOURCES

from helpers.layout import PARTS, ROOT

ALLOWED = {
    "system_under_test": set(),
    "cluster": set(),
    "nemesis": {"cluster"},
    "harness/core": set(),
    "harness/foreign": {"harness/core"},
    "harness/synthetic": {"harness/core"},
    "harness/remote": {"harness/core", "cluster"},
    "checkers": {"harness/core"},
    "reports": {"harness/core", "checkers"},
    "harness/run": {"harness/core", "harness/remote", "cluster", "nemesis", "checkers", "reports"},
    "harness/stored": {"harness/core", "harness/foreign", "harness/run", "nemesis", "checkers", "reports"},
    "harness/search": {
        "harness/core", "harness/run", "harness/stored", "cluster", "nemesis", "checkers", "reports",
    },
    "harness/sensitivity": {"harness/core", "checkers"},
    "harness/nightly": {"harness/core", "harness/run", "harness/stored", "cluster", "checkers", "reports"},
    "harness/plugin": {"harness/core", "harness/run", "harness/search", "cluster", "nemesis", "checkers"},
    "harness/cli": {
        "harness/core", "harness/run", "harness/stored", "harness/search", "harness/sensitivity", "harness/synthetic",
        "harness/nightly", "cluster", "nemesis", "checkers", "reports",
    },
    "workloads": {"cluster", "harness/core", "harness/run", "checkers", "system_under_test"},
}  # fmt: skip
"""Part of the project -> the other parts that it may import."""

TOP = (
    "cluster_snapshot",
    "broker",
    "handlers",
    "identity",
    "registrar",
    "shutdown",
    "broker_rpc",
    "deployment",
    "disk_inspection",
    "inspection",
    "invariants",
    "topology",
    "process",
    "__main__",
)
LAYERS = {
    "controller": {"replication", "zookeeper", "network", "protocol"},
    "replication": {"log", "records", "storage", "zookeeper", "network", "protocol"},
    "log": {"records", "storage"},
    "records": set(),
    "storage": set(),
    "zookeeper": set(),
    "protocol": set(),
    "network": {"protocol"},
    "groups": {"log", "network", "protocol", "records", "replication", "zookeeper"},
    "client": {"records", "protocol", "network", "zookeeper"},
}
"""Inside the broker imports go down only."""
COMMON = {"runtime", "clocks", "config", "events", "defects", "tasks", "assignors"}
"""Modules that every layer of the broker may know."""


def modules(folder: str) -> Iterator[Path]:
    return iter(sorted((ROOT / folder).rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    """Many tests read the same modules."""
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    """Dotted names of what a module imports, ``from a import b`` as ``a.b``; of our own without the ``assay.``."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (name.name.removeprefix("assay.") for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{name.name}".removeprefix("assay.") for name in node.names)


SHORT = 60
"""Lines below which a module needs a reason to stand alone."""
ONE_EACH = (
    "checkers/*/family", "checkers/liveness/*", "checkers/servers/*", "checkers/groups/read_after_release",
    "checkers/objects/ids", "nemesis/faults/*", "harness/cli/*", "harness/plugin/hookspecs", "workloads/systems/*",
    "workloads/generic/*", "workloads/test_*", "workloads/broker/*_client",
)  # fmt: skip
"""Modules that each hold one check, fault, command, system, workload, client or protocol."""
STAND_ALONE = {
    "cluster/sim/zookeeper/wire", "cluster/ssh/disk_filling",
    "harness/core/generator/describe", "harness/core/history/lookup",
    "system_under_test/client/draft_consumer",
    "system_under_test/groups/session_timers",
    "system_under_test/replication/request_dedup",
}  # fmt: skip
"""Other short modules: they hold a concept of their own, or joining them would make a circle. At most 20."""


def module_of(path: Path) -> str:
    words = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def part(dotted: str) -> str | None:
    words = dotted.split(".")
    if words[0] == "harness":
        return f"harness/{words[1]}" if len(words) > 1 else None
    return words[0] if words[0] in PARTS else None


@pytest.mark.parametrize("folder", sorted(ALLOWED))
def test_parts_import_only_what_they_may(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(folder)
        for name in imports(path)
        if (found := part(name)) is not None and found != folder and found not in ALLOWED[folder]
    ]
    assert not wrong


def test_no_two_parts_need_each_other() -> None:
    done: set[str] = set()
    while ready := {folder for folder, needed in ALLOWED.items() if folder not in done and needed <= done}:
        done |= ready
    assert set(ALLOWED) - done == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for type checkers alone count as well: such modules cannot be read one after the other either."""
    files = {path: module_of(path) for part in PARTS for path in modules(part)}
    known = set(files.values())
    needs: dict[str, set[str]] = {}
    for path, name in files.items():
        found = {one if one in known else one.rpartition(".")[0] for one in imports(path)}
        needs[name] = (found & known) - {name}
    while done := {name for name, needed in needs.items() if not needed}:
        needs = {name: needed - done for name, needed in needs.items() if name not in done}
    assert not needs, "in a circle, or above one"


DEFAULT_SYSTEM = "harness/run/systems.py"
"""Commands that work with no run, such as ``assay up``, take the broker unless another system is named."""


@pytest.mark.parametrize("folder", ["cluster", "nemesis", "harness", "checkers", "reports"])
def test_generic_parts_name_no_system(folder: str) -> None:
    """Not as a string that is imported later, either; in docstrings they may."""
    wrong = []
    for path in modules(folder):
        tree = parsed(path)
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
                named = "assay.system_under_test" in node.value or "assay/system_under_test" in node.value
                if named and str(path.relative_to(ROOT)) != DEFAULT_SYSTEM:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong


def test_workloads_know_of_the_system_its_client_and_deployment_only() -> None:
    wrong = [
        f"{path.name} imports {name}"
        for path in modules("workloads")
        for name in imports(path)
        if name.startswith("system_under_test.")
        and name.split(".")[1] not in {"client", "deployment", "protocol", "runtime"}
    ]
    assert not wrong


def test_inside_the_broker_imports_go_down_only() -> None:
    wrong = []
    for path in modules("system_under_test"):
        layer = path.relative_to(ROOT / "system_under_test").parts[0].removesuffix(".py")
        if layer in TOP or layer == "__init__":
            continue
        for name in imports(path):
            words = name.split(".")
            if words[0] != "system_under_test" or len(words) < 2 or words[1] == layer or words[1] in COMMON:
                continue
            if words[1] not in LAYERS.get(layer, COMMON):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_lists_of_parts_are_those_of_the_parts_that_there_are() -> None:
    """Coverage, hashes and diagrams cover all of the project."""
    (made,) = re.findall(r"^PARTS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(made.split()) == sorted(SOURCES) == list(PARTS)
    assert {folder.split("/")[0] for folder in ALLOWED} == {*PARTS}


def test_package_files_only_describe_and_re_export() -> None:
    wrong = []
    for package in PARTS:
        for path in (ROOT / package).rglob("__init__.py"):
            for node in parsed(path).body:
                plain = isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) or (
                    isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
                )
                plain |= isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
                if not plain:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong


FORBIDDEN_CALLS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.sleep",
    "os.urandom",
    "uuid.uuid4",
    "uuid.uuid1",
    "secrets.token_hex",
    "datetime.now",
    "datetime.utcnow",
    "random.SystemRandom",
    "threading.Thread",
}
DIFFERENT_BY_PYTHON = {
    "asyncio.wait_for": "it takes other turns of the loop from Python 3.12 on: use asyncio.timeout",
    "asyncio.as_completed": "it makes tasks in the order of a set of coroutines: use asyncio.wait with tasks",
}
"""With these a seed gives another history on another Python, or in another process."""
SIMULATED = ("system_under_test", "harness/core", "harness/remote", "nemesis", "workloads", "cluster/sim")
OUTSIDE = {
    "harness/core/blocking.py": "real threads, which the simulation refuses",
    "harness/core/files.py": "names of temporary files on the real disk",
    "harness/remote/__main__.py": "the real worker process",
    "harness/remote/runtime.py": "the real clock",
    "system_under_test/process.py": "the real process",
    "system_under_test/storage/local.py": "the real disk",
    "system_under_test/zookeeper/adapter.py": "the real ZooKeeper",
    "workloads/generic/locks.py": "a client that blocks, which the simulation refuses",
}


def calls(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


@pytest.mark.parametrize("folder", SIMULATED)
def test_simulated_code_takes_time_and_chance_from_its_runtime_only(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} calls {name}"
        for path in modules(folder)
        if str(path.relative_to(ROOT)) not in OUTSIDE
        for line, name in calls(path)
        if name in FORBIDDEN_CALLS
    ]
    assert not wrong


@pytest.mark.parametrize("folder", SIMULATED)
def test_simulated_code_calls_nothing_whose_order_depends_on_the_python(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} calls {name}: {DIFFERENT_BY_PYTHON[name]}"
        for path in modules(folder)
        if str(path.relative_to(ROOT)) not in OUTSIDE
        for line, name in calls(path)
        if name in DIFFERENT_BY_PYTHON
    ]
    assert not wrong


@pytest.mark.parametrize("folder", SIMULATED)
def test_simulated_code_has_no_generator_of_its_own(folder: str) -> None:
    """``random.Random`` with a seed is the only name of that module that it imports or uses."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(folder)
        if str(path.relative_to(ROOT)) not in OUTSIDE
        for name in imports(path)
        if name.startswith("random.") and name != "random.Random"
    ]
    for path in modules(folder):
        if "random" in imports(path) and str(path.relative_to(ROOT)) not in OUTSIDE:
            used = {n.attr for n in ast.walk(parsed(path)) if is_module_random(n)}
            wrong += [f"{path.relative_to(ROOT)} uses random.{name}" for name in sorted(used - {"Random"})]
    assert not wrong


def is_module_random(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random"


def test_nothing_outside_the_simulation_asks_whether_it_is_in_one() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("system_under_test", "nemesis", "workloads", "checkers")
        for path in modules(folder)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.If) and "sim" in ast.unparse(node.test).lower().replace("simple", "").split("_")
    ]
    assert not wrong


def test_a_short_module_has_a_reason() -> None:
    """A concept that is cut into pieces cannot be read in one place. Three importers are a reason."""
    files = {module_of(path): path for part in PARTS for path in modules(part)}
    importers = Counter(
        one if one in files else one.rpartition(".")[0] for path in files.values() for one in set(imports(path))
    )
    short = {
        name.replace(".", "/")
        for name, path in files.items()
        if path.name not in ("__init__.py", "__main__.py")
        and len(path.read_text().splitlines()) < SHORT
        and importers[name] < 3
    }
    without = {name for name in short if not any(fnmatch(name, pattern) for pattern in ONE_EACH)}
    assert without - STAND_ALONE == set(), "join them to the module that needs them"
    assert STAND_ALONE - without == set(), "these need no exception any more"
    assert len(STAND_ALONE) <= 20
