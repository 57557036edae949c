"""Files carried over to an empty store suffice for its page, are small, and never replace files that are there."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from assay.cluster.owner import current_owner
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.nightly.carry_over import SameStoreError, carry
from assay.harness.nightly.dataset import add_stores
from assay.harness.nightly.dataset_schema import RunRow
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import NightFolder, ShrunkFailure
from assay.harness.nightly.store_index import read_store
from assay.reports.index.failures import Failure, group_failures
from assay.reports.index.known import KnownFailures

from helpers.morning_store import LAST, Made, cell, night, result, write

OF = cell("test_log", "kill")
CRASH = cell("test_log", "stop")


def one_night(root: Path, back: int) -> NightFolder:
    """A failing run with all that a run has, and an attempt that left none."""
    began = LAST - timedelta(days=back)
    path = write(root, Made(began, verdict="fail", anomalies=("lost-write",), report=True, figures={"median_ms": 3.0}))
    (path / "history" / "ops.parquet").write_bytes(b"large")
    (path / "logs").mkdir()
    (root / "latest").unlink(missing_ok=True)
    (root / "latest").symlink_to(path)
    (root / "found").mkdir(exist_ok=True)
    (root / "found" / f"{path.name}-lost-write.json").write_text('{"steps": [{"fault": "stop"}]}')
    results = [result(OF, Outcome.FAIL, f"{path.parent.name}/{path.name}", started=began.isoformat()),
               result(CRASH, Outcome.CRASHED, log="logs/1.log", started=began.isoformat())]  # fmt: skip
    made = night(root, began, [OF, CRASH], results)
    (made.path / "logs").mkdir()
    (made.path / "logs" / "1.log").write_text("large")
    return made


def only(root: Path) -> Failure:
    (found,) = group_failures(read_store(root, {}), KnownFailures())
    return found


def test_a_page_of_what_was_carried_says_the_same_of_earlier_nights(tmp_path: Path) -> None:
    first, past, second = tmp_path / "first", tmp_path / "past", tmp_path / "second"
    one_night(first, 1)
    assert carry(first, past) == (1, 1)
    assert {path.name for path in past.rglob("*") if path.is_file()} == {
        "run.json", "settings.json", "verdict.json", "schedule.json", "figures.json", "carried", "night.json",
        "cells.jsonl",
        *(path.name for path in (first / "found").iterdir()),
    }  # fmt: skip
    assert not list(past.rglob("history")), "what has no history is not taken for a run that can be judged"
    one_night(second, 0)
    assert only(second).new
    carry(past, second)
    found = only(second)
    assert (found.new, found.nights, found.shape, found.entries[-1].started) == (
        False, 2, ("stop",), only(first).entries[0].started,
    )  # fmt: skip
    for stored in (read_store(past, {}), read_store(second, {})):
        addresses = [address for entry in stored.entries for _, address in entry.links]
        assert all((tmp_path / stored.name / address).exists() for address in addresses), "no link leads nowhere"


@pytest.mark.parametrize("status", ["running", "finished"])
def test_a_run_without_its_verdict_is_carried_when_its_session_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: str
) -> None:
    run, past = write(tmp_path / "store", Made(verdict=None)), tmp_path / "past"
    recorded = msgspec.json.decode((run / "run.json").read_bytes())
    still_running = {"status": status, "in_use": True, "owner": str(current_owner())}
    (run / "run.json").write_bytes(msgspec.json.encode(recorded | still_running))
    command = ["carry", str(tmp_path / "store"), f"--into={past}"]
    assert main(command) == ExitCode.PASS
    said = capsys.readouterr()
    assert "0 runs and 0 nights carried" in said.out
    assert f"not carried: {run} goes on, or is being judged" in said.err
    assert read_store(tmp_path / "store", {}).entries[0].status == "running"
    ended = still_running | {"owner": str(replace(current_owner(), started=1))}
    (run / "run.json").write_bytes(msgspec.json.encode(recorded | ended))
    assert main(command) == ExitCode.PASS
    assert "1 runs and 0 nights carried" in capsys.readouterr().out


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    made = one_night(store, 0)
    carry(store, past)
    for file in past.rglob("*.json"):
        file.write_bytes(b"old")
    (past / "nights" / made.path.name / "cells.jsonl").write_bytes(b"")
    kept = {path: path.read_bytes() for path in store.rglob("*.json") if path.parent.name != "found"}
    assert carry(past, store) == (0, 0)
    assert {path: path.read_bytes() for path in kept} == kept
    assert carry(store, past) == (1, 1), "a night that was gone on with, and its runs, take the place of what was known"
    assert only(past).anomalies == ("lost-write",)
    assert [one.cell for one in NightFolder(past / "nights" / made.path.name).read_results()] == [OF.name, CRASH.name]


def test_a_huge_file_is_named_and_the_others_are_carried(tmp_path: Path) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    one_night(store, 1)
    huge = next(store.rglob("figures.json"))
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    one_night(store, 0)
    refused: list[str] = []
    assert carry(store, past, refused=refused.append) == (2, 2)
    assert len(refused) == 1
    assert str(huge) in refused[0]
    assert "not carried" in refused[0]
    assert len(list(past.rglob("run.json"))) == 2


def test_a_run_is_not_replaced_by_another_one_of_its_name(tmp_path: Path) -> None:
    """Two machines may begin a run of one test in the same millisecond."""
    for name, verdict, seed in (("a", "fail", 1), ("b", "pass", 2)):
        path = write(tmp_path / name, Made(LAST, verdict=verdict))
        info = msgspec.json.decode((path / "run.json").read_bytes())
        (path / "run.json").write_bytes(msgspec.json.encode(info | {"seed": seed}))
    refused = list[str]()
    assert carry(tmp_path / "a", tmp_path / "both") == (1, 0)
    assert carry(tmp_path / "b", tmp_path / "both", refused=refused.append) == (0, 0)
    assert len(refused) == 1
    assert "is another run than" in refused[0]
    (found,) = (tmp_path / "both").glob("*/*/run.json")
    assert msgspec.json.decode(found.read_bytes())["verdict"] == "fail"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "running", "verdict": None, "in_use": True, "machine": "another"}, ""),
        ({"verdict": None}, ""),
        ({"verdict": "pass"}, "has the verdict fail and stays, although"),
        (None, "cannot be read, so"),
    ],
    ids=["running", "without a verdict", "another verdict", "damaged"],
)
def test_a_failed_run_is_not_replaced_by_another_state_of_it(
    tmp_path: Path, change: dict[str, object] | None, said: str
) -> None:
    run, refused = write(tmp_path / "store", Made(verdict="fail")), list[str]()
    past = tmp_path / "past"
    assert carry(tmp_path / "store", past) == (1, 0)
    info = msgspec.json.decode((run / "run.json").read_bytes())
    (run / "run.json").write_bytes(b"{" if change is None else msgspec.json.encode(info | change))
    assert carry(tmp_path / "store", past, refused=refused.append) == (0, 0)
    assert len(refused) == bool(said)
    assert said in "".join(refused)
    (found,) = past.glob("*/*/run.json")
    assert msgspec.json.decode(found.read_bytes())["verdict"] == "fail"
    (run / "run.json").write_bytes(msgspec.json.encode(info))
    assert carry(tmp_path / "store", past) == (1, 0)


def test_what_a_night_learnt_after_its_last_cell_is_carried_as_well(tmp_path: Path) -> None:
    """That it ended, and what was made small."""
    store, past = tmp_path / "store", tmp_path / "past"
    made = one_night(store, 0)
    made.write(msgspec.structs.replace(made.read(), ended=msgspec.UNSET))
    carry(store, past)
    there = NightFolder(past / "nights" / made.path.name)
    assert there.read().ended is msgspec.UNSET
    made.write(msgspec.structs.replace(made.read(), ended="2026-11-24T05:00:00+00:00"))
    small = ShrunkFailure(system="s", workload="w", anomalies=("lost-write",), run="t/1", started="", seconds=1.0)
    made.append_shrunk(small)
    assert carry(store, past) == (1, 1)
    assert (there.read(), there.read_shrunk()) == (made.read(), [small])
    assert carry(store, past) == (1, 0)


def test_the_data_set_takes_runs_from_their_own_store_alone(tmp_path: Path) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    one_night(store, 1)
    carry(store, past)
    one_night(past, 0)
    added: list[RunRow] = []
    assert add_stores([past], tmp_path / "nights", None, added.append) == 1
    assert [run.started[:10] for run in added] == ["2026-11-24"]


@pytest.mark.parametrize("link", [False, True])
def test_a_store_is_not_carried_into_itself_and_nothing_is_marked(
    tmp_path: Path, link: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    run = write(store, Made())
    (tmp_path / "link").symlink_to(store)
    assert main(["carry", str(store), f"--into={tmp_path / 'link' if link else store}"]) == ExitCode.USAGE
    assert "are the same folder" in capsys.readouterr().err
    assert not (run / "carried").exists()


def test_a_run_that_is_reached_through_a_link_of_the_target_is_not_marked(tmp_path: Path) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    run = write(store, Made())
    shutil.rmtree(run / "history")
    past.mkdir()
    (past / run.parent.name).symlink_to(run.parent)
    with pytest.raises(SameStoreError, match="are the same folder, by a symbolic link"):
        carry(store, past)
    assert not (run / "carried").exists()


def test_the_data_set_names_what_it_leaves_out_and_takes_a_run_with_its_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    run = write(store, Made())
    carry(store, past)
    (run / "carried").touch()
    assert main(["nights", "add", str(store), str(past), f"--into={tmp_path / 'nights'}"]) == ExitCode.PASS
    said = capsys.readouterr()
    assert said.out.startswith("1 run added")
    left = past / run.relative_to(store)
    assert f"left out, because they are marked as carried from another store: {left}" in said.err


def test_links_out_of_a_store_are_not_followed(tmp_path: Path) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    path = write(store, Made())
    (tmp_path / "secret").write_text("secret")
    (path / "verdict.json").unlink()
    (path / "verdict.json").symlink_to(tmp_path / "secret")
    skipped: list[Path] = []
    carry(store, past, skipped.append)
    assert not (past / path.relative_to(store) / "verdict.json").exists()
    assert skipped == [path / "verdict.json"]
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "settings.json").write_text("secret")
    (path.parent / "private").symlink_to(tmp_path / "private")
    carry(store, past)
    assert not (past / path.parent.name / "private").exists()
    run = write(tmp_path / "elsewhere", Made())
    (path.parent / "linked").symlink_to(run)
    carry(store, past)
    assert (past / path.parent.name / "linked" / "run.json").is_file()


@pytest.mark.parametrize("inner", ["nights", "nights/20260101T000000Z", "found"])
def test_links_to_folders_out_of_a_store_are_not_followed(
    tmp_path: Path, inner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store, past, elsewhere = tmp_path / "store", tmp_path / "past", tmp_path / "elsewhere"
    write(store, Made())
    for folder in (elsewhere, elsewhere / "20260101T000000Z"):
        folder.mkdir()
        for name in ("night.json", "cells.jsonl", "secret.json"):
            (folder / name).write_text("secret")
    link = store / inner
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.PASS
    assert not [path for path in past.rglob("*") if path.is_file() and path.read_bytes() == b"secret"]
    assert f"not carried: {link} is a link" in capsys.readouterr().err


def test_a_fifo_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    path = write(store, Made())
    (path / "settings.json").unlink(missing_ok=True)
    os.mkfifo(path / "settings.json")
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.PASS
    assert f"not carried: {path / 'settings.json'} is a link or a special file" in capsys.readouterr().err
    assert (past / path.relative_to(store) / "run.json").is_file()


def test_the_command_escapes_the_names_of_what_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, past = tmp_path / "store", tmp_path / "line\nbreak"
    run = write(store, Made())
    (run / "settings.json").unlink(missing_ok=True)
    (run / "settings.json").symlink_to(tmp_path / "secret")
    run.parent.rename(store / "\x1b[31mred\n")
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.PASS
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert rf"not carried: {store}/\x1b[31mred\n/{run.name}/settings.json is a link" in line
    assert printed.out == rf"1 runs and 0 nights carried to {tmp_path}/line\nbreak" + "\n"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    assert main(["carry", str(past), f"--into={store}"]) == ExitCode.PASS
    assert "0 runs and 0 nights" in capsys.readouterr().out, "the first night has nothing before it"
    one_night(store, 0)
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.PASS
    assert "1 runs and 1 nights" in capsys.readouterr().out
    assert main(["carry", str(store), f"--into={store / 'found' / 'x.json'}"]) == ExitCode.USAGE
    assert "lies in the other" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["carry", str(tmp_path / "file"), f"--into={past}"]) == ExitCode.USAGE
    assert main(["carry", str(store), f"--into={tmp_path / 'file'}"]) == ExitCode.USAGE


def snapshot(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("part", ["found", "TEST", "RUN", "nights", "night", "run.json", "carried"])
def test_nothing_is_written_through_a_link_of_the_target_and_the_rest_is_carried(
    tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store, past, elsewhere = tmp_path / "store", tmp_path / "past", tmp_path / "elsewhere"
    made = one_night(store, 1)
    other = write(store, Made(workload="test_other"))
    (run,) = [one for one in store.glob("*/*/schedule.json") if one.parent != other]
    place = past / run.parent.relative_to(store)
    link = {"found": past / "found", "TEST": place.parent, "RUN": place, "nights": past / "nights",
            "night": past / "nights" / made.path.name}.get(part, place / part)  # fmt: skip
    link.parent.mkdir(parents=True)
    if link.parent == place:
        (place / "run.json").write_bytes((run.parent / "run.json").read_bytes())
        (place / part).unlink(missing_ok=True)
    elsewhere.mkdir()
    link.symlink_to(elsewhere if part != "carried" else elsewhere / "made")
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.USAGE
    assert not list(elsewhere.iterdir())
    assert link.is_symlink()
    err = capsys.readouterr().err
    assert f"not carried: {link} is " in err or f"not carried: {place} was made by others" in err
    assert err.count("not carried: ") == 1
    assert (past / other.relative_to(store) / "run.json").is_file()


def test_a_shrunk_schedule_with_other_content_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    one_night(store, 1)
    (store / "found" / "second.json").write_text("{}")
    (theirs,) = [past / "found" / file.name for file in (store / "found").glob("*lost-write.json")]
    theirs.parent.mkdir(parents=True)
    theirs.write_text("precious")
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.USAGE
    assert f"not carried: {theirs} differs from {store / 'found' / theirs.name} and stays" in capsys.readouterr().err
    assert theirs.read_text() == "precious"
    assert (past / "found" / "second.json").is_file()
    theirs.unlink()
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.PASS
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.PASS, "an equal file is in no one's way"


@pytest.mark.parametrize("inner", ["RUN", "night"])
def test_a_folder_of_others_is_not_written_into(tmp_path: Path, inner: str, capsys: pytest.CaptureFixture[str]) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    made = one_night(store, 1)
    (run,) = [file.parent for file in store.glob("*/*/schedule.json")]
    place = past / (run if inner == "RUN" else made.path).relative_to(store)
    place.mkdir(parents=True)
    for name in ("settings.json", "cells.jsonl"):
        (place / name).write_text("x")
    before = snapshot(place)
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert f"not carried: {place} was made by others; move it away" in said.err
    assert ("0 runs and 1 nights" if inner == "RUN" else "1 runs and 0 nights") in said.out
    assert snapshot(place) == before
    shutil.rmtree(place)
    place.mkdir()
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.PASS, "an empty folder is in no one's way"
    assert len(list(place.iterdir())) > 1


def files_of(night: NightFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in night.path.iterdir() if path.is_file()}


def two_nights(tmp_path: Path) -> tuple[NightFolder, NightFolder]:
    """Two nights of one name: one that passed, with more attempts, in ``past``, and one that failed in ``store``."""
    nights = []
    for place, started, outcomes in (("past", "01", [Outcome.PASS] * 3), ("store", "09", [Outcome.FAIL])):
        results = [result(OF, one, started=LAST.isoformat()) for one in outcomes]
        made = night(tmp_path / place, LAST, [OF], results)
        made.write(msgspec.structs.replace(made.read(), started=f"2026-11-24T{started}:00:00+00:00", version=place * 9))
        nights.append(made)
    return nights[0], nights[1]


@pytest.mark.parametrize("back", [False, True])
def test_two_nights_of_one_name_are_not_mixed(tmp_path: Path, back: bool, capsys: pytest.CaptureFixture[str]) -> None:
    past, store = two_nights(tmp_path)
    source, target = (store, past) if back else (past, store)
    before = files_of(past), files_of(store)
    root = target.path.parent.parent
    assert main(["carry", str(source.path.parent.parent), f"--into={root}"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert "0 nights carried" in said.out
    (line,) = said.err.splitlines()
    assert f"not carried: {target.path} is the record of another night than {source.path} and stays" in line
    assert (files_of(past), files_of(store)) == before


def test_a_night_that_two_machines_continued_is_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past, store = two_nights(tmp_path)
    store.write(past.read())
    before = files_of(past), files_of(store)
    assert main(["carry", str(tmp_path / "past"), f"--into={tmp_path / 'store'}"]) == ExitCode.USAGE
    assert "continue one night differently; remove one of the two" in capsys.readouterr().err
    assert (files_of(past), files_of(store)) == before


def record_part(store: Path, part: int, day: int) -> NightFolder:
    """Records one of two parts of the night ``weekly``."""
    first = night(store, LAST, [OF], [])
    record, made = first.read(), NightFolder(first.path.with_name(f"weekly.{part}of2"))
    shutil.rmtree(first.path)
    started = f"2026-11-{day}T01:00:00+00:00"
    made.write(
        msgspec.structs.replace(record, folder_name=made.path.name, whole="weekly", part=part, parts=2, started=started)
    )
    return made


@pytest.mark.parametrize("newer", ["past", "store"])
def test_an_old_part_of_another_night_of_the_same_name_is_not_carried(
    tmp_path: Path, newer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newer part is in the target, or carried together with the older one."""
    store, past = tmp_path / "store", tmp_path / "past"
    old = record_part(store, 1, 7)
    record_part(past, 2, 28) if newer == "past" else record_part(store, 2, 28)
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.USAGE
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith(f"assay: not carried: {old.path}, because weekly.1of2 (")
    assert "belongs to another night than weekly.2of2 (" in line
    assert line.endswith("remove one of them, and give each night a name of its own by --night")
    assert [one.name for one in (past / "nights").iterdir()] == ["weekly.2of2"]


