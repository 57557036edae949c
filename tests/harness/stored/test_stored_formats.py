"""Tests that what earlier versions stored is judged as it was judged then, in words that change on purpose alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from assay.checkers.engine import DuckDB, SQLite
from assay.checkers.judging.history_views import register_history
from assay.harness.cli.main import main
from assay.harness.core.history import DIGESTED, FORMAT, SCHEMAS, HistoryReader
from assay.harness.run import store
from assay.nemesis.schedule.schedule import decode_schedule

from helpers.stored_runs import FIXTURES

EXPECTED: Final = sorted(FIXTURES.glob("format_*/*/expected*.json"))
SAME: Final = ("verdict", "anomalies", "tolerated", "reasons", "operations", "effects", "interrupted", "findings")
ALWAYS: Final = (
    "controller-stale-epoch-obeyed",
    "group-zombie-commit",
    "log-lost-write",
    "log-unknown-abandoned",
    "storage-pass",
    "synthetic-group-orphaned-partition",
    "synthetic-queue-queue-duplicate",
    "synthetic-register-lost-update",
    "synthetic-txn-G-single",
)
"""By day, of the oldest format that has them: each verdict, and one of each sort of object. All others by night."""
IN_EACH: Final = "log-lost-write"
"""What is judged by day in each format, and by each engine of this machine."""
REWORDED: Final = {
    "nothing shows that it bit": "nothing shows that it took effect",
    "nobody ever saw it": "no one ever saw it",
    "nobody sent it": "no one sent it",
    "nobody wrote it": "no one wrote it",
    "was told to begin": "had to begin",
    "Nobody of": "No one of",
    "the history has nothing to which it applies": "the history has no data for it",
    "Of the 26 adds below 26 the acknowledged ones are 25": "Only 25 of the 26 adds below 26 had been acknowledged",
}
"""Findings, and reasons not to pass, whose words have changed on purpose."""
LOG_END: Final = re.compile(
    r"Offset (\d+) of (\S+) was there by ([\d.]+ s) \((process \d+)\), but the lower log end offset (\d+) of \S+ was "
    r"filled by an operation of (process \d+) that began only at ([\d.]+ s)\."
)
STALE_STATE: Final = re.compile(
    r"was there from ([^,\"]+), no fault was in force, and (\S+), which it is about, (is still|has no)"
)
STALE_KEY: Final = re.compile(r'("claim": ?")([^ "]+ (?:held (?:the initial )?value|had its initial value))')
"""The beginning of a stale read, which now says that it names a key."""
EARLIER: Final = re.compile(r"had been (?:acknowledged|read) [\d.]+ s earlier")
"""A part of the sentence that the text of :data:`LOG_END` lacks."""


OF_LATER_RULES: Final = re.compile(r"\S+: .* (?:acknowledged|given|shown by a read)\b|no operation was answered after ")
"""Reasons not to pass of rules that came later: of exposure, and of a system that falls silent."""


def find_added(now: list[str], then: list[str]) -> list[str]:
    """The present reasons without those of that time. They may end with more advice than at that time."""
    rest = list(now)
    for reason in then:
        rest.remove(next(one for one in rest if one.startswith(reason)))
    return rest


def case(path: Path, engine: str) -> Any:
    folder = path.parent
    oldest = min(one.parent for one in EXPECTED if one.parent.name == folder.name) == folder
    always = folder.name == IN_EACH or (engine == "sqlite" and folder.name in ALWAYS and oldest)
    # A search is compiled once on each machine, which takes a while.
    marks = [] if always and path.stem == "expected" else [pytest.mark.long]
    kind = path.stem.removeprefix("expected")
    return pytest.param(path, engine, id=f"{folder.parent.name}/{folder.name}{kind}-{engine}", marks=marks)


def without_newer(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """The judgement as it would be without the checks and the fields that there were not yet: they may find more."""
    known = {one["check"] for one in then["examined"]}
    newer = {one["check"] for one in now["examined"]} - known
    fields = {name for finding in then["findings"] for name in finding}
    return now | {
        "anomalies": {name: count for name, count in now["anomalies"].items() if name not in newer},
        "findings": [
            {name: finding[name] for name in finding if name in fields}
            for finding in now["findings"]
            if finding["anomaly"] not in newer
        ],
        "unknown": [reason for reason in now["unknown"] if reason.partition(" ")[0] not in newer],
    }


def claims(judgement: dict[str, Any]) -> list[str]:
    return [f"{finding['anomaly']}: {finding['claim']}" for finding in judgement["findings"]]


def reworded(text: str) -> str:
    for former, present in REWORDED.items():
        text = text.replace(former, present)
    text = STALE_KEY.sub(r"\1key \2", text)
    text = STALE_STATE.sub(
        r"assigns a replica to \2. The state was there from \1 and no fault was in force, but \2 \3", text
    )
    return LOG_END.sub(
        r"The end of \2 was reported as \5 (\6, which asked at \7), although offset \1 had been there (\4, by \3).",
        text,
    )


@pytest.mark.parametrize(("path", "engine"), [case(path, one) for path in EXPECTED for one in ("sqlite", "duckdb")])
def test_a_stored_run_is_judged_as_it_was(path: Path, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = json.loads(reworded(path.read_text()))
    then = expected["judgement"]
    code = main(["check", str(path.parent), *expected["options"], f"--engine={engine}", "--json"])
    said = capsys.readouterr()
    now = without_newer(json.loads(EARLIER.sub("had been there", said.out)), then)
    assert claims(now) == claims(then)
    assert {name: now[name] for name in SAME} == {name: then[name] for name in SAME}
    assert all(OF_LATER_RULES.match(reason) for reason in find_added(now["unknown"], then["unknown"]))
    examined = {one["check"]: one for one in now["examined"]}
    for one in then["examined"]:
        assert {name: examined[one["check"]].get(name) for name in one} == one
    assert set(then["forbidden"]) <= set(now["forbidden"])
    assert code == expected["exit"]
    assert said.err == ""


@pytest.mark.parametrize("folder", [path.parent for path in EXPECTED], ids=lambda folder: folder.name)
def test_its_files_are_read_as_of_today(folder: Path) -> None:
    """All but the judgement, which takes longer."""
    reader = HistoryReader(folder / "history")
    written = int(folder.parent.name.removeprefix("format_"))
    assert {reader.format(name) for name in SCHEMAS if reader.paths(name)} == {written}
    if reader.closing_note is not None:
        assert reader.digest() == reader.closing_note.digest
    if (folder / "run.json").exists():
        info = store.read_run(folder)
        assert info is not None
        assert info.schema_version == written <= FORMAT
        decode_schedule((folder / "schedule.json").read_bytes(), "schedule.json")
        assert "contract" in msgspec.json.decode((folder / "settings.json").read_bytes())


@pytest.mark.parametrize("kind", [DuckDB, SQLite])
@pytest.mark.parametrize("name", ["controller-pass", "log-pass-strict"])
def test_the_reader_and_the_engines_translate_alike(name: str, kind: type[DuckDB | SQLite]) -> None:
    folder = FIXTURES / "format_4" / name / "history"
    with kind() as engine:
        reader = register_history(engine, folder)
        assert reader.translation("faults")
        for data in DIGESTED:
            rows = reader.table(data)
            assert rows.schema.equals(SCHEMAS[data])
            assert reader.dataset(data).to_table().cast(rows.schema).equals(rows)
            keys = [column for column in ("index", "op", "sub", "id", "time") if column in rows.schema.names]
            order = ", ".join(f'"{key}"' for key in keys)
            names = ", ".join(f'"{column}"' for column in rows.schema.names)
            same = engine.arrow(f"select {names} from {data} order by {order}").cast(rows.schema)
            assert same.equals(rows.sort_by([(key, "ascending") for key in keys]))
