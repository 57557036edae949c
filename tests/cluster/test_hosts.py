"""Hosts of a user's own: what the inventory says of them, and what is done to them, as text."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import paramiko
import pytest

from assay.cluster import doctor, journal
from assay.cluster.hosts import cluster, host_command, inventory, upkeep
from assay.cluster.hosts.attached import AttachedNode
from assay.cluster.hosts.cluster import HostCluster
from assay.cluster.hosts.inventory import InventoryError
from assay.cluster.node import Node, NodeError, ProcessState
from assay.cluster.ssh.connection import CommandTimeoutError, RefusedError, UnansweredError
from assay.cluster.ssh.ssh_address import SshAddress, parse_host_key

from helpers.echo_system import Echo
from helpers.ssh_machine import machine

UNDO_SECONDS = host_command.UNDO_SECONDS

KEY = paramiko.ECDSAKey.generate()
HOST_KEY = f"{KEY.get_name()} {KEY.get_base64()}"


def read(folder: Path, text: str) -> list[inventory.InventoryHost]:
    path = folder / "hosts.toml"
    path.write_text(text)
    return inventory.read_inventory(path)


def test_what_the_file_says_once_holds_for_all_hosts_that_say_nothing_else(tmp_path: Path) -> None:
    one, other = read(
        tmp_path,
        f"""
        user = "ann"
        key = "/keys/ann"
        sudo = true
        [[host]]
        address = "10.0.0.11"
        host_key = "{HOST_KEY}"
        [[host]]
        address = "10.0.0.12"
        role = "sentinel"
        user = "bob"
        port = 2222
        key = "/keys/bob"
        host_key = "{HOST_KEY}"
        jump = {{ address = "bastion", host_key = "{HOST_KEY}" }}
        """,
    )
    assert one == inventory.InventoryHost("", SshAddress("10.0.0.11", "ann", "/keys/ann", HOST_KEY, sudo=True))
    jump = SshAddress("bastion", "ann", "/keys/ann", HOST_KEY, sudo=True)
    assert other == inventory.InventoryHost(
        "sentinel", SshAddress("10.0.0.12", "bob", "/keys/bob", HOST_KEY, 2222, True, jump)
    )


@pytest.mark.parametrize(("port", "name"), [(22, "10.0.0.11"), (2222, "[10.0.0.11]:2222")])
def test_host_keys_are_those_that_ssh_knows(tmp_path: Path, port: int, name: str) -> None:
    known = tmp_path / "known"
    known.write_text(f"{name} {HOST_KEY}\n")
    (host,) = read(tmp_path, f'known_hosts = "{known}"\n[[host]]\naddress = "10.0.0.11"\nport = {port}')
    assert host.ssh.host_key == HOST_KEY


def test_of_several_host_keys_one_is_taken_whatever_their_order(tmp_path: Path) -> None:
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMu1cUlUVfBLRr5zXl7gs1HGTJ2nBqYrRzAcLLCpEEtD"
    for lines in ([HOST_KEY, other], [other, HOST_KEY]):
        known = tmp_path / "known"
        known.write_text("".join(f"10.0.0.11 {line}\n" for line in lines))
        (host,) = read(tmp_path, f'known_hosts = "{known}"\n[[host]]\naddress = "10.0.0.11"')
        assert host.ssh.host_key == other


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no host"),
        ("[[host]]\nport = 22", "host 1 has no address"),
        (
            '[[host]]\naddress = "h"\nuser = "a\\u0000b"',
            "host 1: user = 'a\\x00b' has a character that is not printable",
        ),
        ('[[host]]\naddress = "h"\njump = { address = "a\\nb" }', "host 1, jump: address = 'a\\nb' has a character"),
        ('[[host]]\naddress = "h"\nadress = "h"', "unknown field `adress`"),
        ('[[host]]\naddress = "h"\nport = "22"', "Expected `int`"),
        ("[[host", "hosts.toml: "),
        (
            'known_hosts = "/none"\n[[host]]\naddress = "h"',
            "`ssh-keyscan -p 22 h` says, and add it to /none",
        ),
        (2 * f'[[host]]\naddress = "h"\nhost_key = "{HOST_KEY}"\n', "h is named twice"),
        (f"x = {'[' * 5000}{']' * 5000}", "its values are nested too deep"),
        (
            f'[[host]]\naddress = "h"\nhost_key = "{HOST_KEY}"\nkey = "~no-such-user/x"',
            "host 1: ~no-such-user/x: no home folder is known for it; give an absolute path",
        ),
        ('known_hosts = "~no-such-user/x"\n[[host]]\naddress = "h"', ": ~no-such-user/x: no home folder"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert "hosts.toml" in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"there is no .*none.toml: write it .*, or name another with --hosts"):
        inventory.read_inventory(tmp_path / "none.toml")


def test_each_role_gets_its_own_hosts_and_too_few_are_an_error() -> None:
    hosts = [
        inventory.InventoryHost(role, SshAddress(f"h{number}", "root", "k", ""))
        for number, role in enumerate(("", "b", "a", "a"))
    ]
    chosen = inventory.choose_by_role(hosts, "a", {"a": 2, "b": 1}, Path("hosts.toml"))
    assert [[host.ssh.address for host in chosen[role]] for role in "ab"] == [["h0", "h2"], ["h1"]]
    with pytest.raises(InventoryError, match=r"has 1 hosts of the role b, but .* needs 2"):
        inventory.choose_by_role(hosts, "a", {"b": 2}, Path("hosts.toml"))


def test_keys_that_are_none_are_named(tmp_path: Path) -> None:
    assert parse_host_key(HOST_KEY) == KEY
    with pytest.raises(NodeError, match="is not a host key"):
        parse_host_key("ssh-ed25519")
    with pytest.raises(NodeError, match=f"root@h:22: the private key {tmp_path}/none cannot be read"):
        SshAddress("h", "root", f"{tmp_path}/none", HOST_KEY).login()


def test_a_host_is_known_by_what_its_packets_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.resolve_ip("n1", "198.18.0.9") == "198.18.0.9"
    assert cluster.resolve_ip("n1", "FD00:0::9") == "fd00::9"
    six, four = (socket.AF_INET6, 2, 17, "", ("fd00::9", 0, 0, 0)), (socket.AF_INET, 2, 17, "", ("198.18.0.9", 0))
    for known, address in (([six, four], "198.18.0.9"), ([six], "fd00::9")):
        monkeypatch.setattr(cluster.socket, "getaddrinfo", lambda *_, known=known, **__: known)
        assert cluster.resolve_ip("n1", "name") == address


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1", "is this machine"),
        ("::1", "is this machine"),
        ("fe80::1%lo", "is a link-local address"),
        ("no such host", "is not a known host"),
    ],
)
def test_an_address_by_which_peers_cannot_know_a_host_is_named(address: str, said: str) -> None:
    with pytest.raises(NodeError, match=f"n1: {re.escape(address)} {said}"):
        cluster.resolve_ip("n1", address)


def test_hosts_are_several_machines_with_addresses_of_one_kind() -> None:
    def of(*addresses: str) -> list[Any]:
        return [AttachedNode(f"n{number}", "server", number, one) for number, one in enumerate(addresses, 1)]

    cluster._require_distinct(of("10.0.0.1", "10.0.0.2"))
    cluster._require_distinct(of("fd00::1", "fd00::2"))
    with pytest.raises(NodeError, match="n1 and n3 are one machine"):
        cluster._require_distinct(of("10.0.0.1", "10.0.0.2", "10.0.0.1"))
    with pytest.raises(NodeError, match=r"n1 is known by 10.0.0.1 and n2 by fd00::2: .* or all IPv6"):
        cluster._require_distinct(of("10.0.0.1", "fd00::2"))


@pytest.mark.parametrize("missing", ["python", "iptables", "setsid", "pkill"])
def test_the_doctor_calls_required_what_no_run_begins_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (tmp_path / "hosts.toml").write_text(f'[[host]]\naddress = "h"\nhost_key = "{HOST_KEY}"')
    there = {"user": "0", "python": "yes", "iptables": "yes", "setsid": "/bin/setsid", "pkill": "/bin/pkill"}
    lines = [f"{what} {value}" for what, value in {**there, missing: "no"}.items()]
    monkeypatch.setattr(doctor, "run_on_host", lambda reach, command: "\n".join(lines))
    (bad,) = [one for one in doctor.diagnose_hosts(tmp_path / "hosts.toml") if not one.good]
    assert bad.name == f"root@h:22 {missing}"
    assert bad.required == (missing != "pkill"), "without it the main process is ended and stopped all the same"


@pytest.mark.parametrize("error", [UnansweredError, RefusedError, CommandTimeoutError])
def test_a_host_that_cannot_be_had_is_asked_once_by_who_undoes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[NodeError]
) -> None:
    asked = []

    def run(ssh: SshAddress, command: str, timeout: float) -> str:
        asked.append(f"{ssh} {command}")
        if ssh.address == "away":
            raise error("it is closed")
        return ""

    monkeypatch.setattr(host_command, "run_on_host", run)
    hosts = [SshAddress(address, "root", "/k", HOST_KEY) for address in ("away", "there")]
    actions = [journal.RunOnHost(host, (word,)) for word in ("one", "two") for host in hosts]
    own = HostCluster(
        Echo(tmp_path / "echo"), {}, hosts=tmp_path / "none", run_id="run", seed=1, state_dir=tmp_path / "state"
    )
    assert own._undo(actions) == [f"root@away:22: {word}: it is closed" for word in ("one", "two")]
    assert asked == ["root@away:22 one", "root@there:22 one", "root@there:22 two"]


def test_what_undoes_something_has_more_time_than_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is cleaned of a run may have to remove gigabytes from a slow disk."""
    monkeypatch.setattr(host_command, "UNDO_SECONDS", 2.0)
    with machine() as there:
        monkeypatch.setattr(SshAddress, "login", lambda reach: there.login)
        host = SshAddress("h", "root", "/k", HOST_KEY)
        with pytest.raises(CommandTimeoutError, match=r"did not end within 0\.2 s"):
            host_command.run_on_host(host, f"sleep 1; touch {tmp_path}/run", 0.2)
        host_command.HostUndoer().perform(journal.RunOnHost(host, ("sh", "-c", f"sleep 1; touch {tmp_path}/undone")))
        assert (tmp_path / "undone").exists()
        undoing, endless = host_command.HostUndoer(), journal.RunOnHost(host, ("sleep", "60"))
        for _ in range(2):
            with pytest.raises(NodeError, match="did not end within 2 s"):
                undoing.perform(endless)
        assert len(there.reached) == 3
    assert UNDO_SECONDS >= 300


