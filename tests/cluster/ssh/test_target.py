"""A node whose files are in another container: which path stands for which, and what is refused."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import shlex
import struct
import subprocess
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.node import Node, NodeError
from assay.cluster.ssh import data_folders, process, target
from assay.cluster.ssh.node import SshNode
from assay.cluster.ssh.node_processes import Program
from assay.cluster.ssh.target import Target

TARGET = Target(pid=7, uid=1000, gid=1001, user="alice")
ROOT = "/proc/7/root"
LINKS = {"/data": "/var/data", "/log": "/var/log"}
as_root = pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="chroot needs root")


class Machine:
    """The holder of an image with some links. ``commands``: those that it got, but for look-ups of paths."""

    def __init__(self) -> None:
        self.commands = list[str]()
        self.paths = list[str]()
        self.said = list[bytes]()
        self.output = ""

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 0) -> str:
        words = shlex.split(command)
        if words[:2] == ["python3", "-ISc"] and words[3] == "look":
            return json.dumps({"pid": TARGET.pid, "uid": TARGET.uid, "gid": TARGET.gid})
        if words[:2] == ["python3", "-ISc"] and words[3] == "resolve":
            assert words[4] == ROOT
            return json.dumps([self.follow(path) for path in words[5:]])
        self.commands.append(command)
        self.said.append(stdin)
        return self.output

    @staticmethod
    def follow(path: str) -> str:
        for link, end in LINKS.items():
            if path == link or path.startswith(f"{link}/"):
                return end + path.removeprefix(link)
        return path

    def write(self, path: str, data: bytes) -> None:
        self.paths.append(path)

    def read(self, path: str) -> bytes:
        self.paths.append(path)
        return b""

    def copy_log(self, path: str, local: Path) -> None:
        self.paths.append(path)

    def read_range(self, path: str, position: int, size: int) -> bytes:
        self.paths.append(path)
        return b""

    def truncate(self, path: str, size: int) -> None:
        self.paths.append(path)

    def write_range(self, path: str, position: int, data: bytes) -> None:
        self.paths.append(path)


class Journal:
    """Journal that keeps the undo commands."""

    def __init__(self) -> None:
        self.noted = list[list[str]]()

    def note_undo(self, node: str, argv: Any) -> int:
        self.noted.append(list(argv))
        return len(self.noted)

    def mark_done(self, entry: int) -> None:
        pass


def make_node(machine: Machine, program: Program | None = None, journal: Journal | None = None) -> SshNode:
    connection: Any = machine

    def get_program(node: Node) -> Program:
        assert program is not None
        return program

    return SshNode(
        name="n1", role="server", index=1, address="10.0.0.1", connection=connection, executor=ThreadPoolExecutor(1),
        program=get_program, event_log=lambda node: "/log/events", undo=journal or Journal(),
    )  # fmt: skip


async def found(machine: Machine, **more: Any) -> SshNode:
    node = make_node(machine, **more)
    await node.find_target("alice")
    return node


FILES = [
    ("/data/a", f"{ROOT}/var/data/a"),
    ("/etc/b", f"{ROOT}/etc/b"),
    ("/database", f"{ROOT}/database"),
    (process.LOG, process.LOG),
    ("/var/log/assay/events", f"{ROOT}/var/log/assay/events"),
]


@pytest.mark.parametrize(("path", "place"), FILES)
def test_a_file_is_that_of_the_image_without_links_but_for_logs_of_processes(path: str, place: str) -> None:
    async def body() -> None:
        machine = Machine()
        node = await found(machine)
        machine.output = ""  # the process is dead
        await node.write_file(path, b"")
        await node.read_file(path)
        await node.copy_log(path, Path("unused"))
        await node.read_range(path, 0, 1)
        await node.write_range(path, 0, b"x")
        await node.truncate_file(path, 0)
        assert machine.paths == [place] * 6

        plain = make_node(machine)
        machine.paths.clear()
        await plain.write_file(path, b"")
        assert machine.paths == [path], "a node without a target has its own files"

    asyncio.run(body())


def test_each_call_for_a_file_gets_a_path_that_was_looked_up() -> None:
    calls = re.findall(r"self\._in_thread\(self\._connection\.(\w+), (\w+)", inspect.getsource(SshNode))
    assert {name for name, _ in calls} >= {"write", "read", "copy_log", "read_range", "write_range", "truncate"}
    assert {argument for name, argument in calls if name != "connect"} == {"place"}


@pytest.mark.parametrize("kept", [(), ("/data/lock", "/data/deep/lock")])
def test_folders_are_listed_and_copied_in_the_image_and_shown_by_their_own_names(kept: Collection[str]) -> None:
    async def body() -> None:
        machine, journal = Machine(), Journal()
        node = await found(machine, journal=journal)
        machine.output = f"17 4 {ROOT}/var/data/x"
        spared = [path.replace("/data", f"{ROOT}/var/data") for path in kept]
        assert await node.contents("/data", kept) == {"/data/x": "4 17"}
        assert machine.commands[-1] == data_folders.contents_command(f"{ROOT}/var/data", spared)
        machine.output = ""
        await node.remove_contents("/data", kept)
        assert machine.commands[-1] == data_folders.remove_command(f"{ROOT}/var/data", spared, ROOT)
        await node.save("/data", kept)
        assert machine.commands[-1] == data_folders.copy_command(f"{ROOT}/var/data", spared)
        assert journal.noted == [["rm", "-rf", f"{ROOT}/var/data.assay-copy"]]
        await node.restore("/data", kept)
        assert machine.commands[-1] == data_folders.restore_command(f"{ROOT}/var/data", spared, ROOT)

    asyncio.run(body())


def test_a_mount_inside_of_a_folder_of_the_image_keeps_its_data(tmp_path: Path) -> None:
    """The list of mounts is that of the target's process."""
    root = tmp_path / "7" / "root"
    (root / "data" / "inner").mkdir(parents=True)
    (root / "data" / "file").write_text("x")
    mounts = root.parent / data_folders.MOUNTS
    command = data_folders.remove_command(f"{root}/data", (), str(root))
    mounts.write_text("1 1 0:1 / / rw\n2 1 0:2 / /data/inner rw\n")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == data_folders.MOUNT_INSIDE
    assert done.stderr.startswith("/data/inner is mounted inside of /data, so nothing is deleted there")
    assert (root / "data" / "file").exists()
    mounts.write_text("1 1 0:1 / / rw\n2 1 0:2 / /data rw\n3 1 0:2 / /database rw\n")
    subprocess.run(["sh", "-c", command], check=True)
    assert list((root / "data").iterdir()) == []


