"""A contract that is a model: a client without effects, the user's own class, and the stored run judged again.

The search loads numba, which cannot be loaded twice: such a run has a process of its own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from assay import Model
from assay.checkers.judging.contract import linearizable

TEST_FILE = '''
from assay import Action, Model, Operation, Phase, experiment, linearizable, mix, repeat
from toy_log import ToyClient, ToySystem


class Ends(Model):
    """The end of a log is as far as the sends before it have brought it."""

    name = "ends"
    compiled = False

    def encode(self, call):
        if call.f == "end":
            return Action("end", call.result["offset"], reads=True) if call.known else None
        return Action("send", call.result["offset"] if call.known else None, len(call.argument))

    @staticmethod
    def step(state, f, x, y):
        return (state == x, state) if f == "end" else (x in (None, state), state + y)


class Quiet:
    """Says nothing of effects."""

    def __init__(self):
        self.toy = ToyClient()

    async def open(self, endpoint, runtime):
        await self.toy.open(endpoint, runtime)

    async def invoke(self, operation):
        return await self.toy.invoke(operation)

    async def close(self):
        await self.toy.close()


@experiment(system=ToySystem(), client=Quiet, contract=linearizable(Ends, may_stall=["kill"]))
def test_ends(settings):
    traffic = mix(repeat(Operation("send", "orders-0", [1])), repeat(Operation("end", "orders-0")))
    return traffic | repeat(Operation("end", "orders-0", phase=Phase.DRAIN), 20)
'''


@pytest.fixture
def project(toy_project: pytest.Pytester) -> pytest.Pytester:
    (toy_project.path / "test_file.py").write_text(TEST_FILE)
    return toy_project


SMALL = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-q", "--reports=never")
FAST = (*SMALL, "--cluster=sim", "--nodes=1", "--time-limit=4", "--rate=20", "--seed=4")


def judgement(project: pytest.Pytester, file: str = "verdict.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / "store" / "latest" / file).read_text())
    return found


def test_a_client_without_effects_passes_by_ones_own_model_and_so_does_its_stored_run(project: pytest.Pytester) -> None:
    project.runpytest_subprocess(*FAST, "--nemesis=kill", "--nemesis-interval=1").assert_outcomes(passed=1)
    assert judgement(project)["forbidden"] == ["no-recovery", "unexpected-exit", "broken-invariant", "nonlinearizable"]
    assert judgement(project, "settings.json")["contract"]["model"] == "test_file:Ends"
    check = (sys.executable, "-m", "assay.harness.cli.main", "check", "store/latest")
    assert project.run(*check, "--trust-run").ret == 0
    unknown = project.run(*check)
    assert unknown.ret == 2
    unknown.stdout.fnmatch_lines(
        ["*'test_file:Ends' is not available here: assay check store/*--plugin=test_file imports it*"]
    )
    again = project.run(*check, "--plugin=test_file")
    assert again.ret == 0
    again.stdout.fnmatch_lines(["PASS: 100 operations (*), 0 effects"])


def test_what_is_acknowledged_and_not_kept_has_no_place(project: pytest.Pytester) -> None:
    project.runpytest_subprocess(*FAST, "--defect=forgetful").assert_outcomes(failed=1)
    assert judgement(project)["anomalies"] == {"nonlinearizable": 1}


@pytest.mark.long
def test_no_operations_are_no_pass(project: pytest.Pytester) -> None:
    test = project.path / "test_file.py"
    test.write_text(
        test.read_text().replace("return traffic |", "return limit(2, traffic) #").replace("import", "import limit,", 1)
    )
    result = project.runpytest_subprocess(*FAST)
    result.assert_outcomes(failed=1)
    assert judgement(project)["unknown"] == [
        "only 2 operations succeeded, the contract asks for 10; let the run last longer (--time-limit), or raise --rate"
    ]


def test_a_model_is_named_by_a_name_or_by_the_class_where_it_stands() -> None:
    assert linearizable("cas-register").model == "cas-register"
    assert linearizable(Named, recovery_deadline=3.0).model == f"{__name__}:Named"

    class Local(Model): ...

    with pytest.raises(ValueError, match="Local is defined inside a function; put it at the top of its module"):
        linearizable(Local)


class Named(Model):
    name = "named"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ('linearizable("cas-registre")', "there is no model 'cas-registre'; did you mean cas-register?"),
        ("linearizable(Settings)", "model=assay.harness.run.settings:Settings is not a subclass of assay.Model"),
    ],
)
def test_a_model_that_is_none_is_an_error_before_anything_starts(
    project: pytest.Pytester, model: str, reason: str
) -> None:
    test = project.path / "test_file.py"
    text = (
        test.read_text()
        .replace('linearizable(Ends, may_stall=["kill"])', model)
        .replace("import Action", "import Settings, Action")
    )
    test.write_text(text)
    result = project.runpytest_inprocess(*FAST)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{reason}*"])
    assert not (project.path / "store").exists()