def test_the_journal_keeps_how_a_host_is_reached(tmp_path: Path) -> None:
    ssh = SshAddress("h", "ann", "/k", HOST_KEY, 2222, True, SshAddress("bastion", "ann", "/k", HOST_KEY))
    book = journal.UndoJournal(tmp_path, "run-1")
    action = journal.RunOnHost(ssh, ("sh", "-c", "true"))
    book.append(action)
    book.close(finished=False)
    assert [one for _, one in journal.read_journal(book.path).actions] == [action]
    assert journal.describe(action) == "ann@h:2222: sh -c true"
    assert journal.describe(journal.RunOnHost(ssh, ("sh", "-c", "..."), "cleaned")) == "ann@h:2222: cleaned"
    assert str(SshAddress("fd00::1", "ann", "/k", HOST_KEY)) == "ann@[fd00::1]:22"
    assert msgspec.json.decode(msgspec.json.encode(ssh), type=SshAddress) == ssh


def shell(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, timeout=30)


def test_what_is_there_is_told_apart_and_a_greeting_is_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".hidden").write_text("")
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    (tmp_path / "to empty").symlink_to(tmp_path / "empty")
    names = {
        "a file": "full", "empty": "empty", "full": "full", "dangling": "full", "to empty": "full", "none": "none",
        "a file/below": "none",
    }  # fmt: skip
    paths = [f"{tmp_path}/{name}" for name in names]
    found = shell("echo welcome; echo none /etc/passwd; " + upkeep.path_states_command(paths))
    assert found.returncode == 0
    assert upkeep.parse_path_states(found.stdout, paths) == dict(zip(paths, names.values(), strict=True))


