"""The tracer of a second copy: it counts the changes to files of one folder, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.cluster.ssh import tracing
from assay.cluster.ssh.second_copy import parse_changes


@dataclass(frozen=True)
class Traced:
    """Trace of a single command."""

    changes: int | None
    not_proved: str | None
    status: str
    output: str


class Traces:
    """Runs commands beside a folder ``data`` that holds the file ``old`` of three bytes and the folder ``sub``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        (self.data / "sub").mkdir(parents=True)
        (self.data / "old").write_text("abc")
        (root / "link").symlink_to(self.data)

    def run(self, argv: list[str], folder: str | None = None, spared: str = "") -> Traced:
        counts, status = self.root / "counts", self.root / "status"
        given = str(self.data) if folder is None else folder
        command = tracing.command(argv, given, spared, str(counts), str(status))
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True)
        return Traced(*parse_changes(counts.read_text()), status.read_text().strip(), done.stdout + done.stderr)

    def python(self, code: str, spared: str = "") -> Traced:
        """Runs and traces lines of Python. The data folder is ``data``, the files of it are ``old`` and ``sub``."""
        return self.run([sys.executable, "-ISc", f"import os\n{code}"], spared=spared)


@pytest.fixture(scope="module")
def possible(tmp_path_factory: pytest.TempPathFactory) -> None:
    seen = Traces(tmp_path_factory.mktemp("trial")).run(["true"])
    if seen.not_proved is not None and "ptrace" in seen.not_proved:
        pytest.skip(seen.not_proved)


@pytest.fixture
def traces(possible: None, tmp_path: Path) -> Traces:
    return Traces(tmp_path)


ABSOLUTE = "open_ = lambda flags, name='data/old': os.open(os.path.abspath(name), flags)\n"


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("os.write(open_(os.O_WRONLY), b'x')", 1),
        ("f = open_(os.O_RDWR)\nfor n in range(3): os.pwrite(f, b'x', n)", 3),
        ("os.writev(open_(os.O_WRONLY), [b'x', b'y'])", 1),
        ("os.sendfile(open_(os.O_WRONLY), os.open('/etc/passwd', os.O_RDONLY), 0, 9)", 1),
        ("os.copy_file_range(open_(os.O_RDONLY), open_(os.O_WRONLY | os.O_CREAT, 'data/new'), 3)", 2),
        ("os.ftruncate(open_(os.O_WRONLY), 1)", 1),
        ("os.truncate('data/old', 1)", 1),
        ("os.posix_fallocate(open_(os.O_WRONLY), 0, 100)", 1),
        ("open_(os.O_WRONLY | os.O_TRUNC)", 1),
        ("open_(os.O_WRONLY | os.O_CREAT, 'data/new')", 1),
        ("open('data/new', 'w').close()", 1),
        ("os.mkdir('data/new')", 1),
        ("os.rmdir('data/sub')", 1),
        ("os.unlink('data/old')", 1),
        ("os.rename('data/old', 'data/sub/new')", 1),
        ("os.rename('data/old', 'outside')", 1),
        ("open('outside', 'w').close()\nos.rename('outside', 'data/new')", 1),
        ("os.link('data/old', 'data/new')", 1),
        ("os.symlink('/', 'data/new')", 1),
        ("os.unlink('old', dir_fd=os.open('data', os.O_RDONLY))", 1),
        ("os.chdir('data/sub')\nos.unlink('../old')", 1),
        ("os.unlink('link/old')", 1),
        ("import mmap\nmmap.mmap(open_(os.O_RDWR), 3)", 1),
        ("import subprocess\nsubprocess.run(['sh', '-c', 'echo x >> data/old'])", 1),
        ("import threading\nt = threading.Thread(target=os.unlink, args=['data/old'])\nt.start()\nt.join()", 1),
    ],
)
def test_every_way_to_change_a_file_counts(traces: Traces, code: str, changes: int) -> None:
    seen = traces.python(ABSOLUTE + code)
    assert (seen.changes, seen.not_proved, seen.status) == (changes, None, "0"), seen.output


