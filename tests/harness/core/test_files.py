"""Atomic writes into folders that may come from elsewhere."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from assay.harness.core.files import ForeignFileError, replace_atomically, write_atomically, write_output

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
    names = set()
    for _ in range(50):
        with replace_atomically(target) as temporary:
            names.add(temporary.name)
    assert len(names) == 50


def test_a_block_that_raises_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")

    def write_half() -> None:
        with replace_atomically(tmp_path / "file") as temporary:
            temporary.write_text("half")
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


def test_output_goes_through_a_link_and_replaces_the_file_behind_it(tmp_path: Path) -> None:
    (tmp_path / "real.html").write_text("an old page")
    (tmp_path / "page.html").symlink_to("real.html")
    write_output(tmp_path / "page.html", b"new", b"n")
    assert (tmp_path / "page.html").is_symlink()
    assert (tmp_path / "real.html").read_bytes() == b"new"


def test_output_replaces_only_files_of_its_command_and_empty_ones(tmp_path: Path) -> None:
    for content, is_replaced in ((b"my notes", False), (b"", True), (b"<page> old", True)):
        (tmp_path / "file").write_bytes(content)
        if not is_replaced:
            with pytest.raises(ForeignFileError, match="did not make this file, and does not replace it"):
                write_output(tmp_path / "file", b"<page> new", b"<page>")
            assert (tmp_path / "file").read_bytes() == content
            continue
        write_output(tmp_path / "file", b"<page> new", b"<page>")
        assert (tmp_path / "file").read_bytes() == b"<page> new"


def test_output_never_replaces_a_device(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    write_output(tmp_path / "null", b"data", b"d")
    assert Path("/dev/null").is_char_device()
    assert os.readlink(tmp_path / "null") == "/dev/null"


def test_output_goes_into_a_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    write_output(Path(f"/dev/fd/{writer}"), b"data", b"d")
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b"data"