def test_an_error_hides_files_and_is_not_their_absence(tmp_path: Path) -> None:
    """``test -e`` and an empty list of ``ls`` say the same after an error as if nothing were there."""
    (tmp_path / "sick").mkdir()
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "\n").write_text("precious")
    paths = [f"{tmp_path}/{name}" for name in ("sick", "a/x", "n" * 300, "odd")]
    sick = 'ls() { case $* in */sick) return 2;; *) command ls "$@";; esac; }; '
    found = shell(sick + upkeep.path_states_command(paths))
    states = upkeep.parse_path_states(found.stdout, paths)
    assert list(states.values()) == ["unreadable", "unreadable", "unreadable", "full"]


def test_a_path_without_a_file_system_is_unknown() -> None:
    paths = ["/a", "/b", "/c"]
    found = "hello\npath 0 /dev/sda1 /\npath 1 \n"
    assert upkeep.parse_numbered(found, paths) == {"/a": "/dev/sda1 /"}


@pytest.mark.parametrize(
    "path",
    ["", "/", "/srv", "srv/x", "/srv/../etc/x", "/srv//x", "/srv/x/", "/srv/x\n/etc", "/srv/x\u2028/etc", "/srv/."],
)
def test_a_path_that_a_run_must_not_remove_is_refused(path: str) -> None:
    with pytest.raises(upkeep.PathError):
        upkeep.require_removable(path)
    assert upkeep.require_removable("/srv/my data") == "/srv/my data"


