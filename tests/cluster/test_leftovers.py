"""Tests that what was noted and not ticked off is undone, latest first, no matter who crashed when."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import socket
import stat
import string
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.cluster import journal, leftovers, owner
from assay.cluster.docker import engine as docker_engine
from assay.cluster.docker.engine import DockerEngineError
from assay.cluster.docker_endpoint import Endpoint, resolve_endpoint
from assay.cluster.journal import (
    EngineRecord,
    RemoveContainer,
    RemoveDisk,
    RemoveFile,
    RemoveNetwork,
    RunInContainer,
    UndoJournal,
)
from assay.cluster.operating_system import read_start_time
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.plugin.clusters import sweep_leftovers

from helpers.examples import some_of
from helpers.small_disk import small_disk

DEAD = dataclasses.replace(owner.current_owner(), started=1)


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")


def test_what_is_ticked_off_is_not_undone_again(tmp_path: Path) -> None:
    one = UndoJournal(tmp_path, "run")
    one.append(RemoveFile("a"))
    second = one.append(RunInContainer("c", ("iptables", "-F")))
    one.append(RemoveNetwork("n"))
    one.mark_done(second)
    assert [action for _, action in journal.read_journal(one.path).actions] == [RemoveNetwork("n"), RemoveFile("a")]
    one.close(finished=True)
    assert not one.path.exists()


names = st.text(string.ascii_letters + "-/'\" \n", max_size=12)
actions = st.one_of(
    st.builds(RemoveFile, names),
    st.builds(RemoveNetwork, names),
    st.builds(RemoveDisk, names),
    st.builds(RunInContainer, names, st.lists(names, max_size=3).map(tuple)),
)


@settings(max_examples=some_of(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=st.lists(actions, max_size=8), undone=st.sets(st.integers(1, 8)), lost=st.integers(0, 400))
def test_a_journal_cut_anywhere_still_undoes_every_deed_that_was_begun(
    tmp_path: Path, deeds: list[journal.Action], undone: set[int], lost: int
) -> None:
    one = UndoJournal(tmp_path, "run")
    sizes = []
    for deed in deeds:
        one.append(deed)
        sizes.append(one.path.stat().st_size)  # the deed begins here
    ticked = sorted(undone & set(range(1, len(deeds) + 1)))
    for entry in ticked:
        one.mark_done(entry)
    one.close(finished=False)
    whole = one.path.read_bytes()
    cut = max(0, len(whole) - lost)
    one.path.write_bytes(whole[:cut])

    found = journal.read_journal(one.path)
    one.path.unlink()
    begun = [(number, deed) for number, (deed, size) in enumerate(zip(deeds, sizes, strict=True), 1) if size <= cut]
    must = [item for item in begun if item[0] not in ticked]
    assert found.owner == owner.current_owner()
    assert [item for item in found.actions if item[0] not in ticked] == must[::-1]


def test_an_entry_is_on_disk_before_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_size), real(handle))[1])
    one = UndoJournal(tmp_path, "run")
    one.append(RemoveFile("a"))
    assert synced[-1] == one.path.stat().st_size
    one.close(finished=True)


def test_a_closed_journal_refuses_further_deeds(tmp_path: Path) -> None:
    one = UndoJournal(tmp_path, "run")
    one.close(finished=True)
    one.close(finished=True)
    with pytest.raises(journal.JournalError, match="the run is over"):
        one.append(RemoveFile("a"))


def test_a_live_owners_journal_is_swept_by_no_one_and_a_dead_ones_is(tmp_path: Path) -> None:
    live = UndoJournal(
        tmp_path, "live", dataclasses.replace(owner.current_owner(), pid=os.getppid(), started=_parent_start())
    )
    dead = UndoJournal(tmp_path, "dead", DEAD)
    for one in (live, dead):
        one.close(finished=False)
    leftovers.sweep(tmp_path)
    assert live.path.exists()
    assert not dead.path.exists()
    leftovers.heal(state=tmp_path)
    assert live.path.exists(), "heal takes nothing from a session that goes on"
    leftovers.heal(everything=True, state=tmp_path)
    assert not live.path.exists()


def test_without_an_engine_nothing_is_forgotten(tmp_path: Path) -> None:
    one = UndoJournal(tmp_path, "dead", DEAD)
    one.append(RemoveNetwork("n"))
    one.close(finished=False)
    report = leftovers.sweep(tmp_path)
    assert one.path.exists()
    assert len(report.failed) == 1
    assert "assay heal" in report.failed[0]


GONE = EngineRecord("ABCD", "/var/lib/docker", Endpoint("tcp://127.0.0.1:1", "from DOCKER_HOST"))


def test_each_entry_names_its_engine(tmp_path: Path) -> None:
    one = UndoJournal(tmp_path, "run", engine=GONE)
    numbers = [one.append(RemoveNetwork("n")), one.append(RunInContainer("c", ("true",)))]
    one.close(finished=False)
    found = journal.read_journal(one.path).engines
    assert list(found) == numbers
    assert all(engine.is_same_as(GONE) and engine.endpoint.leads_to(GONE.endpoint) for engine in found.values())


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        (
            Endpoint("tcp://a:1", "context far, from DOCKER_CONTEXT", "far"),
            "tcp://a:1 (context far, as chosen at that time)",
        ),
        (Endpoint("tcp://a:1", "from DOCKER_HOST"), "tcp://a:1"),
    ],
)
def test_the_engine_of_a_stored_run_is_not_said_to_come_from_a_setting_of_this_process(
    tmp_path: Path, chosen: Endpoint, shown: str
) -> None:
    one = UndoJournal(tmp_path, "run", engine=EngineRecord("ABCD", "/var/lib/docker", chosen))
    number = one.append(RemoveNetwork("n"))
    one.close(finished=False)
    assert str(journal.read_journal(one.path).engines[number].endpoint) == shown


def test_heal_keeps_and_lists_what_is_on_an_engine_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one = UndoJournal(journal.state_folder(), "dead", DEAD, GONE)
    one.append(RemoveNetwork("net-1"))
    one.append(RemoveContainer("node-1"))
    one.append(RunInContainer("node-1", ("iptables", "-F")))
    one.close(finished=False)
    two = UndoJournal(journal.state_folder(), "dead-2", DEAD, GONE)
    two.append(RemoveContainer("node-2"))
    two.close(finished=False)
    assert main(["heal"]) == ExitCode.FAIL
    said = capsys.readouterr()
    assert said.out == ""
    asked, head, engine, reason, *others = said.err.splitlines()
    assert asked == "asking the Docker engine tcp://127.0.0.1:1 ..."
    assert head == "not reached: the Docker engine tcp://127.0.0.1:1"
    assert engine == "  engine: ABCD with its data in /var/lib/docker"
    assert reason.startswith("  reason: no Docker engine answers: tcp://127.0.0.1:1: ")
    assert others == [
        "  left by run dead-2:",
        "    container node-2",
        "  left by run dead:",
        "    container node-1",
        "    network net-1",
        "  to undo these, start the engine, or name the address where it answers now:",
        "    DOCKER_HOST=tcp://127.0.0.1:1 assay heal",
        "  if it is gone for good, delete:",
        f"    {two.path}",
        f"    {one.path}",
    ]
    assert one.path.exists()
    assert two.path.exists()


def test_a_session_names_an_engine_that_is_not_reached_in_one_short_clause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one = UndoJournal(journal.state_folder(), "dead", DEAD, GONE)
    one.append(RemoveNetwork("net-1"))
    one.close(finished=False)
    assert sweep_leftovers("docker") == (
        "; not removed: changes of a run on the Docker engine tcp://127.0.0.1:1, not reached: `assay heal` lists them"
    )


def test_a_session_says_where_it_has_removed_leftovers(monkeypatch: pytest.MonkeyPatch) -> None:
    report = leftovers.SweepReport()
    for line, place in (("a", "the Docker engine ssh://me@builder"), ("b", "root@h1"), ("c", "root@h1")):
        report.add_undone(line, place)
    monkeypatch.setattr(leftovers, "sweep", lambda: report)
    assert report.undone == ["a", "b", "c"]
    assert sweep_leftovers("docker") == (
        "; leftovers of dead sessions removed: 2 on root@h1, 1 on the Docker engine ssh://me@builder"
    )


def test_silent_engines_are_announced_and_asked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = [EngineRecord(f"E{number}", "/data", Endpoint(f"tcp://127.0.0.1:{number}")) for number in range(1, 6)]
    for number, engine in enumerate([*engines, engines[0]]):
        one = UndoJournal(tmp_path, f"dead-{number}", DEAD, engine)
        one.append(RemoveNetwork("n"))
        one.close(finished=False)
    announced: list[str] = []
    everyone = threading.Barrier(len(engines), timeout=30)
    asked: list[EngineRecord] = []

    def reach(engine: EngineRecord) -> Endpoint:
        asked.append(engine)
        everyone.wait()  # raises unless all are asked at once
        raise DockerEngineError("no answer")

    monkeypatch.setattr(docker_engine, "reach_engine", reach)
    report = leftovers.heal(state=tmp_path, announce=announced.append)
    assert sorted(asked, key=str) == engines
    assert announced == [f"asking the Docker engine {engine.endpoint} ..." for engine in engines]
    assert [one.reason for one in report.unreached] == ["no answer"] * len(engines)
    assert sum(len(one.journals) for one in report.unreached) == len(engines) + 1
    assert report.failed == []


def test_a_journal_line_that_is_nested_too_deep_is_reported_and_left(tmp_path: Path) -> None:
    folder = tmp_path / journal.JOURNALS
    folder.mkdir()
    (folder / "deep.jsonl").write_text('{"type":"kept","more":' + "[" * 100_000 + "\n")
    (folder / "bytes.jsonl").write_bytes(b'{"type":"kept","\xff":1}\n')
    assert len(leftovers.sweep(tmp_path).failed) == 2


def test_a_journal_of_an_earlier_version_is_undone_on_the_engine_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries name no engine."""
    one = UndoJournal(tmp_path, "dead", DEAD)
    one.append(RemoveNetwork("n"))
    one.close(finished=False)
    assert "engine" not in one.path.read_text()
    undone: list[journal.Action] = []
    monkeypatch.setattr(docker_engine, "is_answering", lambda: False)
    monkeypatch.setattr(docker_engine, "open_docker", lambda endpoint: contextlib.nullcontext(endpoint))
    monkeypatch.setattr(docker_engine, "undo_action", lambda client, action: undone.append(action) is None)
    leftovers.sweep(tmp_path)
    assert undone == [RemoveNetwork("n")]
    assert not one.path.exists()