def test_parts_of_one_night_are_carried_in_any_order(tmp_path: Path) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    record_part(store, 1, 28)
    record_part(past, 2, 28)
    assert carry(store, past) == (0, 1)


def test_the_files_of_a_night_are_carried_together_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    made = one_night(store, 1)
    place = past / made.path.relative_to(store)
    place.mkdir(parents=True)
    shutil.copy(made.path / "night.json", place)
    (place / "cells.jsonl").symlink_to(tmp_path / "elsewhere")
    made.write(msgspec.structs.replace(made.read(), ended="2026-11-25T05:00:00+00:00"))
    before = (place / "night.json").read_bytes()
    assert main(["carry", str(store), f"--into={past}"]) == ExitCode.USAGE
    assert f"not carried: {place / 'cells.jsonl'} is no regular file; remove it" in capsys.readouterr().err
    assert (place / "night.json").read_bytes() == before


def test_an_earlier_state_of_a_night_does_not_replace_a_later_one(tmp_path: Path) -> None:
    store, past = tmp_path / "store", tmp_path / "past"
    made = one_night(store, 0)
    carry(store, past)
    there = NightFolder(past / made.path.relative_to(store))
    made.write(msgspec.structs.replace(made.read(), ended=msgspec.UNSET, commits=("x" * 900,)))
    assert carry(store, past) == (1, 0), "it ended, and is not going on because its record is longer"
    made.append_result(result(OF, Outcome.PASS, started=LAST.isoformat()))
    before = files_of(made)
    assert carry(past, store) == (0, 0)
    assert files_of(made) == before
    assert carry(store, past) == (1, 1), "it was gone on with"
    assert files_of(there) == before