def test_the_folders_around_are_all_but_the_top_deepest_first() -> None:
    assert upkeep.list_parents(["/a/b/c", "/a/d"]) == ["/a/b", "/a"]


def test_who_is_read_behind_a_greeting() -> None:
    assert upkeep.parse_who("user 0\nclaim \n") == ("0", "")
    assert upkeep.parse_who("hello\nuser 1000\nclaim run-1\n") == ("1000", "run-1")
    assert upkeep.parse_who("") == ("", "")
    assert upkeep.parse_who(shell(upkeep.WHO_COMMAND).stdout)[0] == str(os.getuid())


RUN = f"run-of-{os.getpid()}"
"""Run id of the tests that clean this machine. Cleaning ends each process with this id, also in containers."""
OTHER_RUN = f"other-{RUN}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host's files below a folder, and no rules to lift."""
    monkeypatch.setattr(upkeep, "CLAIM", f"{tmp_path}/claim")
    monkeypatch.setattr(upkeep.process, "kill_command", lambda process: "exit 20")
    for module, name in ((upkeep.firewall, "CHAIN"), (upkeep.firewall, "FROZEN")):
        monkeypatch.setattr(module, name, "NO-SUCH-CHAIN")
    monkeypatch.setattr(upkeep.packets, "UNSHAPE", ("true",))
    return tmp_path


def done(argv: tuple[str, ...]) -> int:
    return subprocess.run(argv, check=False, timeout=30, capture_output=True).returncode


def created_paths(removed: list[str], emptied: list[str], folders: list[str]) -> upkeep.CreatedPaths:
    paths = [*removed, *emptied]
    found = upkeep.parse_numbered(shell(upkeep.file_systems_command(paths)).stdout, paths)
    owners = dict.fromkeys(emptied, "0:0 755") | upkeep.parse_numbered(
        shell(upkeep.owners_command(emptied)).stdout, emptied
    )
    return upkeep.CreatedPaths(removed, emptied, folders, found, owners)


