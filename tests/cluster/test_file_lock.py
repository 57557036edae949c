"""A lock among processes: exclusive, released by death, and waited for with a word and a limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.cluster import file_lock, leftovers
from assay.cluster.docker import image
from assay.cluster.file_lock import LockHeldError, hold_lock
from assay.cluster.journal import RunOnHost, UndoJournal
from assay.cluster.ssh.ssh_address import SshAddress

HOLD = """
import sys, time
from pathlib import Path
from assay.cluster.file_lock import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def hold_elsewhere(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "a.lock"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = hold_elsewhere(path)
    yield process
    process.kill()
    process.communicate()


def test_a_waiter_names_the_holder_and_gives_up_at_its_limit(
    path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(file_lock, "ANNOUNCE_AFTER", 0.0)
    with (
        pytest.raises(LockHeldError, match=rf"a\.lock is held by process {holder.pid}, .*try again"),
        hold_lock(path, 0.2),
    ):
        pytest.fail("two hold the lock")
    assert f"assay: waiting for process {holder.pid}, which holds {path}, for at most 0 s" in capsys.readouterr().err


def test_a_stopped_process_keeps_its_lock_and_a_killed_one_does_not(path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGSTOP)
    with pytest.raises(LockHeldError), hold_lock(path, 0.1):
        pytest.fail("two hold the lock")
    holder.kill()
    with hold_lock(path, 60.0):
        pass


def test_the_file_keeps_its_content_and_a_link_is_rejected(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.write_text("precious")
    with hold_lock(path):
        pass
    assert path.read_text() == "precious"
    link = tmp_path / "link.lock"
    link.symlink_to(path)
    with pytest.raises(OSError, match="link"), hold_lock(link):
        pass
    pipe = tmp_path / "pipe.lock"
    os.mkfifo(pipe)
    with hold_lock(pipe):  # opened without waiting for a reader; the kernel locks it like a file
        pass


def test_a_build_of_images_that_waits_too_long_is_an_image_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(image, "BUILD_LOCK_SECONDS", 0.1)
    process = hold_elsewhere(tmp_path / "assay" / "image.lock")
    try:
        with pytest.raises(image.ImageError, match=f"process {process.pid}"), image.hold_build_lock():
            pytest.fail("two build")
    finally:
        process.kill()
        process.communicate()


def test_healing_reports_hosts_that_another_session_is_undoing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = UndoJournal(tmp_path, "run-1")
    journal.append(RunOnHost(SshAddress("127.0.0.1", "u", "key", "host key"), ("touch", str(tmp_path / "undone"))))
    journal.close(finished=False)
    monkeypatch.setattr(leftovers, "hold_lock", lambda path: hold_lock(path, 0.1))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    process = hold_elsewhere(tmp_path / "hosts.lock")
    try:
        report = leftovers.heal(state=tmp_path)
    finally:
        process.kill()
        process.communicate()
    assert len(report.failed) == 1
    assert report.failed[0].startswith(f"run-1: {tmp_path}/hosts.lock is held by process {process.pid}")
    assert journal.path.exists(), "a later sweep undoes it"