def test_a_start_is_described_on_standard_input_and_its_user_is_that_of_the_container() -> None:
    async def body() -> None:
        machine = Machine()
        program = Program(["serve", "a b"], "", {"A": "b"}, "alice", ["/data/", "/etc/b"])
        node = await found(machine, program=program)
        await node.start()
        assert machine.commands[-1].endswith(f"launch {ROOT}\n")
        assert json.loads(machine.said[-1]) == {
            "argv": ["serve", "a b"], "environment": {"A": "b"}, "owned": ["/data/", "/etc/b"], "needed": [],
            "pid_file": "/run/assay/main.pid", "log": process.LOG, "uid": 1000, "gid": 1001,
        }  # fmt: skip

    asyncio.run(body())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"user": "bob"}, "main cannot run as user bob, because its image runs unchanged"),
        ({"argv": ["a\0b"]}, "main cannot be started: .* has a NUL"),
    ],
)
def test_a_start_that_cannot_be_as_asked_is_refused(changed: Mapping[str, Any], said: str) -> None:
    async def body() -> None:
        settings: dict[str, Any] = {"argv": ["serve"], "folder": "", "environment": {}, "user": "alice", **changed}
        node = await found(Machine(), program=Program(**settings))
        with pytest.raises(NodeError, match=said):
            await node.start()

    asyncio.run(body())


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", target.command(*arguments)], capture_output=True, text=True, check=False)


