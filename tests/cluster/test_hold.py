"""The program that holds an image without a shell, as an ordinary process: it starts others and outlives them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.docker import preload, target_container
from assay.cluster.docker.preload import PreloadError
from assay.cluster.ssh import target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets and /proc are Linux's")
TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)
NAMES = st.text("ABC_", min_size=1, max_size=5)


@dataclass
class Hold:
    """A running ``hold``, and the files that it is given for each process."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    number: int = 0
    started: list[int] = field(default_factory=list)

    def start(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        """Returns the reason why the process was not started; empty if it was."""
        self.log, self.pid_file = self.folder / "log", self.folder / "pid"
        with self.log.open("ab") as log, self.pid_file.open("wb") as pid_file:
            request = target.encode_start(argv, environment or {})
            reason = target.request_start(self.name, request, log.fileno(), pid_file.fileno())
        if not reason:
            self.started.append(self.read_pid()[0])
        return reason

    def read_pid(self) -> tuple[int, int]:
        pid, began = map(int, self.pid_file.read_text().split())
        return pid, began


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which(preload.COMPILER) is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("hold") / "hold"
    try:
        path.write_bytes(preload.compile_here(target_container.HOLD))
    except PreloadError as error:
        pytest.skip(f"no static C library: {error}")
    path.chmod(0o755)
    return path


def ignore_internal_signal() -> None:
    """Ignores signal 32, which the C library keeps to itself. A parent may leave its children so."""
    call = {"x86_64": 13, "aarch64": 134}.get(platform.machine())
    if call is not None:
        ignored = (ctypes.c_ulong * 8)(signal.SIG_IGN)
        ctypes.CDLL(None).syscall(call, 32, ctypes.byref(ignored), None, 8)


@pytest.fixture
def hold(program: Path, tmp_path: Path) -> Iterator[Hold]:
    name = f"assay-test-{os.getpid()}-{tmp_path.name}"
    environment = {"PATH": os.environ["PATH"], "KEPT": "kept", "CHANGED": "before"}
    process = subprocess.Popen([program, name], env=environment, cwd=tmp_path, preexec_fn=ignore_internal_signal)
    hold = Hold(name, tmp_path, process)
    try:
        assert target.look(name) == {"pid": process.pid, "uid": os.getuid(), "gid": os.getgid()}
        yield hold
    finally:
        process.kill()
        process.wait()
        for pid in hold.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def until_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "not within 10 s"
        time.sleep(0.01)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_process_has_its_command_and_environment_and_leads_a_session(hold: Hold) -> None:
    script = 'echo "$KEPT $CHANGED $1|$2|"; pwd; trap; read nothing || echo empty; exec sleep 1000'
    argv = ["sh", "-c", script, "sh", "two words", ""]
    assert hold.start(argv, {"CHANGED": "a=b"}) == ""
    until_true(lambda: hold.log.read_text().endswith("empty\n"))
    assert hold.log.read_text() == f"kept a=b two words||\n{hold.folder}\nempty\n"
    pid, began = hold.read_pid()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    assert [int(fields[index]) for index in (1, 3, 19)] == [hold.process.pid, pid, began], "parent, session, start"
    descriptors = {name: os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    assert descriptors == {"0": "/dev/null", "1": str(hold.log), "2": str(hold.log)}


def test_a_process_that_ended_is_reaped_and_another_can_be_started(hold: Hold) -> None:
    for number in range(3):
        assert hold.start(["sh", "-c", f"echo {number}; exec sleep 1000"]) == ""
        pid, _ = hold.read_pid()
        os.kill(pid, signal.SIGKILL)
        until_true(lambda pid=pid: not exists(pid))
    assert hold.process.poll() is None
    assert set(hold.log.read_text().split()) <= {"0", "1", "2"}


def test_signals_are_as_after_a_start_by_an_engine(hold: Hold) -> None:
    assert hold.start(["sleep", "1000"]) == ""
    status = Path(f"/proc/{hold.read_pid()[0]}/status").read_text().splitlines()
    masks = dict(line.split(":\t") for line in status if line.startswith("Sig"))
    assert [int(masks[name], 16) for name in ("SigBlk", "SigIgn")] == [0, 0]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-program", "no-such-program: no such file in the image"),
        ("./absent", "./absent: no such file in the image"),
        ("./plain", "./plain: Permission denied"),
        ("./orphan", "./orphan: its interpreter or loader is not in the image"),
        ("./nonsense", "./nonsense: Exec format error"),
        ("", ": no such file in the image"),
    ],
)
def test_a_program_that_cannot_be_executed_is_named_with_the_reason(hold: Hold, command: str, reason: str) -> None:
    for name, content, mode in (
        ("plain", "", 0o644), ("orphan", "#!/no/interpreter\n", 0o755), ("nonsense", "nonsense", 0o755)
    ):  # fmt: skip
        (hold.folder / name).write_text(content)
        (hold.folder / name).chmod(mode)
    assert hold.start([command, "argument"]) == reason
    assert hold.pid_file.read_text() == "", "no process counts as started"
    assert hold.start(["sleep", "1000"]) == "", "the next one is"


def test_a_program_is_looked_for_in_the_path_of_its_own_environment(hold: Hold) -> None:
    (hold.folder / "bin").mkdir()
    (hold.folder / "bin" / "mine").symlink_to(shutil.which("sleep") or "")
    assert hold.start(["mine", "1000"]) == "mine: no such file in the image"
    assert hold.start(["mine", "1000"], {"PATH": f"/nowhere:{hold.folder}/bin"}) == ""


@pytest.mark.parametrize("request_bytes", [b"", b"2\0sh\0", b"0\0", b"x\0sh\0", b"1\0sh", b"-1\0sh\0"])
def test_a_damaged_request_starts_nothing_and_harms_nothing(hold: Hold, request_bytes: bytes) -> None:
    with (hold.folder / "log").open("ab") as log, (hold.folder / "pid").open("wb") as pid_file:
        assert target.request_start(hold.name, request_bytes or b"\0", log.fileno(), pid_file.fileno())
        assert os.fstat(pid_file.fileno()).st_size == 0
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{hold.name}")
        connection.sendall(request_bytes)  # without descriptors
    assert hold.start(["sleep", "1000"]) == ""


def test_it_ends_by_a_signal_and_its_processes_live_on(hold: Hold) -> None:
    assert hold.start(["sleep", "1000"]) == ""
    hold.process.send_signal(signal.SIGTERM)
    assert hold.process.wait(10) == -signal.SIGTERM
    assert exists(hold.read_pid()[0])


@given(st.lists(TEXT, min_size=1, max_size=5), st.dictionaries(NAMES, TEXT, max_size=5))
def test_a_request_has_the_number_of_arguments_then_these_then_the_environment(
    argv: list[str], environment: dict[str, str]
) -> None:
    request = target.encode_start(argv, environment)
    assert request.endswith(b"\0")
    number, *texts = os.fsdecode(request[:-1]).split("\0")
    assert texts[: int(number)] == argv
    assert dict(text.split("=", 1) for text in texts[int(number) :]) == environment


@pytest.mark.parametrize(("argv", "environment"), [(["a\0b"], {}), (["a"], {"A": "b\0"}), (["a"], {"A\0": "b"})])
def test_a_text_with_a_nul_is_refused(argv: list[str], environment: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="has a NUL"):
        target.encode_start(argv, environment)