@pytest.mark.skipif(os.getuid() != 0, reason="a run is root on its hosts")
def test_a_data_folder_that_was_there_gets_its_owner_and_mode_back(place: Path) -> None:
    shell(upkeep.claim_command(RUN))
    data = place / "the data"
    data.mkdir()
    os.chown(data, 12, 34)
    data.chmod(0o2750)
    made = created_paths([], [str(data)], [])
    os.chown(data, 56, 78)
    data.chmod(0o700)
    (data / "x").touch()
    assert done(upkeep.clean_command(RUN, made)) == 0
    found = data.stat()
    assert (found.st_uid, found.st_gid, oct(found.st_mode & 0o7777)) == (12, 34, "0o2750")
    assert list(data.iterdir()) == []


def test_a_host_is_claimed_once_and_cleaned_by_its_own_run_alone(place: Path) -> None:
    assert shell(upkeep.claim_command(RUN)).returncode == 0
    second = shell(upkeep.claim_command(OTHER_RUN))
    assert (second.returncode, second.stderr) == (22, f"{RUN}\n")
    (place / "new/folder/data").mkdir(parents=True)
    (place / "new/folder/of another").write_text("came meanwhile")
    (place / "was empty/x").mkdir(parents=True)
    made = created_paths([f"{place}/new/folder/data"], [f"{place}/was empty"], [f"{place}/new/folder", f"{place}/new"])
    assert done(upkeep.guard_command(OTHER_RUN, ("touch", f"{place}/undone"))) == 0
    assert done(upkeep.clean_command(OTHER_RUN, made)) == 0
    assert not (place / "undone").exists()
    assert (place / "was empty/x").exists()
    for _ in range(2):
        assert done(upkeep.clean_command(RUN, made)) == 0
        assert [path.name for path in (place / "new/folder").iterdir()] == ["of another"]
        assert list((place / "was empty").iterdir()) == []
        assert not (place / "claim").exists()
    assert shell(upkeep.claim_command(OTHER_RUN)).returncode == 0


def test_folders_that_were_made_for_it_go_with_it(place: Path) -> None:
    shell(upkeep.claim_command(RUN))
    (place / "new/folder").mkdir(parents=True)
    (place / "new/folder/file").write_text("")
    made = created_paths([f"{place}/new/folder/file"], [], upkeep.list_parents([f"{place}/new/folder/file"])[:2])
    assert done(upkeep.clean_command(RUN, made)) == 0
    assert not (place / "new").exists()


