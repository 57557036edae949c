"""A store whose disk is full: pytest, run.json and the report say the same, in one line, and no verdict is invented."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from assay.harness.core.files import write_atomically
from assay.harness.run import store
from assay.harness.run.full_disk import DiskReserve, FullDiskError, is_full, translate_full_disk

from helpers.small_disk import small_disk

PLAIN = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-q")
FAST = (*PLAIN, "--cluster=sim", "--nodes=1", "--time-limit=5", "--rate=100", "--seed=4")


@pytest.mark.parametrize("size", ["140k", "100k", "40k"])
def test_a_history_that_finds_no_room_is_one_line_and_no_verdict(
    toy_project: pytest.Pytester, tmp_path: Path, size: str
) -> None:
    with small_disk(tmp_path / "disk", size) as disk:
        result = toy_project.runpytest_inprocess(*FAST, f"--store={disk / 'store'}")
        result.assert_outcomes(failed=1)
        text = result.stdout.str()
        # pytest repeats the message in its last lines, whole where no one watches ($CI): those are its own.
        failures, _, _ = text.partition("short test summary info")
        assert failures.count("the run was ended: No space left on device: the disk of ") == 1
        assert "Traceback" not in text
        assert "Error:" not in text
        (run,) = store.list_runs(disk / "store")
        info = store.read_run(run)
        assert info is not None
        assert (info.status, info.verdict) == (store.ERROR, None)
        assert "`assay gc` removes old runs; --store=FOLDER names another place" in str(info.problem)
        assert not (run / "verdict.json").exists()


def test_without_any_room_the_run_does_not_begin(toy_project: pytest.Pytester, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4k") as disk:
        result = toy_project.runpytest_inprocess(*FAST, f"--store={disk / 'store'}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["No space left on device: the disk of *"])
    assert "Traceback" not in result.stdout.str()


def test_a_disk_without_a_free_byte_is_one_line(toy_project: pytest.Pytester, tmp_path: Path) -> None:
    """There is room for folders, but not even for the record that the run was ended."""
    with small_disk(tmp_path / "disk", "4k") as disk:
        (disk / "filling").write_bytes(bytes(4096))
        result = toy_project.runpytest_inprocess(*FAST, f"--store={disk / 'store'}")
        (run,) = store.list_runs(disk / "store")
        assert not (run / "run.json").exists()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["No space left on device: the disk of *"])
    assert not [line for line in result.outlines if "OSError" in line or "attempt.py" in line]


def test_a_report_that_finds_no_room_leaves_the_verdict(toy_project: pytest.Pytester, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "400k") as disk:
        toy_project.runpytest_inprocess(*FAST, f"--store={disk / 'store'}", "--reports=all").assert_outcomes(passed=1)
        (run,) = store.list_runs(disk / "store")
        info = store.read_run(run)
        assert info is not None
        assert (info.status, info.verdict) == (store.FINISHED, "pass")
        assert str(info.problem).startswith("not written, OSError: [Errno 28]")
        assert not [path.name for path in run.iterdir() if path.name.startswith((".", "report"))]


def test_an_error_is_of_a_full_disk_whatever_was_made_of_it() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    try:
        try:
            raise full
        except OSError as error:
            raise ValueError("earlier") from error
    except ValueError as error:
        made = error
    assert is_full(full)
    assert is_full(made)
    assert not is_full(OSError(errno.EIO, "bad sector"))
    assert not is_full(None)


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="bad sector"), translate_full_disk(tmp_path):
        raise OSError(errno.EIO, "bad sector")
    with pytest.raises(FullDiskError, match="No space left on device: the disk of"), translate_full_disk(tmp_path):
        raise OSError(errno.EDQUOT, "quota")


def test_a_reserve_is_given_up_in_pieces_or_whole(tmp_path: Path) -> None:
    reserve = DiskReserve(tmp_path / "reserve")
    assert not reserve.release()
    reserve.allocate(10)
    assert reserve.release(4)
    assert reserve.path.stat().st_size == 6
    assert reserve.release()
    assert not reserve.path.exists()


def test_what_cannot_be_written_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16k") as disk:
        write_atomically(disk / "run.json", b"before")
        with pytest.raises(OSError, match="No space left"):
            write_atomically(disk / "run.json", bytes(20_000))
        assert [path.name for path in disk.iterdir()] == ["run.json"]
        assert (disk / "run.json").read_bytes() == b"before"


def test_where_there_is_no_room_for_a_second_file_the_first_is_written_over(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8k") as disk:
        folder = store.RunFolder(disk, disk)
        folder.write("run.json", b"a longer text than the next")
        (disk / "filling").write_bytes(bytes(4096))
        folder.write("run.json", b"shorter")
        assert (disk / "run.json").read_bytes() == b"shorter"