@pytest.mark.parametrize(
    "code",
    [
        "os.read(open_(os.O_RDWR), 3)",
        "open_(os.O_RDWR | os.O_CREAT)",
        "import fcntl\nfcntl.flock(open_(os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)",
        "os.makedirs('data/sub', exist_ok=True)",
        "os.listdir('data')\nos.stat('data/old')",
        "os.fsync(open_(os.O_RDWR))",
        "import mmap\nmmap.mmap(open_(os.O_RDONLY), 3, prot=mmap.PROT_READ)",
        "import mmap\nmmap.mmap(open_(os.O_RDONLY), 3, flags=mmap.MAP_PRIVATE)",
        "try: os.unlink('data/none')\nexcept OSError: pass",
        "try: os.rename('data/none', 'data/new')\nexcept OSError: pass",
        "open('data2', 'w').write('x')",
        "open('outside', 'w').write('x')\nos.unlink('outside')",
        "open('/dev/null', 'w').write('x')",
    ],
)
def test_what_changes_no_file_of_the_folder_does_not_count(traces: Traces, code: str) -> None:
    seen = traces.python(ABSOLUTE + code)
    assert (seen.changes, seen.not_proved, seen.status) == (0, None, "0"), seen.output


def test_the_event_log_of_the_copy_does_not_count(traces: Traces) -> None:
    code = "open('data/events', 'w').write('x')\nopen('data/other', 'w').close()"
    assert traces.python(code, spared=str(traces.data / "events")).changes == 1


def test_a_folder_that_is_named_by_a_link_is_the_folder(traces: Traces) -> None:
    assert traces.run(["rm", f"{traces.data}/old"], folder=str(traces.root / "link")).changes == 1


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["sh", "-c", "exit 7"], "7"),
        (["sh", "-c", "kill -9 $$"], "137"),
        (["sh", "-c", "kill -TERM $$"], "143"),
        (["no-such-program"], "127"),
        (["/"], "126"),
    ],
)
@pytest.mark.parametrize("folder", [None, ""], ids=["traced", "untraced"])
def test_the_exit_status_is_written_down(traces: Traces, argv: list[str], status: str, folder: str | None) -> None:
    assert traces.run(argv, folder).status == status


def test_a_change_after_the_end_of_the_first_process_counts(traces: Traces) -> None:
    os.mkfifo(traces.root / "fifo")
    seen = traces.run(["sh", "-c", "(read none < fifo; echo x >> data/old) & (echo > fifo) & exit 3"])
    assert (seen.changes, seen.status) == (1, "3")


def test_a_program_that_is_stopped_and_goes_on_is_traced_on(traces: Traces) -> None:
    code = (
        "import signal\nif (child := os.fork()) == 0:\n os.kill(os.getpid(), signal.SIGSTOP)\n os.unlink('data/old')\n"
    )
    code += " os._exit(0)\nos.waitpid(child, os.WUNTRACED)\nos.kill(child, signal.SIGCONT)\nos.waitpid(child, 0)"
    seen = traces.python(code)
    assert (seen.changes, seen.status) == (1, "0"), seen.output


def test_signals_reach_the_program_and_those_that_python_ignores_are_as_before(traces: Traces) -> None:
    assert "caught" in traces.run(["sh", "-c", "trap 'echo caught' USR1; kill -USR1 $$"]).output
    assert traces.run(["sh", "-c", "kill -PIPE $$"]).status == "141"


def test_a_system_that_does_not_say_where_its_data_are_has_no_proof(traces: Traces) -> None:
    seen = traces.run(["sh", "-c", "echo x >> data/old"], folder="")
    assert seen.changes is None
    assert seen.not_proved is not None
    assert "method data_folder" in seen.not_proved


def test_what_cannot_be_followed_is_no_proof(traces: Traces) -> None:
    """425 is io_uring_setup on every architecture."""
    seen = traces.python("import ctypes\nctypes.CDLL(None).syscall(425, 1, 0)\nos.unlink('data/old')")
    assert seen.changes == 1
    assert seen.not_proved is not None
    assert "io_uring" in seen.not_proved
