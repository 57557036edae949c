"""An owner is the same process, not one that has got its number."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.cluster import operating_system, owner
from assay.cluster.operating_system import UNKNOWN_START, read_start_time


def test_text_and_owner_are_inverse() -> None:
    mine = owner.current_owner()
    assert owner.parse_owner(str(mine)) == mine
    assert mine.pid == os.getpid()


def test_the_running_process_is_alive() -> None:
    assert owner.current_owner().alive()


def test_a_process_that_ended_is_not_alive() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        theirs = dataclasses.replace(owner.current_owner(), pid=child.pid, started=read_start_time(child.pid) or 0)
        assert theirs.alive()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not theirs.alive(), "a zombie owns nothing"
    assert not theirs.alive()


def test_a_reused_pid_is_another_owner() -> None:
    mine = owner.current_owner()
    assert not dataclasses.replace(mine, started=mine.started - 1).alive()


def test_an_owner_of_another_boot_is_dead() -> None:
    mine = owner.current_owner()
    other = dataclasses.replace(mine, boot="00000000-0000-0000-0000-000000000000")
    assert not other.alive()
    assert not other.is_of_this_boot()


def test_an_owner_of_another_pid_namespace_cannot_be_judged_and_counts_as_alive() -> None:
    assert dataclasses.replace(owner.current_owner(), namespace="1", started=1).alive()


@pytest.mark.parametrize("seconds", [5000, -40])
def test_an_owner_of_another_time_namespace_is_alive(seconds: int) -> None:
    """``/proc`` shows shifted start times there. A session there must not remove the clusters of live sessions."""
    unshare = ["unshare", "--time", f"--boottime={seconds}", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this machine cannot make a time namespace")
    code = f"""if True:
        from assay.cluster import owner
        from assay.cluster.operating_system import measure_age
        mine = owner.parse_owner({str(owner.current_owner())!r})
        print(mine.alive(), owner.current_owner().alive(), measure_age() < 60)"""
    done = subprocess.run([*unshare, sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3


def test_an_offset_of_a_part_of_a_tick_hides_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = (operating_system.PROC / "self/stat").read_text()
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / str(os.getpid()) / "stat").write_text(stat)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/timens_offsets").write_text("monotonic 0 5\nboottime 1 5\n")
    monkeypatch.setattr(operating_system, "PROC", tmp_path)
    assert read_start_time(os.getpid()) == UNKNOWN_START


@pytest.mark.parametrize("text", ["", "1.2.3", "x.2.boot.ns", "1.y.boot.ns", "1.2.3.4.5"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the owner of a run"):
        owner.parse_owner(text)


def test_a_machines_label_is_stable_and_hides_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(owner, "MACHINE", tmp_path / "here")
    label = owner.find_machine_label(tmp_path / "state")
    assert label == owner.find_machine_label(tmp_path / "another")
    assert "0123456789" not in label
    assert not (tmp_path / "state").exists()


def test_a_machine_without_an_id_keeps_a_random_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "read_machine_id", lambda: "")
    with ThreadPoolExecutor(8) as executor:
        labels = set(executor.map(owner.find_machine_label, [tmp_path / "state"] * 32))
    assert len(labels) == 1, "sessions that start together agree"
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["machine-id"]
    assert owner.find_machine_label(tmp_path / "another") not in labels


def test_an_image_of_a_machine_that_never_booted_has_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "id").write_text("uninitialized\n")
    monkeypatch.setattr(owner, "MACHINE", tmp_path / "id")
    assert owner.read_machine_id() == ""


def test_a_copy_of_a_machine_is_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions recorded the id alone."""
    (tmp_path / "id").write_text("0123\n")
    monkeypatch.setattr(owner, "MACHINE", tmp_path / "id")
    monkeypatch.setattr(owner, "ON_LINUX", True)
    monkeypatch.setattr(owner.platform, "node", lambda: "here")
    other_boot = dataclasses.replace(owner.current_owner(), boot="another")
    machines = {"0123@here": False, "0123@copy": True, "4567@here": True, "0123": False, "4567": True, "": True}
    assert {machine: other_boot.may_be_elsewhere(machine) for machine in machines} == machines
    of_this_boot = owner.current_owner()
    assert {machine: of_this_boot.may_be_elsewhere(machine) for machine in machines} == machines | {"": False}


def test_a_container_on_this_machine_is_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has this boot, but its process cannot be seen from here."""
    (tmp_path / "id").write_text("0123\n")
    monkeypatch.setattr(owner, "MACHINE", tmp_path / "id")
    unseen = dataclasses.replace(owner.current_owner(), pid=2**22 + 1)
    assert not unseen.alive()
    assert unseen.may_be_elsewhere("4567@container")
    assert not unseen.may_be_elsewhere(owner.read_machine())
