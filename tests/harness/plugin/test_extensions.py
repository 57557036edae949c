"""Faults, checks and models from outside the package: a ``conftest.py`` adds them, and each is seen at work."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import Family
from assay.checkers.judging.contract import forbid
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.run.registry import Registry
from assay.harness.run.settings import SettingsError
from assay.nemesis.faults.kill import Kill

EXTENSION = Path(__file__).parents[2] / "helpers" / "extension.py"
DOCS = Path(__file__).parents[3] / "docs" / "cookbook" / "extending.md"
SMALL = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
FAST = (*SMALL, "--cluster=sim", "--nodes=1", "--time-limit=5", "--rate=50", "--seed=4")
NO_PAGE = "--reports=never"
"""A run that searches compiles machine code, and what does so cannot be loaded twice: it has a process of its own."""


@pytest.fixture
def extended(toy_project: pytest.Pytester) -> pytest.Pytester:
    """The toy log, with a conftest that adds to the session; its test names the model and the new anomaly."""
    toy_project.makeconftest(EXTENSION.read_text())
    test = toy_project.path / "test_file.py"
    contract = 'forbid(*LOG_ANOMALIES, "reused-offset", may_stall=["hiccup"]), model="ends"'
    test.write_text(test.read_text().replace("forbid(*LOG_ANOMALIES)", contract))
    return toy_project


def verdict(project: pytest.Pytester) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / "store" / "latest" / "verdict.json").read_text())
    return found


def test_a_fault_is_listed_and_injected(extended: pytest.Pytester) -> None:
    listed = extended.runpytest_inprocess(*SMALL, "--nemesis-list")
    listed.stdout.re_match_lines([r"hiccup +the process stands still", "kill +"])
    test = extended.path / "test_file.py"
    test.write_text(test.read_text().replace(', model="ends"', ""))  # a search would need a process of its own
    result = extended.runpytest_inprocess(*FAST, "--nemesis=hiccup", "--nemesis-interval=2", "-q", NO_PAGE)
    result.assert_outcomes(passed=1)
    schedule = json.loads((extended.path / "store" / "latest" / "schedule.json").read_text())
    resolved = [(one["step"]["fault"], one["targets"], one["healed_at"] > one["at"]) for one in schedule["resolved"]]
    assert resolved == [("hiccup", ["n1"], True)] * len(resolved) != []


def test_a_check_and_a_model_find_what_is_wrong_and_the_page_explains_it(extended: pytest.Pytester) -> None:
    result = extended.runpytest_subprocess(*FAST, "--defect=forgetful", "-q")
    result.assert_outcomes(failed=1)
    found = verdict(extended)
    assert found["anomalies"]["reused-offset"] > 1
    assert found["anomalies"]["nonlinearizable"] == 2
    assert {"reused-offset", "nonlinearizable"} <= {one["check"] for one in found["examined"]}
    (claim, *_) = [one["claim"] for one in found["findings"] if one["anomaly"] == "reused-offset"]
    who = r"process \d+ through n1"
    assert re.fullmatch(rf"{who} and {who} both got offset \d+ of orders-\d, for values .*", claim)
    page = (extended.path / "store" / "latest" / "report.html").read_text()
    assert "two acknowledged sends were given one offset" in page


@pytest.mark.long
def test_a_correct_system_passes_them_and_without_them_a_later_check_is_unknown(
    extended: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    extended.runpytest_subprocess(*FAST, "--time-limit=8", "-q", NO_PAGE).assert_outcomes(passed=1)
    examined = {one["check"]: one["rows"] for one in verdict(extended)["examined"]}
    assert examined["reused-offset"] > 100
    assert examined["nonlinearizable"] > 100
    check = (sys.executable, "-m", "assay.harness.cli.main", "check", "store/latest")
    capfd.readouterr()
    assert main(["check", "store/latest"]) == ExitCode.UNKNOWN
    said = capfd.readouterr().out
    assert "the checks offsets-of-sends (reused-offset) that the run was judged by are not available here" in said
    run = (extended.path / "store" / "latest").resolve().relative_to(extended.path)
    assert f"are not available here: assay check {run} --plugin=conftest loads them" in said
    assert f"the run's model 'ends' is not available here: assay check {run} --plugin=conftest loads it" in said
    assert "has no data for it" not in said
    assert extended.run(*check, "--plugin=conftest").ret == ExitCode.PASS
    empty = extended.run(*check, "--plugin=toy_log")
    assert empty.ret == ExitCode.USAGE
    empty.stderr.fnmatch_lines(["*--plugin=toy_log adds nothing*"])


def test_a_model_that_there_is_not_is_an_error_of_its_test_with_the_remedy(extended: pytest.Pytester) -> None:
    (extended.path / "conftest.py").unlink()
    result = extended.runpytest_inprocess(*FAST)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["test_toy: there is no model 'ends'; known here: register, cas-register, *pytest_assay_models*"]
    )


def test_a_contract_names_faults_that_there_are() -> None:
    registry = Registry.standard()
    stalls = forbid("lost-write", may_stall=["kil"])
    said = registry.explain_invalid(stalls) or ""
    assert said.startswith("there is no fault 'kil'; did you mean kill? a conftest.py adds")
    tolerates = forbid("lost-write").tolerate_under("lost-write", faults=["hiccup"], because="it sleeps")
    assert (registry.explain_invalid(tolerates) or "").startswith("there is no fault 'hiccup'; known here: ")
    assert registry.explain_invalid(forbid("lost-write", may_stall=["kill"])) is None


def test_a_name_that_is_taken_is_a_usage_error(extended: pytest.Pytester) -> None:
    extended.makeconftest(EXTENSION.read_text().replace('"hiccup"', '"kill"'))
    result = extended.runpytest_inprocess(*FAST)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*two faults have the name kill: rename one*"])


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        (
            "    impact = Impact(pauses_process=True)\n",
            "",
            "the fault hiccup lacks impact (nemesis/faults/fault.py, class Fault)",
        ),
        ("def strike(", "def heal_all(", "the fault hiccup lacks strike (*"),
        ("return [Hiccup()]", "return [Hiccup]", "the fault Hiccup is a class: make an object of it, Hiccup()"),
    ],
)
def test_a_fault_that_lacks_something_is_rejected_at_the_start(
    extended: pytest.Pytester, written: str, instead: str, said: str
) -> None:
    assert written in EXTENSION.read_text()
    extended.makeconftest(EXTENSION.read_text().replace(written, instead))
    result = extended.runpytest_inprocess(*FAST)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{said}*"])


def test_a_system_adds_its_events_to_the_list(extended: pytest.Pytester) -> None:
    extended.makeconftest(
        "from toy_log import ToySystem\n"
        "class Pointed(ToySystem):\n"
        "    strike_points = {'log-swapped': 'the old file is gone'}\n"
        "def pytest_assay_systems():\n    return [Pointed()]\n"
    )
    listed = extended.runpytest_inprocess(*SMALL, "--nemesis-list")
    listed.stdout.re_match_lines(
        [
            r"events of broker at which .*",
            r"group-preparing +",
            r"events of toy at which .*",
            r"log-swapped +the old file is gone",
        ]
    )


def test_help_names_the_hooks(extended: pytest.Pytester) -> None:
    text = re.sub(r"\s+", " ", extended.runpytest_inprocess(*SMALL, "--help").stdout.str())
    for hook in ("pytest_assay_nemeses", "pytest_assay_checks", "pytest_assay_models", "pytest_assay_systems"):
        assert hook in text


def test_one_name_stands_for_one_thing() -> None:
    family: Family = Registry.standard().families[1]
    with pytest.raises(SettingsError, match=f"two plugins or modules define the family of checks '{family.name}'"):
        Registry.extended(families=[family])
    with pytest.raises(SettingsError, match="two plugins or modules define the model 'register'"):
        Registry.extended(models=[Registry.standard().models["register"]])
    with pytest.raises(SettingsError, match="two faults have the name kill"):
        Registry.extended(faults=[Kill()])


def test_the_docs_show_code_that_runs() -> None:
    code = EXTENSION.read_text()
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    parts = [part.strip("\n") for block in blocks for part in block.split("\n...\n")]
    assert len(parts) > 3
    for part in parts:
        assert part in code


@pytest.mark.parametrize(
    ("hook", "returned", "said"),
    [
        ("pytest_assay_checks", "5", "returned 5: it must return a list of families of checks"),
        ("pytest_assay_checks", "[5]", "returned a list with 5: it must be a list of families of checks"),
        ("pytest_assay_models", "[object]", "returned a list with <class 'object'>: it must be a list of objects of"),
        ("pytest_assay_nemeses", "'kill'", "returned 'kill': it must return a list of faults"),
        ("pytest_assay_systems", "7", "returned 7: it must return a list of systems"),
    ],
)
def test_a_hook_that_returns_something_else_is_a_usage_error_that_names_its_plugin(
    toy_project: pytest.Pytester, hook: str, returned: str, said: str
) -> None:
    toy_project.makeconftest(f"def {hook}():\n    return {returned}\n")
    done = toy_project.runpytest_inprocess(*FAST)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: *conftest.py: {hook} {said.replace('[', '[[]')}*"])
    module = toy_project.makepyfile(added=f"def {hook}():\n    return {returned}\n")
    toy_project.syspathinsert(module.parent)
    sys.modules.pop("added", None)
    with pytest.raises(SettingsError, match=re.escape(f"--plugin=added: {hook} {said}")):
        Registry.with_modules(["added"])
