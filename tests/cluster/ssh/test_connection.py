"""What becomes of commands and files when a connection, a session or the disk at its other end is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.cluster.node import NodeError
from assay.cluster.ssh.connection import SshConnection

from helpers.small_disk import small_disk
from helpers.ssh_machine import Machine, machine


@contextmanager
def connected(to: Machine) -> Iterator[SshConnection]:
    connection = SshConnection("n1", to.login)
    try:
        connection.connect(time.monotonic() + 10)
        yield connection
    finally:
        connection.close()


def test_a_file_for_which_there_is_no_room_is_an_error_and_what_was_there_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "32k") as disk, machine() as there, connected(there) as connection:
        path = disk / "settings"
        connection.write(str(path), b"before")
        with pytest.raises(NodeError, match=rf"n1: {path} could not be written"):
            connection.write(str(path), bytes(200_000))
        assert path.read_bytes() == b"before"
        assert list(disk.iterdir()) == [path], "nothing lies beside it"
        connection.write(str(path), b"after")
        assert path.read_bytes() == b"after"
