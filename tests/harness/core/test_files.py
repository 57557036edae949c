"""Atomic writes into folders that may come from elsewhere."""

from __future__ import annotations

import errno
import os
import re
import resource
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from assay.harness.core.files import (
    ForeignFileError,
    SpecialFileError,
    replace_atomically,
    write_atomically,
    write_output,
)

WRITE = """
import os, sys
from pathlib import Path
from assay.harness.core.files import write_atomically
target = Path(sys.argv[1])
target.with_name(f".{target.name}.{os.getpid()}").symlink_to(sys.argv[2])
write_atomically(target, b"new")
"""


def test_no_link_can_be_planted_under_the_name_of_the_temporary_file(tmp_path: Path) -> None:
    """Process ids can be guessed: a store with a link for each of them has a link for this process."""
    (victim := tmp_path / "victim").write_text("mine")
    target = tmp_path / "store" / "index.html"
    target.parent.mkdir()
    subprocess.run([sys.executable, "-c", WRITE, str(target), str(victim)], check=True)
    assert victim.read_text() == "mine"
    assert target.read_text() == "new"
    assert not target.is_symlink()
    names, before = set[str](), set(os.listdir(target.parent))
    for _ in range(50):
        with replace_atomically(target):
            names |= set(os.listdir(target.parent)) - before
    assert len(names) == 50


def test_a_block_that_raises_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")

    def write_half() -> None:
        with replace_atomically(tmp_path / "file") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_mode_is_that_of_any_new_file_and_nothing_else_is_left(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["file"]


def test_a_long_name_has_room_for_its_temporary_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("n" * 255), b"content")
    assert os.listdir(tmp_path) == ["n" * 255]
    with pytest.raises(OSError, match="File name too long"):
        write_atomically(tmp_path / ("n" * 256), b"content")
    assert os.listdir(tmp_path) == ["n" * 255]


OWN = re.compile(rb"<page> ")


@pytest.mark.parametrize("behind", ["page.html", "gone.html", "/dev/null"])
def test_output_goes_through_no_link(tmp_path: Path, behind: str) -> None:
    (tmp_path / "page.html").write_text("<page> old")
    (tmp_path / "link.html").symlink_to(behind)
    with pytest.raises(SpecialFileError, match="this is a symbolic link, and what is written would go elsewhere"):
        write_output(tmp_path / "link.html", b"<page> new", OWN)
    assert os.readlink(tmp_path / "link.html") == behind
    assert (tmp_path / "page.html").read_text() == "<page> old"
    assert sorted(os.listdir(tmp_path)) == ["link.html", "page.html"]


def test_output_replaces_only_files_of_its_command_and_empty_ones(tmp_path: Path) -> None:
    for content, is_replaced in (
        (b"my notes", False), (b"how it begins: <page> old", False), (b"", True), (b"<page> old", True),
    ):  # fmt: skip
        (tmp_path / "file").write_bytes(content)
        if not is_replaced:
            with pytest.raises(ForeignFileError, match="did not make this file, and does not replace it"):
                write_output(tmp_path / "file", b"<page> new", OWN)
            assert (tmp_path / "file").read_bytes() == content
            continue
        write_output(tmp_path / "file", b"<page> new", OWN)
        assert (tmp_path / "file").read_bytes() == b"<page> new"


def test_output_never_replaces_a_device() -> None:
    write_output(Path("/dev/null"), b"data", OWN)
    assert Path("/dev/null").is_char_device()


def test_output_goes_into_no_folder_no_socket_and_no_closed_descriptor(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        write_output(tmp_path, b"data", OWN)
    with pytest.raises(FileNotFoundError, match=r"page\.html"):
        write_output(tmp_path / "no" / "page.html", b"data", OWN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(SpecialFileError, match="no process reads it"):
            write_output(tmp_path / "socket", b"data", OWN)
    with pytest.raises(SpecialFileError, match="/dev/fd/987654: this is a descriptor, and it is not open for writing"):
        write_output(Path("/dev/fd/987654"), b"data", OWN)


def test_a_failed_write_names_the_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"<page> old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=f"File too large: '{tmp_path / 'file'}'"):
            write_output(tmp_path / "file", b"<page> new" + bytes(8192), OWN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "file").read_bytes() == b"<page> old"
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_output(Path("/dev/full"), b"data", OWN)


def test_output_goes_into_a_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    write_output(Path(f"/dev/fd/{writer}"), b"data", OWN)
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b"data"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666, 0o400, 0o4755])
def test_a_file_that_is_replaced_keeps_its_mode_and_its_owner(tmp_path: Path, mode: int) -> None:
    """A report may be private, and a page that others serve may belong to them."""
    path = tmp_path / "report.html"
    path.write_text("old")
    owner = (4321, 4322) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    path.chmod(mode)
    write_atomically(path, b"new")
    write_output(path, b"newer", re.compile(b"new"))
    found = path.stat()
    assert path.read_text() == "newer"
    assert stat.S_IMODE(found.st_mode) == mode & 0o777
    assert (found.st_uid, found.st_gid) == owner
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_private_file_is_private_while_it_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    with replace_atomically(tmp_path / "file") as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600


@pytest.mark.parametrize("moment", ["before the write", "after the write"])
def test_the_owner_of_the_folder_cannot_redirect_the_write_by_a_link(tmp_path: Path, moment: str) -> None:
    """Root may write a page into another user's run. That user sees the name of the new file, and may replace it."""
    folder, victim = tmp_path / "run", tmp_path / "victim"
    folder.mkdir()
    (folder / "report.html").write_text("old")
    victim.write_text("mine")
    victim.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(folder / "report.html", 4321, 4322)

    def plant() -> None:
        (temporary,) = folder.glob(".report.html.*")
        temporary.unlink()
        temporary.symlink_to(victim)

    def replace() -> None:
        with replace_atomically(folder / "report.html") as file:
            if moment == "before the write":
                plant()
            file.write(b"a page")
            if moment == "after the write":
                plant()

    with pytest.raises(OSError, match="another process has replaced the new content of this file"):
        replace()
    found = victim.stat()
    assert victim.read_text() == "mine"
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o600)
    assert (folder / "report.html").read_text() == "old"
    assert os.listdir(folder) == ["report.html"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EPERM])
def test_a_file_whose_owner_cannot_be_kept_is_replaced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """EINVAL: the owner does not exist in a user namespace."""

    def refuse(*_: object) -> None:
        raise OSError(number, "refused")

    path = tmp_path / "file"
    path.write_text("old")
    if os.geteuid() == 0:
        os.chown(path, 4321, 4322)
    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(os, "fchmod", refuse)  # the mode is right already, so it is not set
    path.chmod(0o644)
    write_atomically(path, b"new")
    assert path.read_text() == "new"


def test_a_link_that_is_replaced_gives_its_target_s_mode_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "private").touch(0o600)
    (tmp_path / "link").symlink_to("private")
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "link", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "link").lstat().st_mode) == 0o644
    assert (tmp_path / "private").read_text() == ""
