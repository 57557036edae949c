"""``assay check --model=module:Class``: a user's own model, from the current folder too; what is wrong with one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.linearizability import MODELS
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.run.import_by_name import find_model
from assay.harness.run.settings import SettingsError

from helpers.nightly import by_night

MODULE = """
from abc import abstractmethod
from assay.checkers.linearizability import Action, Call, Model

class Account(Model):
    name = "account"

    def encode(self, call: Call) -> Action | None:
        if call.f == "balance":
            return Action(0, call.result, reads=True) if call.known else None
        return Action(1, call.argument["map"][0][1])

    @staticmethod
    def step(state, f, x, y):
        return (state == x, state) if f == 0 else (state + x >= 0, state + x)

class Stepless(Model):
    name = "stepless"
    def encode(self, call): return None

class Abstract(Account):
    @abstractmethod
    def more(self): ...

class Wanting(Account):
    def __init__(self, argument): ...

class Careless(Account):
    compiled = False
    @staticmethod
    def step(state, f, x, y): return True, {}[state]

class Python(Account):
    @staticmethod
    def step(state, f, x, y): return open(str(state)), state

account = Account()
other = 7
"""


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A history of deposits, of which a map says how much, and the folder with its model is the current one."""
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "models.py").write_text(MODULE)
    (tmp_path / "bank" / "broken.py").write_text("import nowhere_at_all")
    (tmp_path / "bank" / "wrong.py").write_text("1 +")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield history(tmp_path / "h.edn", 3)
    for name in [name for name in sys.modules if name == "bank" or name.startswith("bank.")]:
        del sys.modules[name]


def history(path: Path, step: int) -> Path:
    lines = []
    for at in range(8):
        for f, given, recorded in (("deposit", "{:amount 3}", "nil"), ("balance", "nil", str((at + 1) * step))):
            lines.append(f"{{:process 0, :type :invoke, :f :{f}, :value {given}}}")
            lines.append(f"{{:process 0, :type :ok, :f :{f}, :value {recorded}}}")
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(("step", "ends"), [by_night(3, Verdict.PASS), (4, Verdict.FAIL)])
def test_a_model_of_the_current_folder_judges(
    bank: Path, capsys: pytest.CaptureFixture[str], step: int, ends: Verdict
) -> None:
    code = main(["check", str(history(bank, step)), "--model=bank.models:Account", "--json"])
    judgement = msgspec.json.decode(capsys.readouterr().out, type=Judgement)
    assert (code, judgement.verdict) == (ExitCode.PASS if ends is Verdict.PASS else ExitCode.FAIL, ends)
    assert judgement.operations == 16


@pytest.mark.parametrize(
    ("model", "recorded"),
    [
        ("nowhere:Account", "there is no module nowhere, neither installed nor in "),
        ("bank.nothing:Account", "there is no module bank.nothing, neither installed nor in "),
        ("bank.broken:A", "bank.broken cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("bank.wrong:A", "bank.wrong cannot be imported: SyntaxError: "),
        ("bank.models:Acount", "bank.models has no Acount; the models in it are Account, Stepless, Abstract"),
        ("bank.models:other", "is not a subclass of assay.Model"),
        ("bank.models:Call", "is not a subclass of assay.Model"),
        ("bank.models:account", "is an instance; name its class, Account"),
        ("bank.models:Stepless", "is abstract: define its methods step"),
        ("bank.models:Model", "is abstract: define its methods encode, step, name"),
        ("bank.models:Abstract", "is abstract: define its methods more"),
        ("bank.models:Wanting", "cannot be made without arguments: TypeError: "),
        ("bank.models:Careless", "step: the model account raised KeyError: 0 ("),
        ("bank.models:Python", "Python.step cannot be compiled; "),
    ],
)
def test_what_is_no_model_is_one_line_and_64(
    bank: Path, capsys: pytest.CaptureFixture[str], model: str, recorded: str
) -> None:
    assert main(["check", str(bank), f"--model={model}"]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("assay: ")
    assert recorded in line


def test_an_operation_that_it_cannot_take_is_named(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank.write_text(bank.read_text().replace("{:amount 3}", "nil", 1))
    assert main(["check", str(bank), "--model=bank.models:Account"]) == ExitCode.USAGE
    assert "operation 0: f deposit: the model account raised TypeError: " in capsys.readouterr().err


def test_those_that_come_along_go_by_their_names() -> None:
    names = [name for name, model in MODELS.items() if not model.needs_arguments]
    assert [find_model(name) for name in names] == [MODELS[name] for name in names]


def test_arguments_that_are_nested_too_deep_are_rejected() -> None:
    with pytest.raises(SettingsError, match="nested too deep"):
        find_model(f"register({'[' * 5000})")