def test_a_kept_run_survives_the_sweep_but_not_heal(tmp_path: Path) -> None:
    one = UndoJournal(tmp_path, "kept", DEAD)
    one.keep()
    one.close(finished=False)
    leftovers.sweep(tmp_path)
    assert one.path.exists()
    leftovers.heal(state=tmp_path)
    assert not one.path.exists()


def test_an_unreadable_journal_is_reported_and_left(tmp_path: Path) -> None:
    folder = tmp_path / journal.JOURNALS
    folder.mkdir()
    (folder / "strange.jsonl").write_text("not json\n")
    report = leftovers.sweep(tmp_path)
    assert (folder / "strange.jsonl").exists()
    assert len(report.failed) == 1


def test_a_journal_that_others_may_write_is_not_obeyed(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        dead = UndoJournal(tmp_path / "state", "dead", DEAD)
    finally:
        os.umask(before)
    (tmp_path / "precious").touch()
    dead.append(RemoveFile(str(tmp_path / "precious")))
    dead.close(finished=False)
    assert stat.S_IMODE(dead.path.parent.stat().st_mode) == 0o700
    dead.path.chmod(0o666)
    report = leftovers.sweep(tmp_path / "state")
    assert "may be written by other users, so the harness does not act on it" in report.failed[0]
    assert (tmp_path / "precious").exists()
    dead.path.chmod(0o600)
    assert not [one for one in leftovers.sweep(tmp_path / "state").failed if "not obeyed" in one]


@pytest.mark.parametrize("kind", ["FIFO", "socket", "symbolic link", "folder"])
def test_a_journal_that_is_no_regular_file_is_named_and_neither_read_nor_followed(tmp_path: Path, kind: str) -> None:
    dead = UndoJournal(tmp_path, "dead", DEAD)
    dead.append(RemoveFile("elsewhere"))
    dead.close(finished=False)
    elsewhere = dead.path.rename(tmp_path / "elsewhere.jsonl")
    place = tmp_path / journal.JOURNALS / "x.jsonl"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "FIFO":
            os.mkfifo(place)
        elif kind == "socket":
            listening.bind(str(place))
        elif kind == "folder":
            place.mkdir()
        else:
            place.symlink_to(elsewhere)
        good = UndoJournal(tmp_path, "good", DEAD)
        good.close(finished=False)
        report = leftovers.heal(state=tmp_path)
    assert report.failed == [f"{place}: left alone: {place} is a {kind}, not a regular file: remove it"]
    assert os.path.lexists(place)
    assert elsewhere.exists()
    assert not good.path.exists(), "the other journals are replayed"


def test_the_state_folder_follows_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert leftovers.state_folder() == Path("/somewhere/assay")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert leftovers.state_folder() == Path.home() / ".local/state/assay"


def _parent_start() -> int:
    started = read_start_time(os.getppid())
    assert started is not None
    return started


def test_what_a_full_disk_has_no_room_for_is_not_begun_and_spoils_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "16k") as disk, contextlib.ExitStack() as stack:
        one, begun = UndoJournal(disk, "run"), list[journal.Action]()
        stack.callback(one.close, finished=True)  # else the disk stays in use
        (disk / "filler").write_bytes(b"x" * 4096)

        def begin() -> None:
            for number in range(1000):
                one.append(RemoveFile(f"file {number}"))
                begun.append(RemoveFile(f"file {number}"))

        with pytest.raises(OSError, match="No space left"):
            begin()
        (disk / "filler").unlink()
        one.append(RemoveFile("later"))
        assert [action for _, action in journal.read_journal(one.path).actions] == [RemoveFile("later"), *begun[::-1]]


