"""The target of a node: the container of an image that runs unchanged. The node shares its processes and network.

The node has the tools, the *target* has the files of the system and starts its processes. A program, ``hold``
(``cluster/docker/hold.c``), runs in the target as long as the node lives. It starts processes on request, at an
abstract Unix socket, which belongs to the common network. Signals, ``/proc``, packet rules and packets of the node
concern the system's processes as if there were one container.

The target's files are at ``/proc/PID/root``, where PID is that of ``hold``. An absolute symbolic link in there would
lead to a file of the node. So paths are first resolved by a process whose root folder is the target's.

This module runs on the node, by :func:`command`, with the standard library alone and as root. It prints one JSON value.
On failure it prints the reason and exits with code 1. It imports only what starts fast, because it runs before each use
of a file.
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import socket
import stat
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

SOCKET: Final = "assay-hold"
"""Name of the abstract socket at which ``hold`` listens."""
LOOK_SECONDS: Final = 10.0
"""Maximum seconds until ``hold`` listens."""
ANSWER_SECONDS: Final = 20.0
"""Maximum seconds until ``hold`` has started a process."""
HEADER_BYTES: Final = 65536
"""Bytes at the beginning of a program, which have its headers."""
PT_INTERP: Final = 3
"""Type of the program header that names the loader."""
MAX_SCRIPTS: Final = 4
"""Maximum number of scripts that are interpreters of each other."""


class Target(NamedTuple):
    """A target, as the node sees it.

    - ``pid``: of ``hold``
    - ``uid``, ``gid``: of its processes
    - ``user``: the user with whom its container was made; None if the image names none
    """

    pid: int
    uid: int
    gid: int
    user: str | None = None

    @property
    def root(self) -> str:
        """The path of the target's root folder on the node."""
        return f"/proc/{self.pid}/root"


def command(what: str, *arguments: str) -> str:
    """Returns the shell command that runs one of the functions below on the node, such as :func:`look`."""
    with open(__file__) as source:
        return shlex.join(["python3", "-ISc", source.read(), what, *arguments])


def encode_start(argv: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """Returns the request to start a process, as ``hold`` reads it. Raises ``ValueError`` for a text with a NUL."""
    texts = [str(len(argv)), *argv, *(f"{name}={value}" for name, value in sorted(environment.items()))]
    if damaged := next((text for text in texts if "\0" in text), None):
        raise ValueError(f"{damaged!r} has a NUL, which no argument and no variable of a process can have")
    return b"".join(os.fsencode(text) + b"\0" for text in texts)


def look(name: str = SOCKET) -> dict[str, int]:
    """Returns ``pid``, ``uid`` and ``gid`` of ``hold``. Raises ``RuntimeError`` if the target cannot be used."""
    deadline = time.monotonic() + LOOK_SECONDS
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(f"\0{name}")
                packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("=3i"))
            break
        except ConnectionRefusedError as error:
            if time.monotonic() >= deadline:
                raise RuntimeError(f"the container of the image does not answer within {LOOK_SECONDS:g} s") from error
            time.sleep(0.02)
    pid, uid, gid = struct.unpack("=3i", packed)
    if pid == 0:
        raise RuntimeError("the container of the image does not share the node's processes")
    return {"pid": pid, "uid": uid, "gid": gid}


def resolve(root: str, *paths: str) -> list[str]:
    """Returns the paths without symbolic links. A path need not exist."""
    _enter(root)
    return [os.path.realpath(path) for path in paths]


def find(root: str, pattern: str) -> dict[str, int]:
    """Maps each file that matches the pattern to its size."""
    _enter(root)
    found = {}
    for path in glob.glob(pattern):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            found[path] = status.st_size
    return found


