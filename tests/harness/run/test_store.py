"""Run folders, their links, and what gc may take away."""

from __future__ import annotations

import dataclasses
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster import owner
from assay.cluster.owner import current_owner
from assay.harness.cli.main import main
from assay.harness.run import store
from assay.harness.run.attempt import make_run_id
from assay.harness.run.store import RunInfo

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def info(started: datetime, status: str = store.FINISHED, owner: str | None = None) -> RunInfo:
    return RunInfo(
        test="t", status=status, started=started.isoformat(), owner=owner or str(current_owner()), seed=1,
        cluster="sim",
        nemesis="none", command="pytest t",
    )  # fmt: skip


def test_a_node_id_becomes_a_readable_name() -> None:
    assert (
        store.to_safe_name("workloads/test_log.py::test_log[kill+partition]")
        == "workloads-test_log-test_log-kill+partition"
    )


@given(st.text(max_size=300))
def test_a_name_is_a_single_path_component_whatever_the_id(test_id: str) -> None:
    name = store.to_safe_name(test_id)
    assert name
    assert len(name.encode()) <= 255
    assert "/" not in name
    assert "\0" not in name
    assert name not in (".", "..", store.LATEST)
    assert not name.startswith("-")
    assert name == store.to_safe_name(test_id)


@given(st.text(max_size=100), st.sets(st.text(max_size=300), max_size=40))
def test_the_name_of_a_schedule_is_a_single_path_component_whatever_the_anomalies(
    run: str, anomalies: set[str]
) -> None:
    name = store.schedule_name(run, anomalies)
    assert "/" not in name
    assert len(name.encode()) <= 255
    assert name.endswith(".json")
    assert not name.startswith(".")
    assert name == store.schedule_name(run, sorted(anomalies))


def test_the_name_of_a_schedule_says_what_it_is_of() -> None:
    assert (
        store.schedule_name("20260101T000000.000Z", {"lost-write", "gap"}) == "20260101T000000.000Z-gap+lost-write.json"
    )
    long = [f"anomaly-{number}" for number in range(40)]
    assert store.schedule_name("r", long) != store.schedule_name("r", long[1:])


def test_a_schedule_that_someone_has_edited_keeps_its_name(tmp_path: Path) -> None:
    assert store.choose_schedule_path(tmp_path, "s.json", b"{}") == tmp_path / "s.json"
    (tmp_path / "s.json").write_bytes(b"{}")
    assert store.choose_schedule_path(tmp_path, "s.json", b"{}") == tmp_path / "s.json"
    (tmp_path / "s.json").write_bytes(b"edited")
    (tmp_path / "s-2.json").symlink_to("elsewhere")
    assert store.choose_schedule_path(tmp_path, "s.json", b"{}") == tmp_path / "s-3.json"


@given(st.text(max_size=30), st.text(max_size=30))
def test_ids_that_differ_in_replaced_characters_keep_apart(one: str, other: str) -> None:
    prefix = "a::t[ü"
    if one != other:
        assert store.to_safe_name(prefix + one) != store.to_safe_name(prefix + other)


def test_tests_whose_names_differ_only_in_case_get_two_folders_if_the_file_system_ignores_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def ignore_case(folder: Path, *given: Any, **options: Any) -> None:
        same = [one for one in folder.parent.glob("*") if one.name.lower() == folder.name.lower()]
        return make(same[0] if same else folder, *given, **options)

    monkeypatch.setattr(Path, "mkdir", ignore_case)
    folders = [
        store._create_test_folder(tmp_path, f"a.py::{name}") for name in ("test_a", "test_A", "test_a", "test_A")
    ]
    assert folders[:2] == folders[2:]
    assert folders[0].name == "a-test_a"
    assert folders[1].name.startswith("a-test_A-")
    assert sorted(tmp_path.iterdir()) == sorted(folders[:2])


def test_a_test_with_the_name_of_a_link_in_another_case_gets_another_name() -> None:
    assert store.to_safe_name("Latest") != "Latest"


def test_two_runs_in_one_millisecond_get_two_folders(tmp_path: Path) -> None:
    first, second = (store.create_run_folder(tmp_path, "a.py::t", NOW) for _ in range(2))
    assert first.path.name == "20260102T030405.678Z"
    assert first.path != second.path
    assert first.path.is_dir()
    assert second.path.is_dir()