def test_what_cannot_be_removed_keeps_the_claim_for_another_try(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell(upkeep.claim_command(RUN))
    made = created_paths([], [f"{place}/gone"], [])  # find fails: someone has removed the folder
    assert done(upkeep.clean_command(RUN, made)) != 0
    assert (place / "claim").exists()


def test_files_of_another_file_system_than_at_the_start_stay(place: Path) -> None:
    """A disk that is mounted since a reboot hides the files of the run, and has the files of others."""
    shell(upkeep.claim_command(RUN))
    (place / "data").mkdir()
    (place / "data/precious").write_text("")
    for made in (created_paths([f"{place}/data"], [], []), created_paths([], [f"{place}/data"], [])):
        elsewhere = replace(made, file_systems={f"{place}/data": "/dev/other /"})
        ended = subprocess.run(upkeep.clean_command(RUN, elsewhere), check=False, capture_output=True, text=True)
        assert ended.returncode == 26
        assert f"{place}/data is on " in ended.stderr
        assert "was on /dev/other / at the start of the run: unmount it" in ended.stderr
        assert (place / "data/precious").exists()
        assert (place / "claim").exists()


def test_files_of_a_mount_inside_of_a_path_stay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the same device that is mounted there looks like a folder of the path."""
    shell(upkeep.claim_command(RUN))
    (place / "my data/inner").mkdir(parents=True)
    (place / "my data/inner/precious").write_text("")
    (place / "mounts").write_text(f"36 35 98:0 / {place}/my\\040data/inner rw - ext4 /dev/root rw\n")
    monkeypatch.setattr(upkeep, "MOUNTS", f"{place}/mounts")
    made = created_paths([f"{place}/my data"], [], [])
    ended = subprocess.run(upkeep.clean_command(RUN, made), check=False, capture_output=True, text=True)
    assert ended.returncode == 26
    assert f"{place}/my data/inner is mounted inside of {place}/my data: unmount it" in ended.stderr
    assert (place / "my data/inner/precious").exists()
    (place / "mounts").write_text(f"36 35 98:0 / {place}/my\\040data\\040too rw - ext4 /dev/root rw\n")
    assert done(upkeep.clean_command(RUN, made)) == 0
    assert not (place / "my data").exists()


MAY_MOUNT = shell("unshare -m mount -t tmpfs none /mnt").returncode == 0


@pytest.mark.skipif(not MAY_MOUNT, reason="needs the right to mount")
@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("point", ["data", "", "data/inner"])
def test_a_disk_that_is_mounted_after_the_start_keeps_its_files(place: Path, point: str, bound: bool) -> None:
    shell(upkeep.claim_command(RUN))
    at = place / "host" / point
    for folder in (at, place / "disk/data"):
        folder.mkdir(parents=True, exist_ok=True)
    (place / "disk/precious").write_text("")
    (place / "disk/data/precious").write_text("")
    data = f"{place}/host/data"
    made = created_paths([], [data], []) if (place / "host/data").exists() else created_paths([data], [], [])
    mount = f"--bind {place}/disk {at}" if bound else f"-t tmpfs none {at} && cp -r {place}/disk/. {at}/"
    script = f"mount {mount}\n{shlex.join(upkeep.clean_command(RUN, made))}\necho $?; find {at} -name precious"
    ended = subprocess.run(["unshare", "-m", "sh", "-c", script], check=False, capture_output=True, text=True)
    assert set(ended.stdout.split()) == {"26", f"{at}/data/precious", f"{at}/precious"}, ended.stderr


def test_an_unreadable_claim_is_not_that_of_no_run(place: Path) -> None:
    shell(upkeep.claim_command(RUN))
    (place / "claim").unlink()
    (place / "claim").mkdir()
    assert done(upkeep.clean_command(RUN, created_paths([], [], []))) != 0


class Here:
    """A node whose shell is this machine's."""

    name, role, index, address = "n1", "broker", 1, "127.98.0.9"

    async def shell(self, command: str) -> str:
        return shell(command).stdout


@pytest.mark.skipif(os.getuid() != 0, reason="a run is root on its hosts")
def test_half_a_file_that_a_killed_session_leaves_goes_with_the_others(place: Path) -> None:
    echo = Echo(place / "echo")
    hosts = HostCluster(echo, {"broker": 1}, hosts=place / "none", run_id=RUN, seed=1, state_dir=place / "state")
    node: Any = Here()
    made = asyncio.run(hosts._plan_created_paths(node, "n1", {f"{place}/etc/settings": b""}))
    shell(upkeep.claim_command(RUN))
    (place / "etc").mkdir()
    (place / "etc/settings.assay-part").write_text("half of")
    ours = [path for path in made.removed if path.startswith(f"{place}/")]
    assert done(upkeep.clean_command(RUN, replace(made, removed=ours, emptied=[]))) == 0
    assert not (place / "etc").exists()


class StoringEcho(Echo):
    """A system whose data folder faults may copy."""

    def data_folder(self, node: Node) -> str:
        return f"{self.folder}/data"


@pytest.mark.skipif(os.getuid() != 0, reason="a run is root on its hosts")
def test_a_copy_beside_the_data_folder_that_is_there_already_is_named(place: Path) -> None:
    (place / "data.assay-copy").mkdir()
    (place / "data.assay-copy/precious").touch()
    echo = StoringEcho(place)
    hosts = HostCluster(echo, {"broker": 1}, hosts=place / "none", run_id=RUN, seed=1, state_dir=place / "state")
    node: Any = Here()
    with pytest.raises(NodeError, match=rf"n1 has {place}/data.assay-copy already"):
        asyncio.run(hosts._plan_created_paths(node, "n1", {}))


@pytest.mark.skipif(os.getuid() != 0, reason="a run is root on its hosts")
def test_a_run_does_not_begin_on_a_host_whose_files_cannot_be_read(place: Path) -> None:
    (place / "a").symlink_to("a")
    echo = Echo(place / "echo")
    hosts = HostCluster(echo, {"broker": 1}, hosts=place / "none", run_id=RUN, seed=1, state_dir=place / "state")
    node: Any = Here()
    with pytest.raises(NodeError, match=rf"n1: {place}/a/settings, .* cannot be read, so a run cannot know"):
        asyncio.run(hosts._plan_created_paths(node, "n1", {f"{place}/a/settings": b""}))


def test_all_that_carries_the_mark_of_the_run_is_ended(place: Path) -> None:
    shell(upkeep.claim_command(RUN))
    started = {
        run: subprocess.Popen(["sleep", "60"], env={upkeep.RUN_VARIABLE: run}, start_new_session=True)
        for run in (RUN, f"{RUN}0", f"my-{RUN}")
    }
    try:
        assert done(upkeep.clean_command(RUN, created_paths([], [], []))) == 0
        assert started[RUN].wait(timeout=10) == -signal.SIGKILL
        assert [one.poll() for run, one in started.items() if run != RUN] == [None, None]
    finally:
        for one in started.values():
            one.kill()
            one.wait()


def test_to_attach_an_address_is_enough_and_nodes_can_do_nothing(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text('[[host]]\naddress = "10.0.0.11"\n[[host]]\naddress = "10.0.0.12"\nrole = "store"\n')
    assert [(host.role, host.ssh.address) for host in inventory.read_addresses(str(file))] == [
        ("", "10.0.0.11"),
        ("store", "10.0.0.12"),
    ]
    file.write_text('[[host]]\nrole = "store"\n')
    with pytest.raises(InventoryError, match="host 1 has no address"):
        inventory.read_addresses(str(file))
    file.write_text('[[host]]\naddress = "a\\u0000b"\n')
    with pytest.raises(InventoryError, match=r"host 1: address = 'a\\x00b' has a character that is not printable"):
        inventory.read_addresses(str(file))
    file.write_text('[[host]]\naddress = "a b"\n')
    with pytest.raises(InventoryError, match="host 1: the address 'a b' has a blank"):
        inventory.read_addresses(str(file))
    node = AttachedNode("n1", "server", 1, "10.0.0.11")
    assert asyncio.run(node.process()).state is ProcessState.RUNNING
    with pytest.raises(NodeError, match="n1 is known by its address alone: --cluster=attach has no kill of a node"):
        node.kill()


def test_addresses_that_are_nested_too_deep_are_named(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(f"x = {'[' * 5000}{']' * 5000}")
    with pytest.raises(InventoryError, match=r"hosts.toml: its values are nested too deep"):
        inventory.read_addresses(str(file))


def test_a_machine_that_cannot_be_asked_for_compose_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///none.sock")
    with pytest.raises(InventoryError, match="compose:shop: "):
        inventory.read_addresses("compose:shop")


REPLACED = """
import os, subprocess, sys, time
watched = os.getpid()
if os.fork() == 0:
    while os.getppid() == watched:
        time.sleep(0.0005)
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    time.sleep(60)
open(sys.argv[1], "w").close()
time.sleep(60)
"""
"""A process whose child starts another one as soon as it is gone, as a watchdog does."""


def test_what_is_started_while_a_run_is_ended_is_ended_as_well(place: Path) -> None:
    shell(upkeep.claim_command(RUN))
    mark = {upkeep.RUN_VARIABLE: f"{RUN} {place}", "PATH": os.environ["PATH"]}
    shell(f"rm -f {place}/claim")
    shell(upkeep.claim_command(mark[upkeep.RUN_VARIABLE]))
    started = subprocess.Popen([sys.executable, "-c", REPLACED, str(place / "up")], env=mark, start_new_session=True)
    deadline = time.monotonic() + 10
    while not (place / "up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert done(upkeep.clean_command(mark[upkeep.RUN_VARIABLE], created_paths([], [], []))) == 0
    started.wait(timeout=10)
    left = [one for one in Path("/proc").glob("[0-9]*/environ") if mark[upkeep.RUN_VARIABLE].encode() in content(one)]
    for one in left:
        os.kill(int(one.parent.name), signal.SIGKILL)
    assert left == []


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone
        return b""