@as_root
def test_links_of_the_image_lead_to_files_of_the_image(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "run").symlink_to("/run")
    (tmp_path / "up").symlink_to("../../../etc")
    (tmp_path / "run" / "one").write_text("1")
    (tmp_path / "run" / "two").symlink_to("/run/one")
    (tmp_path / "run" / "folder").mkdir()
    done = run_module("resolve", str(tmp_path), "/var/run/one", "/up/passwd", "/var/run/absent/x", "/")
    assert json.loads(done.stdout) == ["/run/one", "/etc/passwd", "/run/absent/x", "/"]
    assert json.loads(run_module("find", str(tmp_path), "/var/run/*").stdout) == {"/var/run/one": 1, "/var/run/two": 1}
    assert json.loads(run_module("find", str(tmp_path), "/var/run/x*").stdout) == {}


def test_a_target_that_has_ended_is_an_error_and_no_missing_file() -> None:
    done = run_module("resolve", "/proc/0/root", "/data")
    assert done.returncode == 1
    assert "has ended" in done.stderr or "not permitted" in done.stderr


@as_root
def test_files_and_folders_are_made_for_their_user(tmp_path: Path) -> None:
    owned = [f"{tmp_path}/data/deep/", f"{tmp_path}/logs/one.log"]
    target.make_paths([f"{tmp_path}/needed/"], owned, 1000, 1001)
    target.make_paths([], owned, 1000, 1001)
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in tmp_path.rglob("*")}
    mine, roots = (1000, 1001), (0, 0)
    assert owners == {"data": roots, "deep": mine, "logs": mine, "one.log": mine, "needed": roots}
    target.make_paths([], [f"{tmp_path}/other/file", f"{tmp_path}/third/"], 0, 0)
    assert [path.exists() for path in (tmp_path / "other" / "file", tmp_path / "other", tmp_path / "third")] == [
        False, True, True,
    ]  # fmt: skip


def find_loader_here(program: str) -> dict[str, str]:
    argv = ["sh", "-c", target.command("find_loader", "/", str(os.getpid()), program)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@as_root
def test_the_loader_of_a_program_is_the_one_that_lists_what_it_loads(tmp_path: Path) -> None:
    found = find_loader_here("sh")
    assert found["program"].endswith("/sh")
    listed = subprocess.run([found["loader"], "--list", found["program"]], check=True, capture_output=True, text=True)
    assert "libc" in listed.stdout
    script = tmp_path / "script"
    for first, program in (("#!/bin/sh -e", "/bin/sh"), ("#!/usr/bin/env sh", "sh")):
        script.write_text(f"{first}\n")
        assert find_loader_here(str(script)) == find_loader_here(program)
    script.write_text("#!/no/such/program\n")
    with pytest.raises(RuntimeError, match="/no/such/program: no such file in the image"):
        find_loader_here(str(script))
    script.write_text(f"#!{script}\n")
    assert find_loader_here(str(script))["loader"] == "", "a circle of scripts ends"


@given(st.binary(max_size=200), st.sampled_from([b"\1\1", b"\2\1", b"\1\2", b"\2\2", b"\0\0"]))
def test_a_damaged_program_has_no_loader_or_some_text(rest: bytes, kind: bytes) -> None:
    assert isinstance(target.parse_loader(b"\x7fELF" + kind + rest), str)
    assert target.parse_loader(rest) == ""


@pytest.mark.parametrize("wide", [False, True])
def test_the_loader_is_that_of_the_header_of_its_type(wide: bool) -> None:
    """Both classes of elf(5), with two program headers of which the second names the loader."""
    word, size, count = "Q" if wide else "I", 56 if wide else 32, 2
    header = bytearray(64)
    header[:6] = b"\x7fELF" + (b"\2" if wide else b"\1") + b"\1"
    struct.pack_into(f"<{word}", header, 32 if wide else 28, 64)
    struct.pack_into("<HH", header, 54 if wide else 42, size, count)
    entries = bytearray(size * count)
    struct.pack_into("<I", entries, 0, 1)
    struct.pack_into("<I", entries, size, target.PT_INTERP)
    struct.pack_into(f"<{word}", entries, size + (8 if wide else 4), 64 + size * count)
    assert target.parse_loader(bytes(header + entries) + b"/lib/ld.so\0rest") == "/lib/ld.so"
    assert target.parse_loader(bytes(header + entries[:size])) == "", "the file ends too early"


def test_without_a_container_of_its_own_nothing_runs_in_the_image() -> None:
    with pytest.raises(NodeError, match="runs in no container of its own"):
        asyncio.run(make_node(Machine()).run_in_image(["true"]))