ELSEWHERE = dataclasses.replace(owner.current_owner(), boot="another-boot")


def test_what_a_session_on_another_machine_has_under_way_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that machines share has the journals of all of them, and another machine's processes are not seen."""
    (tmp_path / "here").write_text("0123\n")
    (tmp_path / "there").write_text("4567\n")
    monkeypatch.setattr(owner, "MACHINE", tmp_path / "there")
    there = UndoJournal(tmp_path, "there", ELSEWHERE)
    there.append(RemoveFile("a"))
    monkeypatch.setattr(owner, "MACHINE", tmp_path / "here")
    before_a_reboot = UndoJournal(tmp_path, "before", ELSEWHERE)
    swept = leftovers.sweep(tmp_path)
    assert swept.failed == leftovers.heal(state=tmp_path).failed == []
    (left,) = swept.possibly_alive
    machine = f"4567@{platform.node()}"
    assert left.startswith(f"run there may go on, in process {ELSEWHERE.pid} of machine {machine}; if it does not, `as")
    assert there.path.exists()
    assert not before_a_reboot.path.exists()
    (said,) = leftovers.heal(everything=True, state=tmp_path).failed
    assert said.startswith("run there: no Docker engine answers")
    for one in (there, before_a_reboot):
        one.close(finished=True)


