"""Packing a data set changes nothing that counts, wherever it is interrupted, and gives way to what is added later."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster import file_lock
from assay.harness.cli.main import main
from assay.harness.nightly import dataset
from assay.harness.nightly.dataset import (
    LOCK,
    PACKED,
    DataSetError,
    add_stores,
    list_parts,
    list_unpacked_runs,
    lock_dataset,
    pack,
    read_runs,
    store_run,
)
from assay.harness.nightly.dataset_schema import SCHEMAS, RunRow

from helpers.examples import some_of
from helpers.night_runs import random_run, run_folder

FIRST = date(2026, 11, 20)
RUNS = [random_run(random.Random(number)) for number in range(6)]

Counted = dict[str, tuple[str, RunRow]]


def counted(place: Path) -> Counted:
    """Each run with its night, as readers take it."""
    own, found = set(list_unpacked_runs(place)), {}
    for part in list_parts(place):
        for row in pq.ParquetFile(part).read().to_pylist():
            if part.name != PACKED or row["run"] not in own:
                assert row["run"] not in found, "it is there twice"
                found[row["run"]] = (part.parent.name.removeprefix("night="), msgspec.convert(row, RunRow))
    return found


class Died(Exception):
    """In the middle of packing."""


def pack_until(place: Path, step: int) -> None:
    """Dies before its ``step``-th change of the disk."""
    left = [step]

    def dying(real: object) -> object:
        def act(*args: object, **more: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Died
            return real(*args, **more)  # type: ignore[operator]

        return act

    with patch.object(os, "replace", dying(os.replace)), patch.object(Path, "unlink", dying(Path.unlink)):
        pack(place)


KEPT = st.tuples(st.just("keep"), st.integers(0, 5), st.integers(0, 2))
STEPS = st.lists(st.one_of(KEPT, KEPT, st.tuples(st.just("pack"), st.integers(0, 12), st.just(0))), max_size=14)


@settings(max_examples=some_of(50), deadline=None)
@given(STEPS)
def test_runs_added_moved_and_packed_in_any_order_are_as_they_were_last_added(
    steps: list[tuple[str, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place, model, version = Path(folder), dict[str, tuple[str, RunRow]](), 0
        for what, number, day in [("keep", 0, 0), *steps]:
            if what == "keep":
                version += 1
                run, night = msgspec.structs.replace(RUNS[number], seed=version), FIRST + timedelta(days=day)
                store_run(place, night, run)
                model[run.run] = (night.isoformat(), run)
            else:
                with suppress(Died):
                    pack_until(place, number)
            assert counted(place) == model
        pack(place)
        assert counted(place) == model
        assert {part.name for part in list_parts(place)} == {PACKED}


def test_adding_many_packs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "MAX_UNPACKED", 2)
    for hours in range(3):
        run_folder(tmp_path / "store", datetime(2026, 11, 21, hours, tzinfo=UTC))
    add_stores([tmp_path / "store"], tmp_path / "nights", None, lambda run: None)
    (part,) = list_parts(tmp_path / "nights")
    assert (part.name, len(counted(tmp_path / "nights"))) == (PACKED, 3)


def test_parts_of_all_times_are_packed_together(tmp_path: Path) -> None:
    for number, schema in enumerate(SCHEMAS):
        store_run(tmp_path, FIRST, RUNS[number])
        part = tmp_path / f"night={FIRST}" / f"{RUNS[number].run}.parquet"
        (row,) = pq.ParquetFile(part).read().to_pylist()
        if "bit" in str(schema):
            row["faults"] = [{**fault, "bit": fault["took_effect"]} for fault in row["faults"]]
        pq.write_table(pa.Table.from_pylist([row], schema=schema), part)
    before = {run: [fault.took_effect for fault in one.faults] for run, (_, one) in (
        (run.run, ("", run)) for run in RUNS[: len(SCHEMAS)])}  # fmt: skip
    assert main(["nights", "pack", str(tmp_path)]) == 0
    assert {run: [fault.took_effect for fault in one.faults] for run, (_, one) in counted(tmp_path).items()} == before


@pytest.mark.parametrize("name", ["*.parquet", "[a-z]*.parquet", "?acked.parquet"])
def test_a_file_that_is_named_like_a_pattern_deletes_no_other(tmp_path: Path, name: str) -> None:
    for run in RUNS[:3]:
        store_run(tmp_path, FIRST, run)
    part = list_parts(tmp_path)[0]
    part.rename(part.with_name(name))
    pack(tmp_path)
    assert counted(tmp_path) == {run.run: (str(FIRST), run) for run in RUNS[:3]}


@pytest.mark.parametrize("name", ["copy of it.parquet", "packed (1).parquet"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_copy_of_a_file_is_neither_counted_nor_removed(tmp_path: Path, name: str, packed: bool) -> None:
    for run in RUNS[:3]:
        store_run(tmp_path, FIRST, run)
    if packed:
        pack(tmp_path)
    part = list_parts(tmp_path)[0]
    copy = part.with_name(name)
    copy.write_bytes(part.read_bytes())
    before = {path: path.read_bytes() for path in list_parts(tmp_path)}
    for use in (pack, read_runs):
        with pytest.raises(DataSetError, match="would count twice: move the copy out of the data set"):
            use(tmp_path)
    assert {path: path.read_bytes() for path in list_parts(tmp_path)} == before
    copy.unlink()
    pack(tmp_path)
    assert counted(tmp_path) == {run.run: (str(FIRST), run) for run in RUNS[:3]}


def test_adding_a_run_moves_neither_a_copy_of_its_file_nor_a_file_behind_a_link(tmp_path: Path) -> None:
    run_folder(tmp_path / "store", datetime(2026, 11, 21, 2, tzinfo=UTC))
    data, linked = tmp_path / "data", tmp_path / "linked"
    add_stores([tmp_path / "store"], data, None, lambda run: None)
    part = list_parts(data)[0]
    linked.mkdir()
    (linked / part.parent.name).symlink_to(part.parent)
    with pytest.raises(DataSetError, match="is a symbolic link to files of runs"):
        add_stores([tmp_path / "store"], linked, FIRST, lambda run: None)
    copy = part.parent.with_name(f"{part.parent.name}.bak") / part.name
    copy.parent.mkdir()
    copy.write_bytes(b"old")
    with pytest.raises(DataSetError, match="move the copy out of the data set"):
        add_stores([tmp_path / "store"], data, None, lambda run: None)
    assert part.is_file()
    assert copy.read_bytes() == b"old"


def test_a_damaged_part_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    store_run(tmp_path, FIRST, RUNS[0])
    store_run(tmp_path, FIRST, RUNS[1])
    part = list_parts(tmp_path)[0]
    whole = part.read_bytes()
    footer = 8 + int.from_bytes(whole[-8:-4], "little")
    part.write_bytes(whole[:4] + bytes(len(whole) - 4 - footer) + whole[-footer:])
    with pytest.raises(DataSetError, match=f"{part.name}: its content is damaged"):
        pack(tmp_path)
    assert len(list_parts(tmp_path)) == 2


def test_who_waits_says_for_whom_and_gives_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(file_lock, "ANNOUNCE_AFTER", 0.0)
    monkeypatch.setattr(dataset, "DATA_SET_LOCK", 0.4)
    with lock_dataset(tmp_path, exclusive=True):
        for exclusive in (True, False):
            with (
                pytest.raises(
                    DataSetError, match=rf"\.lock is held by process {os.getpid()}, and \d+ s were not enough"
                ),
                lock_dataset(tmp_path, exclusive=exclusive),
            ):
                raise AssertionError("two have it")
            assert capsys.readouterr().err.startswith(f"assay: waiting for process {os.getpid()}, which holds")
    with lock_dataset(tmp_path, exclusive=True):
        pass
    assert capsys.readouterr().err == ""


def test_who_packs_waits_for_who_reads(tmp_path: Path) -> None:
    store_run(tmp_path, FIRST, RUNS[0])
    with lock_dataset(tmp_path, exclusive=False), lock_dataset(tmp_path, exclusive=False):
        command = [sys.executable, "-m", "assay.harness.cli.main", "nights", "pack", str(tmp_path)]
        packing = subprocess.Popen(command, stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            packing.wait(2.0)
        assert list_parts(tmp_path)[0].name != PACKED
    assert packing.communicate(timeout=60)[0].startswith(b"1 files")
    assert list_parts(tmp_path)[0].name == PACKED
    assert (tmp_path / LOCK).exists()
