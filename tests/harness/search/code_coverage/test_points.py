"""Tests what there is to reach in a source.

Lines of functions and outcomes of decisions, and nothing that cannot run.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.harness.run.experiment import find_experiment
from assay.harness.run.import_by_name import find_packages
from assay.harness.search.code_coverage.coverage_file import compute_coverage, merge_searches
from assay.harness.search.code_coverage.points import FunctionPoints, find_functions
from assay.harness.search.code_coverage.source import CodeKey, compile_functions, find_modules
from assay.system_under_test.deployment import Broker
from assay.workloads.test_group import test_group as of_group
from assay.workloads.test_log import test_log as of_log


def of(text: str) -> tuple[FunctionPoints, ...]:
    return find_functions(ast.parse(textwrap.dedent(text)))


def points(function: FunctionPoints) -> tuple[set[int], set[tuple[int, bool]]]:
    lines = {point.line for point in function.points if point.branch is None}
    return lines, {(point.line, point.branch) for point in function.points if point.branch is not None}


def test_lines_are_those_of_statements_and_branches_those_of_decisions() -> None:
    (function,) = of(
        '''\
        def f(a):
            """What it does."""
            if a:
                a = (
                    1
                )
            elif a is None:
                pass
            for _ in a:
                try:
                    g()
                except ValueError:
                    return 1
            while a: a = g()
            return 2
        '''
    )
    assert (function.name, function.first, function.last) == ("f", 1, 15)
    assert points(function) == (
        {3, 4, 7, 8, 9, 11, 13, 14, 15},
        {(line, outcome) for line in (3, 7, 9, 14) for outcome in (True, False)},
    )


def test_what_cannot_run_or_never_differs_is_no_point() -> None:
    (function,) = of(
        """\
        class Some(Protocol):
            def stub(self): ...

            def described(self):
                '''What it does.'''

        def f():
            global x
            y: int
            while True:
                if TYPE_CHECKING:
                    import z
                if typing.TYPE_CHECKING:
                    import z
                else:
                    g()
                break
        """
    )
    assert points(function) == ({16, 17}, set())


def test_functions_in_functions_and_classes_have_the_names_and_lines_of_their_code() -> None:
    text = textwrap.dedent(
        """\
        class A:
            if True:
                @property
                @cached
                def b(self):
                    def c(): return 1
                    class D:
                        async def e(self): return 2
                    return c
        try:
            def f(): return 3
        except Exception:
            def f(): return 4
        """
    )
    found = {CodeKey("x.py", function.name, function.first) for function in of(text)}
    code = {key for key in compile_functions(text.encode(), "x.py") if key.name not in ("A", "A.b.<locals>.D")}
    assert found == code
    assert {(key.name, key.first) for key in found} == {
        ("A.b", 3), ("A.b.<locals>.c", 6), ("A.b.<locals>.D.e", 8), ("f", 11), ("f", 13),
    }  # fmt: skip


def test_the_code_of_a_system_is_the_package_of_its_class_unless_it_says_otherwise() -> None:
    class Named:
        code_packages = ("json", "email.mime")

    named: Any = Named()
    assert find_packages(Broker()) == ("assay.system_under_test",)
    assert find_packages(named) == ("json", "email.mime")
    for workload in (of_log, of_group):  # the clients of the second have nodes of their own
        experiment = find_experiment(workload)
        assert experiment is not None
        assert find_packages(experiment.deployed_system()) == ("assay.system_under_test",)
    labels = {module.name: module.label for module in find_modules(find_packages(named))}
    assert labels["json.decoder"] == "json/decoder.py"
    assert labels["email.mime"] == "mime/__init__.py"
    assert labels["email.mime.text"] == "mime/text.py"


@pytest.mark.parametrize("name", ["no_such_package_at_all", "no.such.package", "itertools"])
def test_where_there_is_no_source_that_is_said(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*no Python source"):
        find_modules([name])


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "counted_system"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "log.py").write_text("def read(x):\n    if x:\n        return 1\n    return 2\n")
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
        del sys.modules[name]


def test_modules_of_one_name_in_two_packages_stay_two(written: Path) -> None:
    inner = written / "other" / "counted_system"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").touch()
    (inner / "__init__.py").touch()
    (inner / "log.py").write_text("def write(x):\n    return x\n")
    found = find_modules(["counted_system", "counted_system.other.counted_system"])
    assert [module.label for module in found if module.functions] == [
        "counted_system/log.py",
        "counted_system/other/counted_system/log.py",
    ]
    both = find_modules(["counted_system.other.counted_system", "counted_system"])
    assert len(merge_searches([compute_coverage(both, ())])) == 2


def test_files_that_cannot_be_imported_are_no_modules(written: Path) -> None:
    (written / "template.py").write_text("def {{ name }}(): pass\n")
    (written / "strange.py").write_bytes(b"x = '\xff'\n")
    (written / "nul.py").write_bytes(b"x = '\0'\n")
    os.symlink("someone@somewhere.123", written / ".#log.py")  # as an editor leaves it beside a file that it has open
    assert [module.name for module in find_modules(["counted_system"])] == ["counted_system", "counted_system.log"]


def test_a_package_whose_import_breaks_has_no_source(written: Path) -> None:
    (written / "__init__.py").write_text("raise RuntimeError('no licence')\n")
    with pytest.raises(ValueError, match="has no Python source"):
        find_modules(["counted_system.log"])


@pytest.mark.parametrize("later", ["# one line more\ndef read(x):\n    return 3\n", "def read(x:\n", None])
def test_what_is_edited_during_a_search_is_counted_as_it_was(written: Path, later: str | None) -> None:
    """Also half saved, or removed."""
    importlib.import_module("counted_system.log")
    known = find_modules(["counted_system"])
    file = written / "log.py"
    file.unlink()
    if later is not None:
        file.write_text(later)
    (found,) = compute_coverage(known, ())
    assert found.uncounted == ()
    assert [function.name for function in found.functions] == ["read"]