def test_runs_that_start_in_one_millisecond_in_two_stores_mark_their_containers_apart(tmp_path: Path) -> None:
    moments = (NOW, NOW, NOW + timedelta(milliseconds=1))
    first, second, later = (
        make_run_id(store.create_run_folder(tmp_path / str(i), "t", now).path) for i, now in enumerate(moments)
    )
    assert first.startswith("20260102t030405.678z")
    assert first != second
    assert max(first, second) < later, "they sort by time"


def test_latest_is_never_missing_while_it_is_swapped(tmp_path: Path) -> None:
    folders = [store.create_run_folder(tmp_path, "a.py::t", NOW + timedelta(seconds=i)) for i in range(2)]
    folders[0].publish()
    missing: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if not (tmp_path / store.LATEST).exists():
                missing.append(1)

    reader = threading.Thread(target=look)
    reader.start()
    for turn in range(300):
        folders[turn % 2].publish()
    done.set()
    reader.join()
    assert not missing
    assert (tmp_path / store.LATEST).resolve() == folders[1].path.resolve()
    assert (tmp_path / "a-t" / store.LATEST).resolve() == folders[1].path.resolve()
    assert not os.readlink(tmp_path / store.LATEST).startswith("/")


def test_in_a_copy_of_a_store_a_folder_in_place_of_a_link_stays_and_is_named(tmp_path: Path) -> None:
    """As ``cp -rL`` leaves it, or an archive without links: the verdict of a run must not be lost by it."""
    first = store.create_run_folder(tmp_path, "a.py::t", NOW)
    (tmp_path / store.LATEST).mkdir()
    assert first.publish() == [tmp_path / store.LATEST]
    assert (first.path.parent / store.LATEST).resolve() == first.path.resolve()
    assert {path.name for path in tmp_path.iterdir()} == {store.LATEST, "a-t"}
    (tmp_path / store.LATEST).rmdir()
    assert first.publish() == []


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_or_link_of_a_user_with_the_name_of_the_latest_run_stays(tmp_path: Path, kind: str) -> None:
    run = store.create_run_folder(tmp_path, "a.py::t", NOW)
    latest = tmp_path / store.LATEST
    (tmp_path / "v3").mkdir()
    if kind == "file":
        latest.write_text("mine")
    else:
        latest.symlink_to("v3")
    assert run.publish() == [latest]
    assert latest.read_text() == "mine" if kind == "file" else os.readlink(latest) == "v3"


def test_a_link_to_a_deleted_run_is_replaced(tmp_path: Path) -> None:
    run = store.create_run_folder(tmp_path, "a.py::t", NOW)
    (tmp_path / store.LATEST).symlink_to("b-t/20260101T000000.000Z")
    assert run.publish() == []
    assert (tmp_path / store.LATEST).resolve() == run.path.resolve()


def test_run_json_round_trips_and_garbage_is_no_run(tmp_path: Path) -> None:
    folder = store.create_run_folder(tmp_path, "a.py::t", NOW)
    assert store.read_run(folder.path) is None
    folder.write_run(info(NOW))
    assert store.read_run(folder.path) == info(NOW)
    for garbage in (b"{", b'{"test": "\xff"}'):
        (folder.path / "run.json").write_bytes(garbage)
        assert store.read_run(folder.path) is None


def test_text_of_any_origin_can_be_written(tmp_path: Path) -> None:
    """A path or an error may have bytes that are no UTF-8, as halves of characters."""
    folder = store.create_run_folder(tmp_path, "a.py::t", NOW)
    odd = msgspec.structs.replace(info(NOW), problem="caf\udce9 \U0001f600", notes=("\udc80",))
    folder.write_run(odd)
    read = msgspec.structs.replace(odd, problem="caf\\udce9 \U0001f600", notes=("\\udc80",))
    assert store.read_run(folder.path) == read


def test_gc_keeps_the_newest_of_each_test_the_latest_and_what_is_going_on(tmp_path: Path) -> None:
    a = [store.create_run_folder(tmp_path, "a.py::t", NOW + timedelta(days=i)) for i in range(4)]
    b = store.create_run_folder(tmp_path, "b.py::t", NOW)
    for number, folder in enumerate([*a, b]):
        folder.write_run(info(NOW + timedelta(days=number)))
    a[1].publish()
    a[0].write_run(info(NOW, store.RUNNING))
    later = NOW + timedelta(days=30)
    assert store.find_collectable(tmp_path, keep=1, older_than=None, now=later) == [a[2].path]
    assert store.find_collectable(tmp_path, keep=1, older_than=timedelta(days=29), now=later) == []


