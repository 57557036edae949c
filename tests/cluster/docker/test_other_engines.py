"""Changes on an engine are undone on that engine alone, wherever ``assay heal`` runs."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from urllib3.exceptions import InsecureRequestWarning

from assay.cluster import journal, leftovers, owner
from assay.cluster.docker import DockerCluster, layer
from assay.cluster.docker.engine import (
    DockerEngineError,
    _describe_remedy,
    identify_engine,
    is_answering,
    list_owned,
    open_docker,
    reach_engine,
    run_labels,
)
from assay.cluster.docker.tools import MACHINE_LABEL
from assay.cluster.docker_endpoint import VARIABLES, Endpoint

from helpers.echo_system import Echo
from helpers.live_cluster import run_of_its_own
from helpers.second_engine import (
    TLS_PORT,
    SecondEngine,
    namespace_pipe,
    second_engine,
    ssh_machine_of,
    tcp_pipe,
    tls_options,
)

pytestmark = pytest.mark.docker

IMAGE = "assay-test-empty"
DEAD = dataclasses.replace(owner.current_owner(), started=1)
CHILD = """
import sys, time
from pathlib import Path
from assay.cluster import journal, owner
from assay.cluster.docker.engine import identify_engine, open_docker, run_labels

state, run_id = Path(sys.argv[1]), sys.argv[2]
undo = journal.UndoJournal(state, run_id, engine=identify_engine())
name = f"assay-{run_id}-n1"
undo.append(journal.RemoveContainer(name))
with open_docker() as client:
    labels = run_labels(run_id, owner.current_owner(), state)
    client.api.create_container("assay-test-empty", command=["/none"], name=name, labels=labels)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondEngine]:
    folder = tmp_path_factory.mktemp("e")
    with second_engine(folder, *tls_options(folder / "tls")) as engine:
        nothing = io.BytesIO()
        tarfile.open(fileobj=nothing, mode="w").close()
        engine.docker("import", "-", IMAGE, stdin=nothing.getvalue())
        yield engine


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["unix", "tcp"])
def host(request: pytest.FixtureRequest, second: SecondEngine) -> Iterator[str]:
    """The address of the second engine: its socket, or plain TCP, as in GitLab's docker-in-docker."""
    if request.param == "unix":
        yield second.host
    else:
        with tcp_pipe(second.socket) as port:
            yield f"tcp://127.0.0.1:{port}"


def names(second: SecondEngine) -> list[str]:
    return second.docker("ps", "--all", "--format={{.Names}}").split()


def make_container(state: Path, run_id: str, creator: owner.Owner = DEAD, **labels: str) -> str:
    """Makes a container on the engine of this process, and returns its name."""
    name = f"assay-{run_id}-n1"
    with open_docker() as client:
        marks = run_labels(run_id, creator, state) | labels
        client.api.create_container(IMAGE, command=["/none"], name=name, labels=marks)
    return name


def leave_container(state: Path, run_id: str) -> str:
    """Leaves a container and its journal, as a session does that is killed."""
    undo = journal.UndoJournal(state, run_id, DEAD, identify_engine())
    undo.append(journal.RemoveContainer(f"assay-{run_id}-n1"))
    undo.close(finished=False)
    return make_container(state, run_id)


