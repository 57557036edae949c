"""The shell of a node's processes and files, on this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals
from typing import Any

import pytest

from assay.cluster.node import ProcessState
from assay.cluster.sidecars import Sidecar
from assay.cluster.ssh import data_folders, process
from assay.cluster.ssh.node_processes import Program, add_sidecars

GONE = """#!/bin/sh
case $3 in *gone) rm "$3";; esac
exec /usr/bin/stat "$@"
"""
"""A ``stat`` in whose way a file is removed: the system deletes what it needs no more at any moment."""


def sizes(pattern: str, path: str) -> dict[str, int]:
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["sh", "-c", process.files_command(pattern)], env=environment, capture_output=True, text=True, check=True
    )
    return process.parse_files(run.stdout)


def test_a_file_that_is_removed_while_files_are_looked_for_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a", "b.gone", "c"):
        (tmp_path / "data" / name).write_text(name)
    stat = tmp_path / "stat"
    stat.write_text(GONE)
    stat.chmod(0o755)
    assert sizes(f"{tmp_path}/data/*", str(tmp_path)) == {f"{tmp_path}/data/a": 1, f"{tmp_path}/data/c": 1}
    assert sizes(f"{tmp_path}/none/*", str(tmp_path)) == {}


def test_a_file_that_is_there_and_cannot_be_looked_at_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    stat = tmp_path / "stat"
    stat.write_text("#!/bin/sh\nexit 1\n")
    stat.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError):
        sizes(f"{tmp_path}/a", str(tmp_path))


FORKING = """
import subprocess, time
while True:
    subprocess.Popen(["sleep", "30"])
    time.sleep(0.002)
"""
"""A process that starts children all the while, as a server does that has one for each connection."""


APART = """
import subprocess, sys, time
for _ in range(3):
    two = f"setsid sleep {sys.argv[1]} & setsid sleep {sys.argv[1]}; :"
    subprocess.Popen(["sh", "-c", two], start_new_session=True)
time.sleep(600)
"""
"""A process whose children, and theirs, lead sessions of their own, as PostgreSQL's do."""


def shell(command: str) -> str:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, timeout=30).stdout


@contextmanager
def forking(folder: Path) -> Iterator[str]:
    """The id of the main process, which leads a session of that number."""
    pid = shell(process.launch_command([sys.executable, "-c", FORKING], folder=str(folder), environment={})).split()[0]
    try:
        while not any(states(pid)[1:]):
            pass
        yield pid
    finally:
        shell(process.tolerate_missing(process.kill_command()))
        shell(f"pkill -KILL -s {pid} || true")


def states(session: str) -> list[str]:
    """Returns the states of the main process and all children, without zombies."""
    return [state for state in shell(f"ps -s {session} -o state= || true").split() if state != "Z"]


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FOLDER", f"{tmp_path}/run")
    monkeypatch.setattr(process, "LOG", f"{tmp_path}/log/process.log")


@pytest.mark.usefixtures("own_folders")
def test_children_that_are_started_while_it_is_killed_are_killed_as_well(tmp_path: Path) -> None:
    for _ in range(3):
        with forking(tmp_path) as session:
            shell(process.kill_command())
            assert states(session) == []


@pytest.mark.usefixtures("own_folders")
def test_children_that_are_started_while_it_is_stopped_are_stopped_as_well(tmp_path: Path) -> None:
    for _ in range(5):
        with forking(tmp_path) as session:
            shell(process.stop_command())
            assert set(states(session)) == {"T"}
            shell(process.resume_command())
            assert "T" not in states(session)


@contextmanager
def apart(folder: Path) -> Iterator[str]:
    """How long what it has started sleeps, which no one else does."""
    seconds = f"6{os.getpid()}"
    shell(process.launch_command([sys.executable, "-c", APART, seconds], folder=str(folder), environment={}))
    try:
        while len(sleeping(seconds)) < 6:
            pass
        yield seconds
    finally:
        shell(process.tolerate_missing(process.kill_command()))
        shell(f"pkill -KILL -x -f 'sleep {seconds}' || true")