@pytest.mark.parametrize("field", ["folder", "run.json"])
def test_a_run_of_the_future_is_named_and_does_not_count_as_the_newest(tmp_path: Path, field: str) -> None:
    wrong = datetime(2030, 1, 1, tzinfo=UTC)
    older = store.create_run_folder(tmp_path, "a.py::t", NOW - timedelta(days=1))
    newest = store.create_run_folder(tmp_path, "a.py::t", NOW + timedelta(hours=23))
    future = store.create_run_folder(tmp_path, "a.py::t", wrong if field == "folder" else NOW + timedelta(hours=24))
    older.write_run(info(NOW - timedelta(days=1)))
    newest.write_run(info(NOW + timedelta(hours=23)))
    future.write_run(info(wrong if field == "run.json" else NOW))
    assert store.find_collectable(tmp_path, keep=1, older_than=None, now=NOW) == [older.path]
    assert store.find_collectable(tmp_path, keep=0, older_than=None, now=NOW) == [older.path, newest.path]
    remedy = "delete this folder by hand, or set the clock of this machine if that one is wrong"
    reason = f"it starts in the future (2030-01-01T00:00:00+00:00): {remedy}"
    assert store.list_kept_by_gc(tmp_path, NOW) == [(future.path, reason)]


@pytest.mark.parametrize("field", ["folder", "run.json"])
def test_a_run_of_a_clock_that_was_never_set_is_named_and_not_taken_for_old(tmp_path: Path, field: str) -> None:
    wrong = datetime(1972, 1, 1, tzinfo=UTC)
    run = store.create_run_folder(tmp_path, "a.py::t", wrong if field == "folder" else NOW)
    newest = store.create_run_folder(tmp_path, "a.py::t", NOW)
    run.write_run(info(wrong if field == "run.json" else NOW))
    newest.write_run(info(NOW))
    month = timedelta(days=30)
    assert store.find_collectable(tmp_path, keep=0, older_than=month, now=NOW + timedelta(days=1)) == []
    assert store.find_collectable(tmp_path, keep=0, older_than=month, now=NOW + 2 * month) == [newest.path]
    remedy = "delete this folder by hand, or set the clock of this machine if that one is wrong"
    reason = f"it starts at 1972-01-01T00:00:00+00:00, so its clock was wrong: {remedy}"
    assert store.list_kept_by_gc(tmp_path, NOW) == [(run.path, reason)]


def test_gc_keeps_and_names_a_run_with_files_of_the_user(tmp_path: Path) -> None:
    run, other = (store.create_run_folder(tmp_path, "a.py::t", NOW + timedelta(days=day)) for day in range(2))
    for one in (run, other):
        one.write_run(info(NOW))
        for name in ("report.html", "sensitivity.json", "logs/mine.log", f".run.json.{'0' * 16}"):
            (one.path / name).touch()
    (run.path / "notes.md").write_text("mine")
    assert store.find_collectable(tmp_path, keep=0, older_than=None, now=NOW) == [other.path]
    assert store.list_kept_by_gc(tmp_path, NOW) == [(run.path, f"{store.OTHERS}: notes.md")]
    store.delete_runs([run.path, other.path])
    assert (run.path / "notes.md").read_text() == "mine"
    assert not other.path.exists()


def fail_to_delete(folder: Path) -> None:
    """Deletes one file of a folder, and is interrupted."""
    (folder / "verdict.json").unlink()
    raise KeyboardInterrupt("SIGTERM")


def test_a_deletion_that_is_interrupted_leaves_no_part_of_a_run_and_the_next_gc_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, kept = (store.create_run_folder(tmp_path, "a.py::t", NOW + timedelta(days=day)) for day in range(2))
    for one in (run, kept):
        one.write_run(info(NOW))
        one.write("verdict.json", b"{}")
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", fail_to_delete)
        assert main(["gc", str(tmp_path), "--keep=1", "--yes"]) == 130
    rest = next(path for path in run.path.parent.iterdir() if path.name.startswith(store.DELETED_PREFIX))
    assert f"{rest} is the rest of a deleted run" in capsys.readouterr().err
    assert store.list_runs(tmp_path) == store.list_runs_below(kept.path.parent) == [kept.path]
    assert not store.looks_like_run(rest)
    assert store.list_kept_by_gc(tmp_path, NOW) == []
    assert main(["gc", str(tmp_path), "--keep=0", "--dry-run"]) == 0
    assert f"rest of a deleted run: {rest}" in capsys.readouterr().err
    assert rest.exists()
    assert main(["gc", str(tmp_path), "--keep=1"]) == 0, "the user has agreed to this deletion before"
    assert [path.name for path in run.path.parent.iterdir()] == [kept.path.name]