def test_what_a_session_on_a_copy_of_this_machine_has_under_way_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy has the id of its original, and may share its home folder and its Docker engine."""
    (tmp_path / "id").write_text("0123\n")
    monkeypatch.setattr(owner, "MACHINE", tmp_path / "id")
    monkeypatch.setattr(owner.platform, "node", lambda: "copy")
    there = UndoJournal(tmp_path, "there", ELSEWHERE)
    there.append(RemoveFile("a"))
    label = owner.find_host_label(tmp_path)
    monkeypatch.setattr(owner.platform, "node", lambda: "original")
    before_a_reboot = UndoJournal(tmp_path, "before", ELSEWHERE)
    network = docker_engine.OwnedObject("network", "n", "no journal", str(ELSEWHERE), label, running=False)
    monkeypatch.setattr(docker_engine, "is_answering", lambda: True)
    monkeypatch.setattr(docker_engine, "open_docker", contextlib.nullcontext)
    monkeypatch.setattr(docker_engine, "list_owned", lambda client: [network])
    removed: list[str] = []
    monkeypatch.setattr(docker_engine, "remove_network", lambda client, name: removed.append(name) is None)
    report = leftovers.heal(state=tmp_path)
    assert report.failed == removed == []
    left, counted = report.possibly_alive
    assert left.startswith(f"run there may go on, in process {ELSEWHERE.pid} of machine 0123@copy; ")
    assert counted.startswith("containers and networks of other machines: 1; ")
    assert there.path.exists()
    assert not before_a_reboot.path.exists()
    for mine in (owner.find_host_label(tmp_path), owner.find_machine_label(tmp_path), ""):
        network = dataclasses.replace(network, machine=mine)
        report = leftovers.heal(state=tmp_path)
        assert report.undone == ["network n removed (run no journal, no journal)"]
        assert report.places == {f"the Docker engine {resolve_endpoint()}": 1}
    for one in (there, before_a_reboot):
        one.close(finished=True)


@pytest.mark.parametrize(("here", "there"), [("0123", ""), ("", "4567"), ("", "")])
def test_a_session_of_another_boot_may_go_on_if_a_machine_has_no_id(
    tmp_path: Path, here: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal stays, because another machine with this home folder may use it."""
    monkeypatch.setattr(owner, "read_machine_id", lambda: there)
    under_way = UndoJournal(tmp_path, "there", ELSEWHERE)
    under_way.append(RemoveFile("a"))
    monkeypatch.setattr(owner, "read_machine_id", lambda: here)
    monkeypatch.setattr(docker_engine, "is_answering", lambda: True)
    monkeypatch.setattr(docker_engine, "open_docker", contextlib.nullcontext)
    monkeypatch.setattr(docker_engine, "list_owned", lambda client: [])
    for report in (leftovers.sweep(tmp_path), leftovers.heal(state=tmp_path)):
        assert report.undone == report.failed == []
        (left,) = report.possibly_alive
        assert "`assay heal --all` here" in left
    assert under_way.path.exists()
    under_way.close(finished=True)