def launch(root: str) -> None:
    """Starts the process that standard input describes (:func:`describe_start`). Raises ``RuntimeError``."""
    start = json.load(sys.stdin)
    _prepare_paths(root, start)
    log = os.open(start["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.fchown(log, start["uid"], start["gid"])  # a process may open its /dev/stdout
    pid_file = os.open(start["pid_file"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    if reason := request_start(SOCKET, encode_start(start["argv"], start["environment"]), log, pid_file):
        raise RuntimeError(f"the process could not be started: {reason}")


def request_start(name: str, request: bytes, log: int, pid_file: int) -> str:
    """Sends a request to ``hold``. Returns the reason of a failure; empty if the process was started.

    - ``name``: of the abstract socket
    - ``log``, ``pid_file``: descriptors of open files
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(f"\0{name}")
        sent = socket.send_fds(connection, [request], [log, pid_file])
        connection.sendall(request[sent:])
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    if not answer and os.fstat(pid_file).st_size == 0:
        return "the container of the image has not accepted the command"
    return answer.decode("utf-8", "replace")


def describe_start(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    owned: Sequence[str],
    needed: Sequence[str],
    pid_file: str,
    log: str,
    target: Target,
) -> bytes:
    """Returns the standard input of :func:`launch`. See :func:`assay.cluster.ssh.process.launch_command`."""
    encode_start(argv, environment)  # raises ValueError here, not on the node
    start = {"argv": list(argv), "environment": dict(environment), "owned": list(owned), "needed": list(needed)}
    return json.dumps({**start, "pid_file": pid_file, "log": log, "uid": target.uid, "gid": target.gid}).encode()


def _enter(root: str) -> None:
    """Makes the target's root folder that of this process."""
    try:
        os.chroot(root)
    except FileNotFoundError as error:
        raise RuntimeError("the container of the image has ended; `docker logs` of it says more") from error
    os.chdir("/")


def _prepare_paths(root: str, start: Mapping[str, Any]) -> None:
    """Creates the process's files and folders, in a child, because a change of the root folder is for good."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _enter(root)
            make_paths(start["needed"], start["owned"], start["uid"], start["gid"])
            code = 0
        except (OSError, RuntimeError) as error:
            print(error, file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise RuntimeError("its files and folders could not be made in the image's file system")


def execute(root: str, pid: str, uid: str, gid: str) -> None:
    """Becomes the program that standard input describes (``argv``, ``environment``), in the target.

    Its environment is extended. Everything else is as of ``hold``, whose process is ``pid``.
    """
    start = json.load(sys.stdin)
    variables = _enter_as(root, pid)
    if int(uid) != 0:
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    os.execvpe(start["argv"][0], start["argv"], {**variables, **start["environment"]})


def find_loader(root: str, pid: str, program: str) -> dict[str, str]:
    """Returns the path of a program, and of the loader that its ELF file names; empty if it names none.

    The program of a script is its interpreter. Raises ``RuntimeError`` if there is no such program.
    """
    folders = _enter_as(root, pid).get("PATH", "/bin:/usr/bin").split(":")
    for _ in range(MAX_SCRIPTS):
        tried = [program] if "/" in program else [os.path.join(folder, program) for folder in folders]
        path = next((one for one in tried if os.path.isfile(one)), None)
        if path is None:
            raise RuntimeError(f"{program}: no such file in the image")
        with open(path, "rb") as file:
            start = file.read(HEADER_BYTES)
        if not start.startswith(b"#!"):
            return {"program": path, "loader": parse_loader(start)}
        words = start[2:].split(b"\n")[0].decode("utf-8", "replace").split() or [""]
        program = words[1] if os.path.basename(words[0]) == "env" and len(words) > 1 else words[0]
    return {"program": program, "loader": ""}


def parse_loader(start: bytes) -> str:
    """Returns the loader that an ELF file names (PT_INTERP of elf(5)); empty if it names none, as a static one.

    ``start``: the first bytes of the file
    """
    if start[:4] != b"\x7fELF" or len(start) < 64:
        return ""
    wide, order = start[4] == 2, "<" if start[5] == 1 else ">"
    offset = struct.unpack_from(f"{order}Q" if wide else f"{order}I", start, 32 if wide else 28)[0]
    size, count = struct.unpack_from(f"{order}HH", start, 54 if wide else 42)
    for at in range(offset, offset + size * count, size or 1):
        if at + max(size, 16) > len(start) or struct.unpack_from(f"{order}I", start, at)[0] != PT_INTERP:
            continue
        place = struct.unpack_from(f"{order}Q" if wide else f"{order}I", start, at + (8 if wide else 4))[0]
        return start[place:].partition(b"\0")[0].decode("utf-8", "replace")
    return ""


def _enter_as(root: str, pid: str) -> dict[str, str]:
    """Enters the target, in the working folder of the process ``pid``. Returns the environment of that process."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        variables = [entry.partition(b"=") for entry in file.read().split(b"\0") if entry]
    folder = os.open(f"/proc/{pid}/cwd", os.O_RDONLY | os.O_DIRECTORY)
    _enter(root)
    os.fchdir(folder)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in variables}


def make_paths(needed: Sequence[str], owned: Sequence[str], uid: int, gid: int) -> None:
    """Creates missing files, and folders (with a ``/`` at the end). ``owned`` ones are given to the user.

    For root only the folders are created, because root can create files anywhere.
    """
    for path in [*needed, *(owned if uid == 0 else ())]:
        os.makedirs(path.rpartition("/")[0] or "/", exist_ok=True)
    for path in owned if uid != 0 else ():
        folder, _, name = path.rpartition("/")
        if not os.path.isdir(folder or "/"):
            os.makedirs(folder)
            os.chown(folder, uid, gid)
        if name:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
        os.chown(path, uid, gid)


def main(what: str, *arguments: str) -> int:
    actions = {
        **{"look": look, "resolve": resolve, "find": find},
        **{"launch": launch, "execute": execute, "find_loader": find_loader},
    }
    try:
        print(json.dumps(actions[what](*arguments)))  # type: ignore[operator]
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
