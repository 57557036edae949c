"""Hosts of a user's own: what the inventory says of them, and what is done to them, as text."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import msgspec
import paramiko
import pytest

from assay.cluster import journal
from assay.cluster.hosts import inventory, upkeep
from assay.cluster.hosts.attached import AttachedNode
from assay.cluster.hosts.inventory import InventoryError
from assay.cluster.node import NodeError, ProcessState
from assay.cluster.ssh.reach import Reach, host_key_of

KEY = paramiko.ECDSAKey.generate()
HOST_KEY = f"{KEY.get_name()} {KEY.get_base64()}"


def read(folder: Path, text: str) -> list[inventory.Host]:
    path = folder / "hosts.toml"
    path.write_text(text)
    return inventory.read(path)


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
    assert one == inventory.Host("", Reach("10.0.0.11", "ann", "/keys/ann", HOST_KEY, sudo=True))
    jump = Reach("bastion", "ann", "/keys/ann", HOST_KEY, sudo=True)
    assert other == inventory.Host("sentinel", Reach("10.0.0.12", "bob", "/keys/bob", HOST_KEY, 2222, True, jump))


@pytest.mark.parametrize(("port", "name"), [(22, "10.0.0.11"), (2222, "[10.0.0.11]:2222")])
def test_host_keys_are_those_that_ssh_knows(tmp_path: Path, port: int, name: str) -> None:
    known = tmp_path / "known"
    known.write_text(f"{name} {HOST_KEY}\n")
    (host,) = read(tmp_path, f'known_hosts = "{known}"\n[[host]]\naddress = "10.0.0.11"\nport = {port}')
    assert host.reach.host_key == HOST_KEY


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no host"),
        ("[[host]]\nport = 22", "host 1 has no address"),
        ('[[host]]\naddress = "h"\nadress = "h"', "unknown field `adress`"),
        ('[[host]]\naddress = "h"\nport = "22"', "Expected `int`"),
        ("[[host", "hosts.toml: "),
        (
            'known_hosts = "/none"\n[[host]]\naddress = "h"',
            "`ssh-keyscan -p 22 h` says, and add it to /none",
        ),
        (2 * f'[[host]]\naddress = "h"\nhost_key = "{HOST_KEY}"\n', "h is named twice"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert "hosts.toml" in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"there is no .*none.toml: write it .*, or name another with --hosts"):
        inventory.read(tmp_path / "none.toml")


def test_each_role_gets_its_own_hosts_and_too_few_are_an_error() -> None:
    hosts = [
        inventory.Host(role, Reach(f"h{number}", "root", "k", "")) for number, role in enumerate(("", "b", "a", "a"))
    ]
    chosen = inventory.by_role(hosts, "a", {"a": 2, "b": 1}, Path("hosts.toml"))
    assert [[host.reach.address for host in chosen[role]] for role in "ab"] == [["h0", "h2"], ["h1"]]
    with pytest.raises(InventoryError, match="has 1 hosts of the role b, and 2 are asked for"):
        inventory.by_role(hosts, "a", {"b": 2}, Path("hosts.toml"))


def test_keys_that_are_none_are_named(tmp_path: Path) -> None:
    assert host_key_of(HOST_KEY) == KEY
    with pytest.raises(NodeError, match="not a host key"):
        host_key_of("ssh-ed25519")
    with pytest.raises(NodeError, match=f"root@h:22: the private key {tmp_path}/none cannot be read"):
        Reach("h", "root", f"{tmp_path}/none", HOST_KEY).login()


def test_the_journal_keeps_how_a_host_is_reached(tmp_path: Path) -> None:
    reach = Reach("h", "ann", "/k", HOST_KEY, 2222, True, Reach("bastion", "ann", "/k", HOST_KEY))
    book = journal.Journal(tmp_path, "run-1")
    action = journal.RunOnHost(reach, ("sh", "-c", "true"))
    book.append(action)
    book.close(finished=False)
    assert [one for _, one in journal.read(book.path).actions] == [action]
    assert journal.describe(action) == "ann@h:2222: sh -c true"
    assert msgspec.json.decode(msgspec.json.encode(reach), type=Reach) == reach


def shell(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, timeout=30)


def test_what_is_there_already_is_said(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    found = shell(upkeep.occupied([f"{tmp_path}/a file", f"{tmp_path}/none"]))
    assert (found.returncode, found.stdout) == (0, f"{tmp_path}/a file\n")


def test_a_host_is_claimed_once_and_cleaned_by_its_own_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the folders of a run below ``tmp_path``, and no rules to lift."""
    monkeypatch.setattr(upkeep, "CLAIM", f"{tmp_path}/run/run")
    monkeypatch.setattr(upkeep.process, "FOLDER", f"{tmp_path}/run")
    monkeypatch.setattr(upkeep.process, "LOG", f"{tmp_path}/log/process.log")
    monkeypatch.setattr(upkeep.process, "KILL", "exit 20")
    monkeypatch.setattr(upkeep.firewall, "CHAIN", "NO-SUCH-CHAIN")
    monkeypatch.setattr(upkeep.firewall, "FROZEN", "NO-SUCH-CHAIN")
    assert shell(upkeep.claim("run-1")).returncode == 0
    second = shell(upkeep.claim("run-2"))
    assert (second.returncode, second.stderr) == (22, "run-1\n")
    data = tmp_path / "data"
    data.mkdir()
    for run, left in (("run-2", True), ("run-1", False), ("run-1", False)):
        clean = upkeep.clean(run, [str(data)])
        assert subprocess.run(clean, check=False, timeout=30).returncode == 0
        assert data.exists() is left
        assert (tmp_path / "run").exists() is left
    assert shell(upkeep.claim("run-2")).returncode == 0


def test_to_attach_an_address_is_enough_and_nodes_can_do_nothing(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text('[[host]]\naddress = "10.0.0.11"\n[[host]]\naddress = "10.0.0.12"\nrole = "store"\n')
    assert [(host.role, host.reach.address) for host in inventory.addresses(str(file))] == [
        ("", "10.0.0.11"),
        ("store", "10.0.0.12"),
    ]
    file.write_text('[[host]]\nrole = "store"\n')
    with pytest.raises(InventoryError, match="host 1 has no address"):
        inventory.addresses(str(file))
    node = AttachedNode("n1", "server", 1, "10.0.0.11")
    assert asyncio.run(node.process()).state is ProcessState.RUNNING
    with pytest.raises(NodeError, match="n1 is known by its address alone: --cluster=attach has no kill of a node"):
        node.kill()


def test_a_machine_that_cannot_be_asked_for_compose_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///none.sock")
    with pytest.raises(InventoryError, match="compose:shop: "):
        inventory.addresses("compose:shop")