def sleeping(seconds: str) -> list[str]:
    """The states of those that sleep for so long."""
    found = shell(f"pgrep -x -f 'sleep {seconds}' | xargs -r -n 1 ps -o state= -p || true").split()
    return [state for state in found if state != "Z"]


@pytest.mark.usefixtures("own_folders")
def test_children_with_sessions_of_their_own_are_killed_as_well(tmp_path: Path) -> None:
    with apart(tmp_path) as seconds:
        shell(process.kill_command())
        assert sleeping(seconds) == []


@pytest.mark.usefixtures("own_folders")
def test_children_with_sessions_of_their_own_are_stopped_and_go_on_as_well(tmp_path: Path) -> None:
    with apart(tmp_path) as seconds:
        shell(process.stop_command())
        assert sleeping(seconds) == ["T"] * 6
        shell(process.resume_command())
        assert sleeping(seconds) == ["S"] * 6


@pytest.mark.usefixtures("own_folders")
def test_what_the_end_of_a_process_leaves_of_such_children_is_killed(tmp_path: Path) -> None:
    with apart(tmp_path) as seconds:
        shell(process.ending_command("kill -KILL $pid"))
        assert sleeping(seconds) == []


@pytest.mark.usefixtures("own_folders")
def test_what_is_no_child_is_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        with apart(tmp_path):
            shell(process.stop_command())
            shell(process.kill_command())
        assert shell(f"ps -o state= -p {other.pid}").strip() == "S"
    finally:
        other.kill()
        other.wait()


@pytest.mark.usefixtures("own_folders")
@pytest.mark.parametrize("by", [Signals.SIGTERM, Signals.SIGINT, Signals.SIGQUIT])
def test_a_process_ends_at_its_stop_signal(tmp_path: Path, by: Signals) -> None:
    shell(process.launch_command(["sleep", "60"], folder=str(tmp_path), environment={}, stop_signal=by))
    try:
        shell(process.terminate_command(by=by))
        assert process.parse_status(shell(process.status_command())).state is ProcessState.DEAD
    finally:
        shell(process.tolerate_missing(process.kill_command()))


PATIENT = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
"""A process that waits for its clients at SIGTERM, as PostgreSQL does, and ends at SIGINT."""


@pytest.mark.usefixtures("own_folders")
def test_one_that_does_not_heed_sigterm_ends_by_itself_at_its_own_stop_signal(tmp_path: Path) -> None:
    log, argv = Path(process.LOG), [sys.executable, "-c", PATIENT]
    shell(process.launch_command(argv, folder=str(tmp_path), environment={}, stop_signal=Signals.SIGINT))
    try:
        while "up" not in log.read_text():
            pass
        shell(process.terminate_command(by=Signals.SIGINT))
        assert log.read_text().split() == ["up", "interrupted"]
    finally:
        shell(process.tolerate_missing(process.kill_command()))


def launched(folder: Path, *paths: str, **options: Any) -> str:
    """Starts a process that needs these paths below the folder, and ends it. Returns what the machine said."""
    owned = [f"{folder}/{path}" for path in paths]
    command = process.launch_command(["sleep", "60"], folder=str(folder), environment={}, **{"owned": owned} | options)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=30)
    shell(process.tolerate_missing(process.kill_command()))
    return done.stderr


@pytest.mark.usefixtures("own_folders")
def test_a_process_of_root_finds_its_data_folder_and_those_of_its_logs(tmp_path: Path) -> None:
    for _ in range(2):
        assert launched(tmp_path, "var/data/", "var/log/mine/events.jsonl") == ""
        assert sorted(tmp_path.glob("var/**/*")) == [
            tmp_path / "var/data", tmp_path / "var/log", tmp_path / "var/log/mine",
        ]  # fmt: skip
        shutil.rmtree(tmp_path / "var")  # as a process may do to its own folder


