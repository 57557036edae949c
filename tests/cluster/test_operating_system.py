"""The look-ups give the same answers whichever system is asked, and say when there is none."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from assay.cluster import operating_system, owner

ON_LINUX_ALONE: Final = {"proc": {}, "no proc": {"PROC": Path("/nowhere")}} if operating_system.ON_LINUX else {}
FORMS: Final = {
    **ON_LINUX_ALONE,
    "psutil": {"ON_LINUX": False},
    "no psutil": {"ON_LINUX": False, "PROC": Path("/nowhere"), "_load_psutil": lambda: None},
}
"""By form, the replaced attributes of the module. On Linux, psutil reads the same ``/proc``."""
BLIND: Final = ("no proc", "no psutil")
MB: Final = 2**20


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "psutil":
        pytest.importorskip("psutil")
    for name, value in FORMS[request.param].items():
        monkeypatch.setattr(operating_system, name, value)
    return str(request.param)


def test_an_owner_lives_as_long_as_its_process_which_may_be_a_zombie_if_the_system_says_nothing(form: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        theirs = owner.find_owner(child.pid)
        assert theirs is not None
        assert theirs.alive()
        assert owner.parse_owner(str(theirs)) == theirs
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert theirs.alive() is (form in BLIND)
        assert (owner.find_owner(child.pid) is None) is (form not in BLIND)
    assert not theirs.alive()
    assert owner.find_owner(child.pid) is None


def test_another_process_with_the_same_id_is_told_apart_by_its_start_if_that_is_known(form: str) -> None:
    mine = owner.current_owner()
    assert mine.alive()
    assert dataclasses.replace(mine, started=mine.started + 1).alive() is (form in BLIND)
    unknown = dataclasses.replace(mine, started=operating_system.UNKNOWN_START)
    assert unknown.alive(), "what is unknown counts as alive"


def test_an_owner_whose_boot_is_unknown_counts_as_alive(form: str) -> None:
    mine = owner.current_owner()
    assert dataclasses.replace(mine, boot=operating_system.UNKNOWN_BOOT + "of another host").alive()
    other = dataclasses.replace(mine, boot="00000000-0000-0000-0000-000000000000")
    assert other.alive() is mine.boot.startswith(operating_system.UNKNOWN_BOOT)


def test_what_a_process_learns_about_itself(form: str) -> None:
    assert (operating_system.find_obstacle() is None) is (form not in BLIND)
    assert operating_system.read_own_memory() > 10 * MB
    available = operating_system.read_available_memory()
    assert (available is None) if form in BLIND else (available is not None and available > 10 * MB)
    age = operating_system.measure_age()
    assert age == 0 if form in BLIND else age > 0


def test_the_threads_of_a_process_are_counted(form: str) -> None:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # about threads that are not forked
        child = os.fork()  # threads of other tests may end at any time, and do not exist in the child
    if child == 0:
        counted: list[int] = []
        try:
            counted.append(operating_system.count_threads())
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            counted.append(operating_system.count_threads())
        finally:
            os._exit(0 if counted == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_open_files_of_a_process_are_listed(form: str, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        status = os.fstat(file.fileno())
        assert any(os.path.samestat(status, one) for one in operating_system.list_open_files(os.getpid())) is (
            form not in BLIND
        )


def test_a_folder_without_a_mount_point_has_none_and_the_root_has_one(form: str, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert not operating_system.has_mount_point(tmp_path)
    assert operating_system.has_mount_point(Path("/"))


@pytest.mark.parametrize("clocks", operating_system.SLEEP_CLOCKS.values(), ids=operating_system.SLEEP_CLOCKS)
def test_sleep_is_what_one_clock_counts_and_the_other_does_not(
    clocks: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, awake = clocks
    shown: dict[object, float] = {both: 100.0, awake: 90.0}
    clock: Callable[[object], float] = shown.__getitem__
    monkeypatch.setattr(operating_system, "SLEEP_CLOCKS", {sys.platform: clocks})
    for name in clocks:
        monkeypatch.setattr(time, name, name, raising=False)
    monkeypatch.setattr(time, "clock_gettime", clock)
    before = operating_system.measure_sleep()
    shown[both] += 7.0  # asleep
    shown[both] += 2.0
    shown[awake] += 2.0
    assert operating_system.measure_sleep() - before == 7.0


def test_a_system_without_such_clocks_has_never_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating_system, "SLEEP_CLOCKS", {})
    assert operating_system.measure_sleep() == 0.0


def test_the_id_of_a_mac_is_read_from_what_ioreg_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = (
        '+-o J314sAP  <class IOPlatformExpertDevice>\n  {\n    "IOPlatformUUID" = "0A1B-2C"\n    "model" = <"x">\n  }'
    )
    monkeypatch.setattr(operating_system, "ON_LINUX", False)
    monkeypatch.setattr(operating_system, "_run", lambda *command: printed if command[0] == "ioreg" else "")
    assert operating_system.read_hardware_id() == "0A1B-2C"
    monkeypatch.setattr(operating_system, "_run", lambda *command: "")
    assert operating_system.read_hardware_id() == ""


def test_a_boot_that_the_system_names_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating_system, "ON_LINUX", False)
    monkeypatch.setattr(operating_system, "_run", lambda *command: "5A-6B" if command[0] == "sysctl" else "")
    assert operating_system.read_boot_id() == "5A-6B"


ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
br-1	001012C6	00000000	0001	0	0	0	00FFFFFF	0	0	0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the numbers are those of a little-endian machine")
def test_the_networks_of_this_machine_are_those_of_its_routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "route").write_text(ROUTES)
    monkeypatch.setattr(operating_system, "ON_LINUX", True)
    monkeypatch.setattr(operating_system, "PROC", tmp_path)
    assert {str(found) for found in operating_system.list_local_networks()} == {"172.17.0.0/16", "198.18.16.0/24"}
    (tmp_path / "net" / "route").unlink()
    assert operating_system.list_local_networks() == set()


def test_elsewhere_they_are_those_of_its_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def interface(address: str, mask: str | None, family: int = socket.AF_INET) -> SimpleNamespace:
        return SimpleNamespace(family=family, address=address, netmask=mask)

    found = {
        "lo0": [interface("127.0.0.1", "255.0.0.0")],
        "utun3": [interface("198.18.0.1", None)],
        "bridge100": [interface("192.168.64.1", "255.255.255.0"), interface("fe80::1", "ffff::", socket.AF_INET6)],
    }
    monkeypatch.setattr(operating_system, "ON_LINUX", False)
    monkeypatch.setattr(operating_system, "_load_psutil", lambda: SimpleNamespace(net_if_addrs=lambda: found))
    assert {str(each) for each in operating_system.list_local_networks()} == {"127.0.0.0/8", "192.168.64.0/24"}
