"""A file of others is read without waiting, or rejected by one kind of error."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import paramiko
import pytest

from assay.cluster import journal, owner
from assay.cluster.docker import image_usage
from assay.cluster.node import NodeError
from assay.cluster.regular_files import NotRegularError, read_regular, read_regular_json
from assay.cluster.ssh.ssh_address import SshAddress


def test_a_link_to_a_file_is_read_and_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text('{"a": 1}')
    (tmp_path / "link").symlink_to("file")
    assert read_regular_json(tmp_path / "link") == {"a": 1}
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


def test_anything_but_a_file_is_rejected_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    os.mkdir("folder")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name, kind in (("fifo", "a FIFO"), ("folder", "a folder"), ("socket", "a socket"), ("/dev/zero", "a dev")):
            with pytest.raises(NotRegularError, match=f"^{name}: this is {kind}"):
                read_regular(Path(name))


@pytest.mark.parametrize("content", [b"[" * 100_000, b'"\xff"', b"{", b""])
def test_damaged_json_is_one_kind_of_error(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        read_regular_json(tmp_path / "file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    journal.state_folder().mkdir()
    (journal.state_folder() / "images.json").write_bytes(content)
    assert image_usage.read_usage() == {}


def test_a_state_folder_with_fifos_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(owner, "read_machine_id", lambda: "")
    journal.state_folder().mkdir()
    for name in ("images.json", "machine-id"):
        os.mkfifo(journal.state_folder() / name)
    assert image_usage.read_usage() == {}
    with pytest.raises(NotRegularError, match="machine-id: this is a FIFO"):
        owner.find_machine_label(journal.state_folder())


@pytest.mark.parametrize("value", ["", ".", "state"])
def test_a_relative_state_folder_is_ignored(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of a journal in the current folder, which may come from elsewhere, must not be executed."""
    monkeypatch.setenv("XDG_STATE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert journal.state_folder() == tmp_path / ".local" / "state" / "assay"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    assert journal.state_folder() == tmp_path / "own" / "assay"


@pytest.mark.parametrize("home", ["home", "."])
def test_a_relative_home_is_not_searched_for_journals(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    own = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert journal.state_folder() == own / ".local" / "state" / "assay"


@pytest.mark.parametrize("name", ["key", "key-cert.pub"])
def test_a_private_key_that_is_a_fifo_is_not_waited_for(name: str, tmp_path: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "key"))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(NodeError, match=rf"root@host:22: the private key .*{name}: this is a FIFO"):
        SshAddress("host", "root", str(tmp_path / "key"), "ssh-ed25519 AAAA").login()


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="more than 64 MiB"):
        read_regular(tmp_path / "huge")