def test_only_what_gc_has_named_is_a_rest(tmp_path: Path) -> None:
    run, theirs = store.create_run_folder(tmp_path / "store", "a.py::t", NOW), tmp_path / "theirs"
    theirs.mkdir()
    linked = run.path.with_name(f"{store.DELETED_PREFIX}{'0' * 16}-x")
    linked.symlink_to(theirs)
    others = [run.path.with_name(name) for name in (store.DELETED_PREFIX, f"{store.DELETED_PREFIX}x", ".deleted-x")]
    for other in others:
        other.mkdir()
    store.finish_deletions(tmp_path / "store")
    assert all(path.exists() for path in (theirs, linked, run.path, *others))


def test_a_run_whose_owner_died_is_not_going_on(tmp_path: Path) -> None:
    folder = store.create_run_folder(tmp_path, "a.py::t", NOW)
    newer = store.create_run_folder(tmp_path, "a.py::t", NOW + timedelta(days=1))
    dead = str(dataclasses.replace(current_owner(), started=1))
    folder.write_run(info(NOW, store.RUNNING, dead))
    newer.write_run(info(NOW + timedelta(days=1)))
    assert store.find_collectable(tmp_path, keep=1, older_than=None, now=NOW) == [folder.path]


NOT_OURS = {
    "no run.json": None,
    "no JSON": "{",
    "not UTF-8": '{"test": "caf\udce9"}',
    "another tool's": '{"id": 7, "status": "done"}',
    "no time": '{"test":"t","status":"finished","started":"then","owner":"o","seed":1,"cluster":"sim",'
    '"nemesis":"none","command":"pytest"}',
}


@pytest.mark.parametrize("content", NOT_OURS.values(), ids=NOT_OURS)
def test_a_folder_that_is_no_run_of_ours_is_never_deleted(tmp_path: Path, content: str | None) -> None:
    theirs = tmp_path / "thesis" / "chapters"
    theirs.mkdir(parents=True)
    if content is not None:
        (theirs / "run.json").write_text(content, errors="surrogateescape")
    assert store.find_collectable(tmp_path, keep=0, older_than=None, now=NOW) == []
    assert store.find_collectable(tmp_path, keep=0, older_than=timedelta(0), now=NOW + timedelta(days=9)) == []
    kept = (tmp_path / "thesis", f"no run.json of ours is at {tmp_path / 'thesis'}")
    assert store.list_kept_by_gc(tmp_path, NOW) == [kept]
    store.delete_runs([theirs])
    assert theirs.is_dir()


def test_a_foreign_folder_among_runs_is_named_and_does_not_count_as_a_newer_run(tmp_path: Path) -> None:
    run = store.create_run_folder(tmp_path, "a.py::t", NOW)
    run.write_run(info(NOW))
    notes = run.path.parent / "zz-notes"
    notes.mkdir()
    assert store.find_collectable(tmp_path, keep=1, older_than=None, now=NOW) == []
    assert store.find_collectable(tmp_path, keep=0, older_than=None, now=NOW) == [run.path]
    assert store.list_kept_by_gc(tmp_path, NOW) == [(notes, f"no run.json of ours is at {notes}")]


def test_a_run_of_a_test_is_not_taken_for_a_test_of_runs(tmp_path: Path) -> None:
    """``gc store/TEST`` would otherwise have deleted ``history/`` of every run."""
    run = store.create_run_folder(tmp_path, "a.py::t", NOW)
    run.write_run(info(NOW))
    assert store.find_collectable(run.path.parent, keep=0, older_than=None, now=NOW) == []


def test_a_run_json_that_is_a_folder_or_a_pipe_makes_no_run(tmp_path: Path) -> None:
    folder = tmp_path / "t" / "r"
    (folder / "run.json").mkdir(parents=True)
    assert not store.is_own_run(folder)
    assert store.read_run(folder) is None
    (folder / "run.json").rmdir()
    os.mkfifo(folder / "run.json")
    assert not store.is_own_run(folder)


def test_a_run_that_began_to_go_on_after_it_was_listed_is_kept(tmp_path: Path) -> None:
    run = store.create_run_folder(tmp_path, "a.py::t", NOW)
    run.write_run(info(NOW))
    listed = store.find_collectable(tmp_path, keep=0, older_than=None, now=NOW)
    run.write_run(info(NOW, store.RUNNING))
    store.delete_runs(listed)
    assert run.path.exists()