@pytest.mark.usefixtures("own_folders")
def test_a_process_does_not_start_where_its_data_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("no folder")
    assert f"{tmp_path}/var" in launched(tmp_path, "var/data/")
    assert process.parse_status(shell(process.status_command())).state is ProcessState.DEAD


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes as another user")
@pytest.mark.usefixtures("own_folders")
def test_a_process_beside_the_main_one_finds_the_data_folder_whichever_user_it_has(tmp_path: Path) -> None:
    main = Program(["main"], "/", {}, "daemon", [f"{tmp_path}/data/", f"{tmp_path}/log/mine/events.jsonl"])
    agent = add_sidecars(main, {"agent": Sidecar(["agent"], user="games")}).sidecars["agent"]
    assert launched(tmp_path, user=agent.user, owned=agent.owned, needed=agent.needed) == ""
    assert (tmp_path / "data").owner() == "root"
    assert not (tmp_path / "log/mine").exists(), "the user of the main process is to own it"
    assert launched(tmp_path, user=main.user, owned=main.owned) == ""
    assert (tmp_path / "data").owner() == (tmp_path / "log/mine").owner() == "daemon"


def test_a_rollback_makes_a_data_folder_that_the_process_has_removed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "file").write_text("kept")
    shell(data_folders.copy_command(str(folder)))
    shutil.rmtree(folder)
    shell(data_folders.restore_command(str(folder)))
    assert (folder / "file").read_text() == "kept"
    shell(data_folders.remove_command(str(folder)))
    assert list(folder.iterdir()) == []


def run_with_mount(place: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command while a file system with the file ``precious`` is mounted at ``place``."""
    mounted = f"mount -t tmpfs none {shlex.quote(str(place))}"
    script = (
        f"{mounted} || exit 99; cd {shlex.quote(str(place))} && touch precious\n({command})\ncode=$?; ls; exit $code"
    )
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or done.returncode == 99:
        pytest.skip("this machine cannot mount in a namespace of its own")
    return done


@pytest.mark.parametrize("kept", [(), ("lock",)])
@pytest.mark.parametrize("what", ["wipe", "rollback"])
@pytest.mark.parametrize("name", ["inside", "with space"])
def test_a_fault_deletes_nothing_that_was_mounted_inside_of_a_data_folder(
    tmp_path: Path, what: str, kept: tuple[str, ...], name: str
) -> None:
    folder = tmp_path / "data"
    (folder / "deep" / name).mkdir(parents=True)
    (folder / "file").write_text("kept")
    shell(data_folders.copy_command(str(folder)))
    locks = [f"{folder}/{one}" for one in kept]
    command = (data_folders.remove_command if what == "wipe" else data_folders.restore_command)(str(folder), locks)
    done = run_with_mount(folder / "deep" / name, command)
    assert (done.returncode, done.stdout) == (data_folders.MOUNT_INSIDE, "precious\n")
    assert done.stderr == (
        f"{folder}/deep/{name} is mounted inside of {folder}, so nothing is deleted there: unmount it\n"
    )
    assert (folder / "file").read_text() == "kept"
    shell(command)
    assert (folder / "file").exists() == (what == "rollback"), "without the mount, the fault goes on"


def test_a_data_folder_that_is_a_mount_itself_is_emptied(tmp_path: Path) -> None:
    """It may be a separate disk. A neighbour whose name begins with that of the folder is not inside of it."""
    (tmp_path / "data").mkdir()
    command = data_folders.remove_command(str(tmp_path / "data"))
    assert (done := run_with_mount(tmp_path / "data", command)).returncode == 0, done.stderr
    assert done.stdout == ""
    (tmp_path / "database").mkdir()
    assert (done := run_with_mount(tmp_path / "database", command)).returncode == 0, done.stderr
    assert done.stdout == "precious\n"