def test_the_sdk_and_the_docker_command_use_the_same_engine(
    second: SecondEngine, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    folder = second.docker("info", "--format={{.DockerRootDir}}").strip()
    assert identify_engine().folder == folder
    assert layer.run_command(["docker", "info", "--format={{.DockerRootDir}}"]).stdout.strip() == folder
    assert layer.exists(IMAGE)


@pytest.fixture(scope="module")
def tls_host(second: SecondEngine) -> Iterator[str]:
    with namespace_pipe(second, TLS_PORT) as path, tcp_pipe(path) as port:
        yield f"tcp://127.0.0.1:{port}"


@pytest.mark.parametrize("by", ["variables", "context", "context that skips the check"])
def test_tls_needs_the_certificates_of_the_variables_or_of_the_context(
    second: SecondEngine, tls_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Other certificates that the environment names for the requests of the SDK do not count."""
    files = second.folder / "tls"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(Path(__file__)))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    if by == "variables":
        monkeypatch.setenv("DOCKER_HOST", tls_host)
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(files))
    else:
        checks = "skip-tls-verify=true" if by != "context" else f"ca={files / 'ca.pem'}"
        endpoint = f"host={tls_host},{checks},cert={files / 'cert.pem'},key={files / 'key.pem'}"
        second.docker("context", "create", "far", "--docker", endpoint)
        second.docker("context", "use", "far")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureRequestWarning)
        assert identify_engine().folder == str(second.folder / "data")
    assert layer.exists(IMAGE)


@pytest.mark.parametrize(
    ("tls", "files", "said"),
    [
        (None, "tls", "HTTP request to an HTTPS server.*; set DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH"),
        ("1", "other", r"CERTIFICATE_VERIFY_FAILED.*; compare its certificate with ca.pem, .* in .*/other"),
    ],
)
def test_an_engine_with_other_certificates_is_one_line_with_a_remedy(
    second: SecondEngine, tls_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: str | None, files: str,
    said: str
) -> None:  # fmt: skip
    tls_options(tmp_path / "other")
    monkeypatch.setenv("DOCKER_HOST", tls_host)
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / files))
    if tls is not None:
        monkeypatch.setenv("DOCKER_TLS_VERIFY", tls)
    with pytest.raises(DockerEngineError, match=said) as raised:
        identify_engine()
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh command")
@pytest.mark.parametrize("with_port", [True, False])
def test_ssh_reaches_the_engine_of_another_machine(
    second: SecondEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_port: bool
) -> None:
    """Without a port in the address, the port of the SSH configuration counts, for the SDK as well."""
    with ssh_machine_of(second, tmp_path / "ssh") as (port, folder):
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        host = f"ssh://me@127.0.0.1:{port}" if with_port else f"ssh://me@host-{port}.invalid"
        if not with_port:
            (folder / "config").write_text((folder / "config").read_text() + " HostName 127.0.0.1\n")
        monkeypatch.setenv("DOCKER_HOST", host)
        engine = identify_engine()
        assert (engine.folder, engine.endpoint.host) == (str(second.folder / "data"), host)
        assert layer.exists(IMAGE)
        name = leave_container(tmp_path, run_of_its_own(f"test-ssh-{with_port}"))
        monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
        assert [line for line in leftovers.heal(state=tmp_path).undone if name in line]
        assert names(second) == []


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh command")
def test_a_machine_that_ssh_does_not_reach_is_named_with_the_last_line_of_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("DOCKER_HOST", f"ssh://me@127.0.0.1:{port}")
    said = (
        r"ssh://me@127.0.0.1:\d+ \(from DOCKER_HOST\): `ssh -p \d+ -l me 127.0.0.1 docker .*` exited 255: .* refused; "
        r"no SSH server listens at this port: start sshd there, .* `ssh -p \d+ -l me 127.0.0.1 true` must then work"
    )
    with pytest.raises(DockerEngineError, match=said):
        identify_engine(5)


@pytest.mark.parametrize(
    ("end", "remedy"),
    [
        ("127: no", "install docker.io or docker-cli there; `ssh -l me builder docker version` must find"),
        ("255: Host key verification failed.", "`ssh -l me builder true` must log in without a question"),
        ("255: connect to host builder port 22: Connection refused", "no SSH server listens at this port"),
        (
            "255: connect to host builder port 22: Connection timed out",
            "look whether the machine is up, and whether its f",
        ),
        ("255: connect to host builder port 22: No route to host", "look whether the machine is up, and whether its a"),
        ("255: Could not resolve hostname builder: Name or service not known", "this host name is unknown"),
        ("255: me@builder: Permission denied (publickey).", "it knows none of your keys"),
        ("1: no", "start the engine "),
    ],
)
def test_each_failure_of_ssh_has_its_own_remedy_whatever_chose_the_engine(end: str, remedy: str) -> None:
    for context in ("", "far"):
        endpoint = Endpoint("ssh://me@builder", "any", context)
        assert _describe_remedy(endpoint, f"`ssh ...` exited {end}").startswith(remedy)


def test_what_is_on_another_engine_that_is_gone_is_kept_and_said(
    second: SecondEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container is on an engine at a TCP port that no longer leads there."""
    run_id = run_of_its_own("test-gone")
    with tcp_pipe(second.socket) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        name = leave_container(tmp_path, run_id)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    for report in (leftovers.sweep(tmp_path), leftovers.heal(state=tmp_path)):
        (said,) = report.unreached
        assert said.changes == {run_id: [f"container {name}"]}
        assert f"    DOCKER_HOST=tcp://127.0.0.1:{port} assay heal" in said.describe()
    assert names(second) == [name]
    monkeypatch.setenv("DOCKER_HOST", second.host)
    assert leftovers.heal(state=tmp_path).undone == [f"container {name} removed (run {run_id})"]
    assert names(second) == []
    assert journal.read_journals(tmp_path) == ([], [])


def test_an_engine_at_its_old_address_is_cleaned_although_another_is_chosen_now(
    second: SecondEngine, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    run_id = run_of_its_own("test-moved-on")
    name = leave_container(tmp_path, run_id)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    assert leftovers.heal(state=tmp_path).undone == [f"container {name} removed (run {run_id})"]
    assert names(second) == []


def test_another_engine_at_the_old_address_is_not_taken_for_the_old_one(
    second: SecondEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", second.host)
    here = identify_engine()
    for other in (change_record(here, id="AAAA"), change_record(here, folder="/elsewhere")):
        with pytest.raises(DockerEngineError, match="answers another engine"):
            reach_engine(other)
        undo = journal.UndoJournal(tmp_path, "other", DEAD, other)
        undo.append(journal.RemoveNetwork("n"))
        undo.close(finished=False)
        (said,) = leftovers.heal(state=tmp_path).unreached
        assert said.changes == {"other": ["network n"]}
        assert undo.path.exists()
        undo.path.unlink()


def test_a_run_whose_engine_was_replaced_forgets_nothing_at_its_end(
    second: SecondEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", second.host)
    run_id = run_of_its_own("test-replaced")
    cluster = DockerCluster(Echo(tmp_path / "echo"), {"broker": 1}, run_id=run_id, seed=1, state_dir=tmp_path)
    before = change_record(identify_engine(), id="AAAA")
    cluster._journal = journal.UndoJournal(tmp_path, run_id, DEAD, before)
    cluster._engine = before
    cluster._journal.append(journal.RemoveContainer("n1"))
    with pytest.raises(DockerEngineError, match="answers another engine"):
        asyncio.run(cluster.close())
    assert [action for _, action in journal.read_journal(cluster._journal.path).actions]


def change_record(record: journal.EngineRecord, **changes: str) -> journal.EngineRecord:
    fields = {"id": record.id, "folder": record.folder} | changes
    return journal.EngineRecord(fields["id"], fields["folder"], record.endpoint)


def test_this_machines_engine_and_the_second_one_are_told_apart(second: SecondEngine) -> None:
    if not is_answering():
        pytest.skip("this machine has no engine of its own")
    theirs = identify_engine(endpoint=Endpoint(second.host))
    assert not identify_engine().is_same_as(theirs)


def test_kill_9_of_the_owner_and_a_heal_on_another_engine_forget_nothing(
    second: SecondEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = run_of_its_own("test-killed")
    with tcp_pipe(second.socket) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        argv = [sys.executable, "-c", CHILD, str(tmp_path), run_id]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "up\n"
            child.kill()
    monkeypatch.delenv("DOCKER_HOST")
    (said,) = leftovers.heal(state=tmp_path).unreached
    assert f"container assay-{run_id}-n1" in said.changes[run_id]
    assert names(second) == [f"assay-{run_id}-n1"]
    monkeypatch.setenv("DOCKER_HOST", second.host)
    report = leftovers.heal(state=tmp_path)
    assert not report.failed
    assert not report.unreached
    assert names(second) == []
    assert journal.read_journals(tmp_path) == ([], [])


def test_only_heal_all_removes_what_another_machine_has_left(
    second: SecondEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", second.host)
    ours = make_container(tmp_path, run_of_its_own("test-ours"))
    theirs = make_container(tmp_path, run_of_its_own("test-theirs"), **{MACHINE_LABEL: "0123456789abcdef"})
    report = leftovers.heal(state=tmp_path)
    assert [line for line in report.undone if ours in line]
    (said,) = report.possibly_alive
    assert said.startswith("containers and networks of other machines: 1; `assay heal` on the machine")
    assert names(second) == [theirs]
    with open_docker() as client:
        (found,) = list_owned(client)
    assert found.machine == "0123456789abcdef"
    leftovers.heal(everything=True, state=tmp_path)
    assert names(second) == []


def test_a_container_without_a_machine_counts_as_this_machines(
    second: SecondEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions wrote no label of the machine."""
    monkeypatch.setenv("DOCKER_HOST", second.host)
    make_container(tmp_path, run_of_its_own("test-old"), **{MACHINE_LABEL: ""})
    leftovers.heal(state=tmp_path)
    assert names(second) == []