def test_a_path_that_is_no_run_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        store.resolve_history(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="history/ops/"):
        store.resolve_history(tmp_path)


ELSEWHERE = f"{os.getpid()}.1.another-boot.1"


def test_a_run_of_another_machine_counts_as_active_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = msgspec.structs.replace(info(NOW, store.RUNNING, ELSEWHERE), machine="theirs")
    monkeypatch.setattr(owner, "read_machine_id", lambda: "ours")
    assert theirs.is_active()
    assert not msgspec.structs.replace(theirs, machine="ours").is_active(), "this machine has booted since"
    assert not msgspec.structs.replace(theirs, status=store.FINISHED).is_active()
    assert msgspec.structs.replace(theirs, owner="ci-7").is_active(), "its machine can be judged without its process"


@pytest.mark.parametrize(("here", "there"), [("ours", ""), ("", "theirs"), ("", "")])
def test_a_run_of_another_boot_counts_as_active_if_a_machine_has_no_id(
    here: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers often have no ``/etc/machine-id``, and their store may be shared with another machine."""
    monkeypatch.setattr(owner, "read_machine_id", lambda: here)
    theirs = msgspec.structs.replace(info(NOW, store.RUNNING, ELSEWHERE), machine=there)
    assert theirs.is_active()
    assert not msgspec.structs.replace(theirs, status=store.ERROR).is_active()
    ended = dataclasses.replace(current_owner(), started=1)
    assert not msgspec.structs.replace(theirs, owner=str(ended)).is_active(), "a boot is of one machine"
    assert not msgspec.structs.replace(theirs, owner="ci-7").is_active()


def test_a_run_that_its_session_still_judges_is_kept(tmp_path: Path) -> None:
    """Its status is that of the end, so that a crash of the judgement loses nothing."""
    judging = msgspec.structs.replace(info(NOW), in_use=True)
    dead = msgspec.structs.replace(judging, owner=str(dataclasses.replace(current_owner(), started=1)))
    runs = []
    for one in (judging, dead, msgspec.structs.replace(judging, status=store.INTERRUPTED), judging):
        runs.append(store.create_run_folder(tmp_path, "a.py::t", NOW))
        runs[-1].write_run(one)
    (runs[3].path / store.CARRIED).touch()
    (runs[3].path / "history").rmdir()
    collectable = store.find_collectable(tmp_path, keep=0, older_than=None, now=NOW)
    assert collectable == [runs[1].path, runs[3].path], "a dead session needs nothing, nor does a copy"
    store.delete_runs([run.path for run in runs])
    assert [run.path.exists() for run in runs] == [True, False, True, False]


def test_gc_keeps_and_names_a_run_that_may_be_judged_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(owner, "read_machine_id", lambda: "ours")
    run = store.create_run_folder(tmp_path, "a.py::t", NOW)
    theirs = RunInfo(test="t", status=store.FINISHED, started=NOW.isoformat(), owner=ELSEWHERE, machine="theirs",
                     in_use=True, seed=1, cluster="sim", nemesis="none", command="pytest t")  # fmt: skip
    run.write_run(theirs)
    assert main(["gc", str(tmp_path), "--keep=0", "--yes"]) == 0
    assert f"kept: {run.path}, because it may be judged, in process" in capsys.readouterr().err
    run.write_run(msgspec.structs.replace(theirs, in_use=False))
    assert main(["gc", str(tmp_path), "--keep=0", "--yes"]) == 0
    assert not run.path.exists()


def test_gc_keeps_and_names_a_run_that_may_go_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(owner, "read_machine_id", lambda: "ours")
    runs = [store.create_run_folder(tmp_path, "a.py::t", NOW) for _ in range(3)]
    for run, machine in zip(runs, ("", "{the{irs}", "ours"), strict=True):
        run.write_run(msgspec.structs.replace(info(NOW, store.RUNNING, ELSEWHERE), machine=machine))
    assert main(["gc", str(tmp_path), "--keep=0", "--yes"]) == 0
    assert [run.path.exists() for run in runs] == [True, True, False]
    remedy = "if it does not, delete this folder by hand"
    process = f"it may go on, in process {os.getpid()} of"
    assert capsys.readouterr().err.splitlines()[:2] == [
        f"assay: kept: {runs[0].path}, because {process} an unknown machine; {remedy}",
        f"assay: kept: {runs[1].path}, because {process} machine {{the{{irs}}; {remedy}",
    ]
