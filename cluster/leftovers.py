"""Cleans up after dead runs: replays their undo journals, and removes their containers, networks and temporary folders.

:func:`sweep` runs at a session's start and :func:`heal` by ``assay heal``. At its end, a run replays its own journal
(``SshCluster.close``). Containers and networks have a label that names their owner. So they are found even if the
journal is lost. Containers and networks without that label are never touched. Disks of nodes go with their containers
(``cluster/docker/disk.py``).

The entries of a journal are undone on the Docker engine on which they were made, wherever it answers now. Entries of an
engine that does not answer are kept. Containers and networks without a journal are looked for on the engine of this
process alone.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import docker
from docker.errors import APIError

from assay.cluster import owner
from assay.cluster.docker import engine as docker_engine
from assay.cluster.docker_endpoint import Endpoint, resolve_endpoint
from assay.cluster.file_lock import LockHeldError, hold_lock
from assay.cluster.hosts.host_command import HostUndoer
from assay.cluster.journal import (
    Action,
    EngineRecord,
    RemoveContainer,
    RunInContainer,
    RunOnHost,
    StoredJournal,
    Unpause,
    describe,
    name_changes,
    read_journals,
    state_folder,
)
from assay.cluster.node import NodeError
from assay.cluster.temporary_folders import delete_left_folders

__all__ = ["SweepReport", "heal", "state_folder", "sweep"]

MOST_ASKED: Final = 32
"""Maximum number of engines that are asked at once."""

LIST_SECONDS: Final = 10
"""Maximum seconds of a call that lists containers or networks. Their removal may take longer."""
_NOT_LOOKED_FOR: Final = "containers and networks of ended sessions are not looked for: the Docker engine "

_Engines = dict[EngineRecord, Endpoint | docker_engine.DockerEngineError]
"""The endpoint of each engine, or why it is not reached."""


@dataclass
class UnreachedEngine:
    """Changes that are kept, because their Docker engine is not reached.

    - ``reason``: why it is not reached
    - ``changes``: what is left there, by run
    - ``journals``: the journals that have them
    """

    engine: EngineRecord
    reason: str
    changes: dict[str, list[str]] = field(default_factory=dict)
    journals: list[Path] = field(default_factory=list)

    def summarize(self) -> str:
        """Returns one line for users who look at something else."""
        runs = "a run" if len(self.changes) == 1 else f"{len(self.changes)} runs"
        return f"changes of {runs} on the Docker engine {self.engine.endpoint}, not reached: `assay heal` lists them"

    def describe(self) -> list[str]:
        """Returns lines: the engine, the reason, what is left, and how to undo it."""
        return [
            f"not reached: the Docker engine {self.engine.endpoint}",
            f"  engine: {self.engine}",
            f"  reason: {self.reason}",
            *(
                line
                for run_id, changes in self.changes.items()
                for line in (f"  left by run {run_id}:", *(f"    {change}" for change in changes))
            ),
            "  to undo these, start the engine, or name the address where it answers now:",
            f"    {self.engine.endpoint.prefix()} assay heal",
            "  if it is gone for good, delete:",
            *(f"    {journal}" for journal in self.journals),
        ]


@dataclass
class SweepReport:
    """Log of a sweep, one line per action.

    - ``undone``: undo actions that were performed
    - ``places``: how many of them, by the engine or the machine
    - ``failed``: errors; a journal with a failed action is kept, and tried again next time
    - ``unreached``: engines that are not reached; their journals are kept, and tried again next time
    - ``possibly_alive``: a line for each journal that may belong to a live session of another machine, and is left
      alone
    """

    undone: list[str] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    unreached: list[UnreachedEngine] = field(default_factory=list)
    possibly_alive: list[str] = field(default_factory=list)

    def add_undone(self, line: str, place: str) -> None:
        self.undone.append(line)
        self.places[place] += 1


def sweep(state: Path | None = None) -> SweepReport:
    """Cleans up after dead owners, except clusters that were kept on purpose. Needs no engine if all is clean."""
    return _heal(state, _is_dead)


def heal(
    everything: bool = False, state: Path | None = None, announce: Callable[[str], None] = lambda line: None
) -> SweepReport:
    """Cleans up after dead owners and this process, including clusters that were kept on purpose.

    - ``everything``: also removes clusters of live sessions and of other machines
    - ``announce``: receives a line about each engine that is asked, before the answer
    """
    this_process = owner.current_owner()
    return _heal(
        state,
        lambda creator, running: everything or creator == this_process or _is_dead(creator, running),
        kept_too=True,
        everything=everything,
        announce=announce,
    )


def _heal(
    state: Path | None,
    is_chosen: Callable[[owner.Owner, bool], bool],
    *,
    kept_too: bool = False,
    everything: bool = False,
    announce: Callable[[str], None] = lambda line: None,
) -> SweepReport:
    """Cleans up after the chosen owners. ``is_chosen`` gets an owner, and whether the examined object is a running
    container.
    """
    state = state or state_folder()
    found, broken = read_journals(state)
    deleted, errors = delete_left_folders()
    report = SweepReport(failed=[*broken, *errors])
    for line in deleted:
        report.add_undone(line, "this machine")
    elsewhere = [] if everything else [journal for journal in found if journal.may_be_of_other_machine()]
    report.possibly_alive = [_describe_left(journal) for journal in elsewhere]
    spared = {journal.run_id for journal in found if (journal.kept and not kept_too) or journal in elsewhere}
    journals = [journal for journal in found if journal.run_id not in spared and is_chosen(journal.owner, False)]
    for journal in [journal for journal in journals if _is_of_hosts(journal)]:
        journals.remove(journal)
        try:
            with hold_lock(state / "hosts.lock"):
                if journal.path.exists():  # Another session may have replayed it meanwhile.
                    _replay_on_hosts(journal, report)
        except LockHeldError as error:
            report.failed.append(f"{journal.run_id}: {error}")
    engines = _find_engines(journals, announce)
    spared |= {journal.run_id for journal in journals if not _replay_on_engines(engines, journal, report)}
    if not docker_engine.is_answering():
        if kept_too and docker_engine.is_listening():
            report.failed.append(f"{_NOT_LOOKED_FOR}{resolve_endpoint()} takes connections and does not answer")
        return report
    # Objects of earlier versions have the label of the machine without its host name.
    here, others = ("", owner.find_host_label(state), owner.find_machine_label(state)), 0
    try:
        with docker_engine.open_docker(LIST_SECONDS) as client:
            listed = docker_engine.list_owned(client)
        with docker_engine.open_docker() as client:
            for item in listed:
                if item.machine not in here and not everything:
                    others += 1
                elif item.run_id not in spared:
                    _remove_orphan(client, item, is_chosen, report)
    except docker_engine.DockerEngineError as error:  # it has answered a moment ago
        report.failed.append(f"{_NOT_LOOKED_FOR}{resolve_endpoint()}: {error}")
    if others:
        report.possibly_alive.append(
            f"containers and networks of other machines: {others}; `assay heal` on the machine that made them, or "
            "`assay heal --all` here, which also ends live sessions"
        )
    return report


def _is_dead(creator: owner.Owner, running: bool) -> bool:
    """Returns whether an owner is dead.

    If the owner is of another boot but its container is ``running``, another machine that uses this engine owns it.
    """
    return not creator.alive() and (creator.is_of_this_boot() or not running)


def _describe_left(journal: StoredJournal) -> str:
    machine = f"machine {journal.machine}" if journal.machine else "an unknown machine"
    return (
        f"run {journal.run_id} may go on, in process {journal.owner.pid} of {machine}; if it does not, "
        "`assay heal` there, or `assay heal --all` here, which also ends live sessions"
    )


def _is_of_hosts(journal: StoredJournal) -> bool:
    """Returns whether the journal's cluster consists of a user's machines, so that its undo needs no engine."""
    return any(isinstance(action, RunOnHost) for _, action in journal.actions)


def _replay_on_hosts(journal: StoredJournal, report: SweepReport) -> None:
    undoer = HostUndoer()

    def undo(action: Action) -> bool:
        assert isinstance(action, RunOnHost), "a cluster of hosts has no containers"
        undoer.perform(action)
        return True

    if _undo_all(undo, journal, [action for _, action in journal.actions], report):
        journal.path.unlink(missing_ok=True)


def _find_engines(journals: Sequence[StoredJournal], announce: Callable[[str], None]) -> _Engines:
    """Reaches each engine that a journal names, all at once, because a silent one takes seconds. ``announce``: as in
    ``heal``."""
    engines = dict.fromkeys(
        engine
        for journal in journals
        for number, _ in journal.actions
        if (engine := journal.engines.get(number)) is not None
    )
    for engine in engines:
        announce(f"asking the Docker engine {engine.endpoint} ...")
    with ThreadPoolExecutor(MOST_ASKED, thread_name_prefix="engine") as pool:
        return dict(zip(engines, pool.map(_find_engine, engines), strict=True))


def _find_engine(engine: EngineRecord) -> Endpoint | docker_engine.DockerEngineError:
    try:
        return docker_engine.reach_engine(engine)
    except docker_engine.DockerEngineError as error:
        return error


def _replay_on_engines(engines: _Engines, journal: StoredJournal, report: SweepReport) -> bool:
    """Undoes each action on its own engine. Returns whether nothing is left, and then deletes the journal.

    Entries of earlier versions name no engine, and are undone on that of this process.
    """
    of_engine: dict[EngineRecord | None, list[Action]] = {}
    for number, action in journal.actions:
        of_engine.setdefault(journal.engines.get(number), []).append(action)
    clean = True
    for engine, actions in of_engine.items():
        try:
            endpoint = None if engine is None else engines[engine]
            if isinstance(endpoint, docker_engine.DockerEngineError):
                raise endpoint
            with docker_engine.open_docker(endpoint=endpoint) as client:
                clean &= _undo_all(partial(docker_engine.undo_action, client), journal, actions, report, endpoint)
        except docker_engine.DockerEngineError as error:
            clean = False
            if engine is None:
                report.failed.append(f"run {journal.run_id}: {error}; then `assay heal`")
            else:
                _add_unreached(report, engine, journal, actions, str(error))
    if clean:
        journal.path.unlink(missing_ok=True)
    return clean


def _add_unreached(
    report: SweepReport, engine: EngineRecord, journal: StoredJournal, actions: Sequence[Action], reason: str
) -> None:
    """Adds the changes of a journal on one engine. Each engine has one list, for all its runs."""
    found = next((one for one in report.unreached if one.engine == engine), None)
    if found is None:
        report.unreached.append(found := UnreachedEngine(engine, reason))
    found.changes.setdefault(journal.run_id, []).extend(name_changes(actions))
    found.journals.append(journal.path)


def _describe_engine(endpoint: Endpoint | None = None) -> str:
    return f"the Docker engine {endpoint or resolve_endpoint()}"


def _undo_all(
    perform: Callable[[Action], bool],
    journal: StoredJournal,
    actions: Sequence[Action],
    report: SweepReport,
    endpoint: Endpoint | None = None,
) -> bool:
    """Performs undo actions. Returns whether none has failed. ``endpoint``: their engine's; default: this process's."""
    removed = {action.name for action in actions if isinstance(action, RemoveContainer)}
    failures = len(report.failed)
    for action in actions:
        if isinstance(action, RunInContainer | Unpause) and action.container in removed:
            continue  # goes with its container
        try:
            if perform(action):
                where = str(action.host) if isinstance(action, RunOnHost) else _describe_engine(endpoint)
                report.add_undone(f"{describe(action)} (run {journal.run_id})", where)
        except (docker_engine.DockerEngineError, APIError, NodeError, OSError) as error:
            report.failed.append(f"{describe(action)} (run {journal.run_id}): {error}")
    return len(report.failed) == failures


def _remove_orphan(
    client: docker.DockerClient,
    item: docker_engine.OwnedObject,
    is_chosen: Callable[[owner.Owner, bool], bool],
    report: SweepReport,
) -> None:
    remove = docker_engine.remove_container if item.kind == "container" else docker_engine.remove_network
    try:
        if is_chosen(owner.parse_owner(item.owner), item.running) and remove(client, item.name):
            report.add_undone(f"{item.kind} {item.name} removed (run {item.run_id}, no journal)", _describe_engine())
    except ValueError as error:
        report.failed.append(f"{item.kind} {item.name}: its owner label is unreadable, left alone: {error}")
    except APIError as error:
        report.failed.append(f"{item.kind} {item.name}: {error}")
