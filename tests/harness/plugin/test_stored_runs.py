"""Nothing among stored runs is collected or executed, unless the command line names and trusts it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assay.harness.run import store

from helpers.nightly import by_night, some_by_day

EVIL = "from pathlib import Path\n(Path(__file__).parent / 'executed').touch()\n"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with one test, and a stored run with Python files in it, beside it and below it."""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_own="def test_own(): pass")
    run = make_run(pytester.path / "store")
    for folder in (run, run.parent, run / "logs"):
        (folder / "conftest.py").write_text(EVIL)
        (folder / f"test_evil_{folder.name[:4]}.py").write_text(f"{EVIL}def test_evil(): pass\n")
    return pytester


def make_run(root: Path, test: str = "case.py::case[none]") -> Path:
    folder = store.create_run_folder(root, test, datetime(2026, 1, 1, tzinfo=UTC))
    info = store.RunInfo(
        test=test, status=store.FINISHED, started="2026-01-01T00:00:00+00:00", owner="", seed=1, cluster="sim",
        nemesis="none", command="pytest case.py::case",
    )  # fmt: skip
    folder.write_run(info)
    folder.reserve.release()
    return folder.path


def find_run(project: pytest.Pytester) -> Path:
    (found,) = store.list_runs(project.path / "store")
    return found


def executed(project: pytest.Pytester) -> list[Path]:
    return sorted(path.parent for path in project.path.rglob("executed"))


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize(
    "arguments", [(), by_night((".",)), ("store", "test_own.py"), by_night(("--doctest-modules",))]
)
def test_a_session_that_names_none_collects_none(
    project: pytest.Pytester, arguments: tuple[str, ...], damaged: bool
) -> None:
    if damaged:
        (find_run(project) / "run.json").write_text("{")
    project.runpytest_inprocess(*arguments).assert_outcomes(passed=1)
    assert not executed(project)


@pytest.mark.parametrize(
    "named",
    some_by_day(["RUN", "TEST", "file", "link", "linked file", "inner", "here"], ["RUN", "linked file", "here"]),
)
def test_what_is_named_is_collected_only_if_it_is_trusted(
    project: pytest.Pytester, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = find_run(project)
    (project.path / "link").symlink_to(run)
    (project.path / "test_link.py").symlink_to(run / "test_evil_2026.py")
    path = {
        "RUN": run, "TEST": run.parent, "file": f"{run / 'test_evil_2026.py'}::test_evil", "link": "link",
        "linked file": "test_link.py", "inner": run / "logs", "here": run,
    }[named]  # fmt: skip
    arguments = [str(path)]
    if named == "here":
        monkeypatch.chdir(run)
        arguments = []
    result = project.runpytest_inprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = "\n".join([*result.outlines, *result.errlines])
    assert text.count("lies among stored runs") == 1
    assert "--trust-run" in text
    assert "Traceback" not in text
    assert not executed(project)
    assert project.runpytest_inprocess("--trust-run", *arguments).parseoutcomes()["passed"] >= 1
    assert executed(project)


@pytest.mark.parametrize("named", ["here", "--rootdir"])
def test_a_folder_of_runs_is_no_project_because_it_was_taken_for_the_rootdir(
    project: pytest.Pytester, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = find_run(project).parent
    arguments: list[str] = ["--rootdir", str(test), str(test)]
    if named == "here":
        (project.path / "tox.ini").unlink()
        monkeypatch.chdir(test)
        arguments = []
    assert project.runpytest_inprocess(*arguments).ret == pytest.ExitCode.USAGE_ERROR
    assert not executed(project)


@pytest.mark.parametrize("module", [pytest.param("", marks=pytest.mark.long), ".test_evil"])
def test_a_package_among_stored_runs_is_not_imported(project: pytest.Pytester, module: str) -> None:
    run = find_run(project).rename(project.path / "store" / "r1")
    (run / "__init__.py").write_text(EVIL)
    (run / "test_evil.py").write_text(f"{EVIL}def test_evil(): pass\n")
    command = (sys.executable, "-m", "pytest", "--pyargs", f"store.r1{module}")
    assert project.run(*command).ret == pytest.ExitCode.USAGE_ERROR
    assert not executed(project)
    assert project.run(*command, "--trust-run").parseoutcomes()["passed"] >= 1


def test_trust_is_only_in_what_is_named(project: pytest.Pytester) -> None:
    other = make_run(project.path / "store", "other.py::other[none]")
    (other / "test_other.py").write_text(EVIL)
    project.runpytest_inprocess("--trust-run").assert_outcomes(passed=1)
    assert not executed(project)
    project.runpytest_inprocess("--trust-run", "test_own.py", str(find_run_of(other, project))).assert_outcomes(
        passed=3
    )
    assert other not in executed(project)


def find_run_of(other: Path, project: pytest.Pytester) -> Path:
    (found,) = [run for run in store.list_runs(project.path / "store") if run != other]
    return found


def test_links_to_stored_runs_are_not_collected(project: pytest.Pytester) -> None:
    run = find_run(project)
    (project.path / "tests").mkdir()
    (project.path / "tests" / "link").symlink_to(run / "logs")
    (project.path / "tests" / "test_link.py").symlink_to(run / "test_evil_2026.py")
    project.runpytest_inprocess().assert_outcomes(passed=1)
    assert not executed(project)


def test_a_conftest_that_pytest_loads_before_collection_ends_the_session(project: pytest.Pytester) -> None:
    folder = make_run(project.path / "store", "test_it.py::test_it[none]").parent
    assert folder.name.startswith("test")
    (folder / "conftest.py").write_text(EVIL)
    result = project.runpytest_inprocess("store")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"{folder} lies among stored runs" in "\n".join([*result.outlines, *result.errlines])
    project.runpytest_inprocess().assert_outcomes(passed=1)
    assert not executed(project)


def test_other_folders_are_collected(project: pytest.Pytester) -> None:
    """A ``run.json`` of another tool makes no run, and a run in the rootdir does not make it a folder of runs."""
    folder = project.path / "tests"
    folder.mkdir()
    (folder / "run.json").write_text('{"test": "x"}')
    (folder / "test_more.py").write_text("def test_more(): pass")
    run = find_run(project)
    run.rename(project.path / run.name)
    project.runpytest_inprocess("-k", "own or more").assert_outcomes(passed=2, deselected=1)
    assert executed(project) == [run.parent], "without its run it is a folder like any other"
