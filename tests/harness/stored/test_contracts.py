"""A run whose contract is lost: it fails by what no contract can tolerate, is unknown otherwise, and never passes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import INTOLERABLE, Contract, forbid
from assay.harness.cli.main import main
from assay.harness.core.history import HistoryWriter
from assay.harness.core.history.data_sets import FORMAT, FORMAT_KEY, ORIGIN_KEY, ORIGIN_RUN
from assay.harness.run import store
from assay.harness.run.registry import Registry
from assay.harness.stored.by_contract import open_stored
from assay.harness.stored.contracts import LOST_CONTRACT

from helpers.stored_runs import FIXTURES, TODAY

PASSES = FIXTURES / "format_4" / "log-pass-strict"
LOSES = TODAY / "log-lost-write"
PHANTOM = TODAY / "log-phantom"
Lose = Callable[[Path], Path]


def without_settings(run: Path) -> Path:
    (run / "settings.json").unlink()
    return run


def text(content: str) -> Lose:
    def lose(run: Path) -> Path:
        (run / "settings.json").write_text(content)
        return run

    return lose


def newer_settings(run: Path) -> Path:
    settings = msgspec.json.decode((run / "settings.json").read_bytes())
    settings["schema_version"] = store.SCHEMA_VERSION + 1
    (run / "settings.json").write_bytes(msgspec.json.encode(settings))
    return run


def newer_run(run: Path) -> Path:
    info = msgspec.json.decode((run / "run.json").read_bytes())
    info["schema_version"] = store.SCHEMA_VERSION + 1
    (run / "run.json").write_bytes(msgspec.json.encode(info))
    return run


def newer_promise(run: Path) -> Path:
    settings = msgspec.json.decode((run / "settings.json").read_bytes())
    settings["contract"]["a_promise_of_tomorrow"] = True
    (run / "settings.json").write_bytes(msgspec.json.encode(settings))
    return run


def without_what_is_forbidden(run: Path) -> Path:
    settings = msgspec.json.decode((run / "settings.json").read_bytes())
    del settings["contract"]["forbidden"]
    (run / "settings.json").write_bytes(msgspec.json.encode(settings))
    return run


def with_promise(name: str, value: object) -> Lose:
    def change(run: Path) -> Path:
        settings = msgspec.json.decode((run / "settings.json").read_bytes())
        settings["contract"][name] = value
        (run / "settings.json").write_bytes(msgspec.json.encode(settings))
        return run

    return change


def bare(run: Path) -> Path:
    return Path(shutil.move(run / "history", run.parent / "brought"))


def bare_parts(run: Path) -> Path:
    """Leaves what a check needs: two of the data sets."""
    brought = run.parent / "brought"
    for name in ("ops", "effects"):
        shutil.copytree(run / "history" / name, brought / name)
    return brought


def without_run(run: Path) -> Path:
    (run / "run.json").unlink()
    return run


WAYS: dict[str, Lose] = {
    "no settings.json": without_settings,
    "empty": text(""),
    "no JSON": text("{"),
    "a list": text("[]"),
    "no contract": text("{}"),
    "no contract of ours": text('{"contract": {"forbidden": 7}}'),
    "an empty contract": text('{"contract": {}}'),
    "settings of a newer version": newer_settings,
    "a run of a newer version": newer_run,
    "a promise of a newer version": newer_promise,
    "nothing forbidden": without_what_is_forbidden,
    "an unknown isolation level": with_promise("transaction_level", "bogus"),
    "SQL as an isolation level": with_promise(
        "transaction_level", "' || (select content from read_text('/etc/passwd')) || '"
    ),
    "an endless search": with_promise("transaction_seconds", 1e300),
    "a bare history": bare,
    "two data sets": bare_parts,
    "no run.json": without_run,
}


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda run: Path(shutil.copytree(run, tmp_path / "store" / "t" / "1"))


@pytest.mark.parametrize("lose", WAYS.values(), ids=WAYS)
def test_the_contract_of_a_run_is_lost(copy: Callable[[Path], Path], lose: Lose) -> None:
    stored = open_stored(lose(copy(PASSES)))
    assert stored.lost is not None
    assert stored.contract == LOST_CONTRACT


def test_a_run_that_has_its_contract_and_a_generated_history_have_lost_nothing() -> None:
    assert open_stored(PASSES).lost is None
    assert open_stored(TODAY / "synthetic-set-set-lost").lost is None


@pytest.mark.parametrize(
    ("lose", "run", "code", "said"),
    [
        (without_settings, PASSES, 2, "UNKNOWN: the contract is lost; give --contract=FILE"),
        (bare, PASSES, 2, "UNKNOWN: the contract is lost; give --contract=FILE"),
        (bare, LOSES, 2, r"UNKNOWN: .*\blost-write\b.* found, but the contract is lost; give --contract=FILE"),
        (bare_parts, PASSES, 2, "UNKNOWN: the contract is lost; give --contract=FILE"),
        (bare_parts, LOSES, 2, r"UNKNOWN: .*\blost-write\b.* found, but the contract is lost; give --contract=FILE"),
        (bare_parts, PHANTOM, 1, "FAIL phantom: "),
        (newer_settings, LOSES, 2, r"UNKNOWN: .*\blost-write\b.* found, but the contract is lost"),
        (without_settings, PHANTOM, 1, "FAIL phantom: "),
    ],
    ids=[
        "passed", "passed, bare", "lost a write, bare", "passed, two data sets", "lost a write, two data sets",
        "phantom, two data sets", "lost a write", "phantom",
    ],
)  # fmt: skip
def test_a_run_without_its_contract_never_passes(
    copy: Callable[[Path], Path], capsys: pytest.CaptureFixture[str], lose: Lose, run: Path, code: int, said: str
) -> None:
    assert main(["check", str(lose(copy(run)))]) == code
    assert re.match(said, capsys.readouterr().out)


@pytest.mark.parametrize("generation", ["format_4", "format_7"])
def test_each_file_of_a_run_of_an_earlier_version_shows_it(copy: Callable[[Path], Path], generation: str) -> None:
    for run in sorted((FIXTURES / generation).iterdir()):
        if not run.name.startswith("synthetic-"):
            brought = bare_parts(copy(run))
            assert open_stored(brought).lost is not None, run
            shutil.rmtree(brought.parent)


def brought(folder: Path, *, of_run: bool) -> Path:
    """Two data sets of a history that this version wrote."""
    with HistoryWriter(folder / "whole" / "history", of_run=of_run):
        pass
    return bare_parts(folder / "whole")


def test_the_files_of_a_run_say_that_a_run_wrote_them(tmp_path: Path) -> None:
    folder = store.create_run_folder(tmp_path / "store", "t.py::t[none]", datetime(2026, 1, 1, tzinfo=UTC))
    folder.open_history(None).close()
    ours = bare_parts(folder.path)
    assert pq.read_schema(ours / "ops" / "part-000000.parquet").metadata[ORIGIN_KEY] == ORIGIN_RUN
    (ours.parent / "planted.json").write_text("{}")
    assert open_stored(ours).lost is not None


def test_a_history_that_no_run_wrote_has_no_contract_to_lose(tmp_path: Path) -> None:
    theirs = brought(tmp_path, of_run=False)
    assert open_stored(theirs).lost is None
    # Another tool: it says nothing, and every column may be null.
    for part in theirs.glob("*/*.parquet"):
        table = pq.read_table(part)
        fields = [field.with_nullable(True) for field in table.schema]
        for said in ({}, {FORMAT_KEY: str(FORMAT).encode()}):
            pq.write_table(table.cast(pa.schema(fields)).replace_schema_metadata(said), part)
    assert open_stored(theirs).lost is None


def test_many_runs_are_judged_as_each_alone(copy: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = without_settings(copy(PASSES))
    assert main(["check", str(run.parent.parent)]) == 2
    assert "the contract is lost" in capsys.readouterr().out


@pytest.mark.parametrize("lose", [without_settings, bare], ids=["no settings.json", "a bare history"])
@pytest.mark.parametrize(("run", "code"), [(PASSES, 0), (LOSES, 1)], ids=["passes", "fails"])
def test_a_contract_that_is_given_judges_it_again(
    copy: Callable[[Path], Path], lose: Lose, run: Path, code: int
) -> None:
    assert main(["check", str(lose(copy(run))), f"--contract={run / 'settings.json'}"]) == code


def test_the_strictest_contract_can_be_given(copy: Callable[[Path], Path]) -> None:
    assert main(["check", str(bare(copy(LOSES))), "--contract=strictest"]) == 1


def test_a_contract_in_place_of_a_stored_one_is_wrong_usage(
    copy: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weaker = tmp_path / "weaker.json"
    weaker.write_bytes(Contract(forbidden=()).to_json())
    assert main(["check", str(copy(LOSES)), f"--contract={weaker}"]) == 64
    assert "has its own" in capsys.readouterr().err


def test_a_contract_that_cannot_be_read_is_wrong_usage(
    copy: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = without_settings(copy(LOSES))
    for wrong in ("nowhere.json", str(run / "run.json"), str(run)):
        assert main(["check", str(run), f"--contract={wrong}"]) == 64
        assert f"--contract={wrong}" in capsys.readouterr().err


def test_what_no_contract_can_tolerate_are_anomalies_that_there_are() -> None:
    assert set(INTOLERABLE) <= {name for family in FAMILIES for name in family.anomalies}


@pytest.mark.parametrize("name", INTOLERABLE)
def test_an_experiment_cannot_tolerate_them(name: str) -> None:
    registry = Registry.standard()
    assert "no contract can tolerate" in (registry.explain_invalid(forbid().tolerate(name)) or "")
    sometimes = forbid(name).tolerate_under(name, faults=["kill"], because="it forgets")
    assert "no contract can tolerate" in (registry.explain_invalid(sometimes) or "")
    assert registry.explain_invalid(forbid(name)) is None