def test_an_engine_that_falls_silent_is_one_line_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    @contextmanager
    def hang(timeout: float = 60) -> Iterator[None]:
        limits.append(timeout)
        raise leftovers.docker_engine.DockerEngineError("no answer in time")
        yield

    monkeypatch.setattr(leftovers.docker_engine, "is_answering", lambda: True)
    monkeypatch.setattr(leftovers.docker_engine, "open_docker", hang)
    assert leftovers.heal(state=tmp_path).failed == [
        "containers and networks of ended sessions are not looked for: the Docker engine "
        "unix:///nonexistent/docker.sock (from DOCKER_HOST): no answer in time"
    ]
    assert limits == [leftovers.LIST_SECONDS]


@contextmanager
def silent_engine(path: Path, *, answers_pings: bool) -> Iterator[str]:
    """Yields the address of an engine that takes connections and answers nothing else."""
    answer = b"HTTP/1.1 200 OK\r\nApi-Version: 1.43\r\nContent-Length: 2\r\n\r\nOK"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(64)

        def serve(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := connection.recv(1 << 16):
                    if answers_pings and b"/_ping" in data.split(b"\r\n")[0]:
                        connection.sendall(answer)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = stack.enter_context(listener.accept()[0])
                    threading.Thread(target=serve, args=(connection,), daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield f"unix://{path}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


@pytest.mark.parametrize("answers_pings", [False, True])
def test_heal_names_an_engine_that_takes_connections_and_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers_pings: bool
) -> None:
    monkeypatch.setattr(leftovers, "LIST_SECONDS", 1)
    with silent_engine(tmp_path / "d.sock", answers_pings=answers_pings) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        began = time.monotonic()
        (line,) = leftovers.heal(state=tmp_path / "state").failed
        assert time.monotonic() - began < 30
        assert line.startswith(
            f"containers and networks of ended sessions are not looked for: the Docker engine {address} "
        )
        assert ("takes connections and does not answer" in line) is not answers_pings


def test_heal_on_a_machine_without_an_engine_has_nothing_to_say(tmp_path: Path) -> None:
    report = leftovers.heal(state=tmp_path)
    assert report.failed == report.undone == []


def test_what_is_listed_must_come_soon() -> None:
    """With the time until an engine counts as missing, `assay heal` ends within 20 s."""
    assert leftovers.LIST_SECONDS <= 10
