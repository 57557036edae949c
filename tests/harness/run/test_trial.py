"""A whole run in the simulation keeps its phases and limits, as its history shows."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.checkers.engine import EngineError, Engines
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.core.client import Endpoint
from assay.harness.core.generator import Generator, each_process, repeat
from assay.harness.core.history import HistoryReader
from assay.harness.core.operation import Completion, Operation, Outcome, Phase
from assay.harness.run import attempt as attempts
from assay.harness.run import store
from assay.harness.run.attempt import Attempt, InfrastructureError, ReportPolicy
from assay.harness.run.environments import FaultRequirements
from assay.harness.run.experiment import Experiment
from assay.harness.run.registry import Registry
from assay.harness.run.settings import Settings
from assay.harness.stored.by_contract import judge_again, open_stored
from assay.nemesis.faults.kill import PowerLoss
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic

pytestmark = pytest.mark.slow

KEYS = ("orders-0", "orders-1")
DRAIN = Operation("poll", KEYS[0], phase=Phase.DRAIN)
DEAF = Contract(minimum_during_fault=0, recovery_deadline=7.0)


def body(settings: Settings) -> Generator:
    return traffic(KEYS) | drain(KEYS, seconds=10)


def attempt(toy: ModuleType, root: Path, reports: ReportPolicy = ReportPolicy.NEVER, **settings: Any) -> Attempt:
    """Without a page unless it is asked for: drawing it takes longer than the run."""
    chosen: dict[str, Any] = {"seed": 4, "nodes": 1, "time_limit": 1.0, "rate": 100.0, "concurrency": 3}
    chosen |= {"store": root} | settings
    made = Experiment("test_toy", toy.ToySystem(), toy.ToyClient, Contract(minimum_during_fault=0), body)
    return Attempt(made, Settings(**chosen), "toy.py::test_toy[none]", "pytest toy.py", reports=reports)


def done(attempt: Attempt) -> HistoryReader:
    """Runs it to its end; what the history then holds."""
    try:
        attempt.set_up()
        attempt.run()
    finally:
        attempt.tear_down()
    return HistoryReader(attempt.folder.history)


@pytest.fixture(scope="module")
def plain(toy: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> HistoryReader:
    """Without a fault, for tests that only read it."""
    return done(attempt(toy, tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def killed(toy: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """Its node was killed once, for tests that only read it."""
    faults: dict[str, Any] = {"nemesis": ("kill",), "time_limit": 5.0, "nemesis_interval": 4.0, "rate": 50.0}
    run = attempt(toy, tmp_path_factory.mktemp("killed"), **faults)
    done(run)
    return run


def test_the_main_phase_ends_at_its_limit_and_the_drain_follows(plain: HistoryReader) -> None:
    rows = plain.table("ops").to_pylist()
    last_of_main = max(row["call"] for row in rows if row["phase"] == "main")
    assert 0.9e9 < last_of_main < 1.0e9
    assert {row["phase"] for row in rows} == {"main", "sentinel", "drain"}
    assert all(row["call"] > last_of_main for row in rows if row["phase"] != "main")


def test_a_system_that_does_not_come_back_ends_the_drain_and_is_no_pass(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain without a time limit of its own would wait for a client for ever."""

    async def opened(self: Any, endpoint: Endpoint, runtime: Any) -> None:
        if asyncio.get_running_loop().time() > 0.5:
            raise ConnectionRefusedError("gone for good")
        await open_client(self, endpoint, runtime)

    async def invoked(self: Any, operation: Operation) -> Completion:
        return Completion(Outcome.INFO, error="gone")

    open_client = toy.ToyClient.open
    monkeypatch.setattr(toy.ToyClient, "open", opened)
    monkeypatch.setattr(toy.ToyClient, "invoke", invoked)
    run = attempt(toy, tmp_path)
    endless = replace(run.experiment, body=lambda settings: traffic(KEYS) | repeat(DRAIN), contract=DEAF)
    run.experiment = endless
    done(run)
    assert run.judgement is not None
    (reason,) = [reason for reason in run.judgement.unknown if "could be opened for 7 s" in reason]
    assert "gone for good" in reason


@pytest.mark.parametrize("back", [4.0, None])
def test_one_node_that_does_not_come_back_ends_a_drain_on_each_process(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: float | None
) -> None:
    """The clients of the other nodes are open all the while, and have nothing to do."""

    async def opened(self: Any, endpoint: Endpoint, runtime: Any) -> None:
        if endpoint.node == "n2" and (back is None or asyncio.get_running_loop().time() < back):
            raise ConnectionRefusedError("gone")
        await open_client(self, endpoint, runtime)

    open_client = toy.ToyClient.open
    monkeypatch.setattr(toy.ToyClient, "open", opened)
    run = attempt(toy, tmp_path, nodes=2, concurrency=2)
    poll = Operation("poll", KEYS[0], {"start": "earliest"}, Phase.DRAIN)
    parting = replace(run.experiment, body=lambda settings: traffic(KEYS) | each_process(poll), contract=DEAF)
    run.experiment = parting
    rows = done(run).table("ops").to_pylist()
    assert run.judgement is not None
    reasons = [reason for reason in run.judgement.unknown if "could be opened on n2 for 7 s" in reason]
    assert len(reasons) == (back is None), "; ".join(run.judgement.unknown)
    assert len({row["worker"] for row in rows if row["phase"] == "drain"}) == (1 if back is None else 2)


@pytest.mark.parametrize("silent", [30.0, None])
def test_one_node_that_never_answers_ends_a_drain_on_each_process(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: float | None
) -> None:
    """Each time that it does not, another process begins, and asks it, too."""

    async def opened(self: Any, endpoint: Endpoint, runtime: Any) -> None:
        self.node = endpoint.node
        await open_client(self, endpoint, runtime)

    async def invoke(self: Any, operation: Operation) -> Completion:
        now = asyncio.get_running_loop().time()
        if self.node == "n2" and operation.phase is Phase.DRAIN and (silent is None or now < silent):
            await asyncio.sleep(1000)
        return await invoke_client(self, operation)

    open_client, invoke_client = toy.ToyClient.open, toy.ToyClient.invoke
    monkeypatch.setattr(toy.ToyClient, "open", opened)
    monkeypatch.setattr(toy.ToyClient, "invoke", invoke)
    run = attempt(toy, tmp_path, nodes=2, concurrency=2, operation_timeout=2.0)
    poll = Operation("poll", KEYS[0], {"start": "earliest"}, Phase.DRAIN)
    contract = Contract(minimum_during_fault=0, recovery_deadline=12.0)
    run.experiment = replace(
        run.experiment, body=lambda settings: traffic(KEYS) | each_process(poll), contract=contract
    )
    rows = done(run).table("ops").to_pylist()
    assert run.judgement is not None
    assert any("no operation was answered for 36 s" in one for one in run.judgement.unknown) == (silent is None)
    drained = {row["worker"] for row in rows if row["phase"] == "drain" and row["outcome"] == "ok"}
    assert len(drained) == (1 if silent is None else 2)


def test_a_client_gets_all_addresses_and_what_is_switched_on(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[Endpoint] = []

    async def opened(self: Any, endpoint: Endpoint, runtime: Any) -> None:
        recorded.append(endpoint)
        await open_client(self, endpoint, runtime)

    open_client = toy.ToyClient.open
    monkeypatch.setattr(toy.ToyClient, "open", opened)
    run = attempt(toy, tmp_path, defect="forgetful", zookeepers=3)
    run.experiment = replace(run.experiment, system=toy.ToySystem(roles=("zookeeper", "broker")))
    done(run)
    assert {len(endpoint.zookeeper) for endpoint in recorded} == {3}
    assert all(address.endswith(":2181") for endpoint in recorded for address in endpoint.zookeeper)
    assert {endpoint.defects for endpoint in recorded} == {("forgetful",)}


def test_every_fault_is_healed_and_recovered_before_the_drain(killed: Attempt) -> None:
    run, history = killed, HistoryReader(killed.folder.history)
    faults = history.table("faults").to_pylist()
    assert [row["phase"] for row in faults] == ["intended", "injected", "healed", "recovered"]
    assert faults[2]["took_effect"] is True
    resolved = json.loads((run.folder.path / "schedule.json").read_text())["resolved"][0]
    began = json.loads(faults[1]["detail"])["began"]
    assert faults[0]["time"] < began <= faults[1]["time"], "by the run's own stamps"
    assert began - faults[0]["time"] == pytest.approx(resolved["at"] * 1e9, abs=1e6)
    drained = min(row["call"] for row in history.table("ops").to_pylist() if row["phase"] != "main")
    assert faults[3]["time"] < drained
    schedule = json.loads((run.folder.path / "schedule.json").read_text())
    assert schedule["schedule"]["steps"][0]["fault"] == "kill"
    assert schedule["resolved"][0]["targets"] == ["n1"]
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.PASS


def test_the_nodes_events_of_every_incarnation_are_in_the_history(killed: Attempt) -> None:
    events = HistoryReader(killed.folder.history).table("events").to_pylist()
    assert [(row["node"], row["event"], row["key"]) for row in events] == [("n1", "became-leader", "orders-0")] * 2


def test_the_node_of_each_worker_is_known_where_its_client_takes_no_other_address(plain: HistoryReader) -> None:
    workers = {row["worker"] for row in plain.table("ops").to_pylist()}
    assert dict(plain.worker_nodes) == dict.fromkeys(workers, "n1")


def test_an_open_loop_keeps_its_rate(plain: HistoryReader) -> None:
    rows = plain.table("ops").to_pylist()
    assert len([row for row in rows if row["phase"] == "main"]) == 100


@pytest.mark.parametrize(("measured", "expected"), [(0.9, 1.0), (5.0, 6.0), (1.8e9, 999_999_999.0)])
def test_wrong_clocks_of_nodes_widen_the_contract_of_the_run(
    measured: float, expected: float, toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise servers whose clock is ahead of the clients' would be accused of deleting too early."""
    monkeypatch.setattr("assay.cluster.sim.cluster.SimCluster.clock_difference", measured, raising=False)
    run = attempt(toy, tmp_path)
    done(run)
    written = json.loads((run.folder.path / "settings.json").read_text())
    assert written["contract"]["clock_difference"] == expected


def test_settings_json_holds_what_a_repetition_needs(toy: ModuleType, tmp_path: Path) -> None:
    run = attempt(toy, tmp_path, defect="forgetful")
    done(run)
    written = json.loads((run.folder.path / "settings.json").read_text())
    assert written["settings"]["seed"] == 4
    assert written["settings"]["defect"] == "forgetful"
    assert written["contract"]["minimum_during_fault"] == 0
    assert written["nodes"] == {"n1": "broker"}
    assert written["versions"]["python"]
    assert len(written["versions"]["source"]) == 16


def test_a_client_that_raises_cannot_pass_and_its_traceback_is_kept(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Any, f: str, key: str, argument: Any) -> dict[str, Any]:
        if f == "end":
            raise ZeroDivisionError("a bug in the client")
        return await result(self, f, key, argument)

    result = toy.ToyClient.result
    monkeypatch.setattr(toy.ToyClient, "result", broken)
    run = attempt(toy, tmp_path)
    done(run)
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.UNKNOWN
    info = store.read_run(run.folder.path)
    assert info is not None
    assert "ZeroDivisionError: a bug in the client" in info.notes[0]


def test_a_report_that_cannot_be_drawn_leaves_the_verdict_as_it_is(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: Any) -> Path:
        raise ZeroDivisionError("a bug in the report")

    monkeypatch.setattr("assay.reports.page.render", broken)
    run = attempt(toy, tmp_path, ReportPolicy.ALL)
    done(run)
    info = store.read_run(run.folder.path)
    assert info is not None
    assert info.verdict == "pass"
    assert "a bug in the report" in str(info.problem)


def test_a_crash_in_the_harness_leaves_a_readable_history_marked_as_cut(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_arguments: Any) -> None:
        raise RuntimeError("a bug in the trial")

    monkeypatch.setattr("assay.harness.run.trial.Trial._wait_for_recovery", broken)
    run = attempt(toy, tmp_path)
    with pytest.raises(RuntimeError, match="a bug in the trial"):
        done(run)
    history = HistoryReader(run.folder.history)
    assert history.closing_note is None
    assert history.rows("ops") > 50
    info = store.read_run(run.folder.path)
    assert info is not None
    assert info.status == store.ERROR
    assert "a bug in the trial" in str(info.problem)


def test_what_ended_a_run_is_said_though_its_history_cannot_be_saved(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_arguments: Any) -> None:
        monkeypatch.setattr("assay.harness.core.history.HistoryWriter.flush", no_memory)
        raise RuntimeError("a bug in the trial")

    def no_memory(*_arguments: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("assay.harness.run.trial.Trial._wait_for_recovery", broken)
    run = attempt(toy, tmp_path)
    with pytest.raises(RuntimeError, match="a bug in the trial"):
        done(run)
    info = store.read_run(run.folder.path)
    assert info is not None
    assert "a bug in the trial" in str(info.problem)


def test_a_run_that_could_not_be_judged_can_be_judged_again(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: Any, **_more: Any) -> None:
        raise EngineError("no memory left")

    run = attempt(toy, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("assay.harness.run.judging.judge", broken)
        with pytest.raises(EngineError):
            done(run)
    info = store.read_run(run.folder.path)
    assert info is not None
    assert (info.status, info.verdict) == (store.FINISHED, None)
    assert info.digest == HistoryReader(run.folder.history).digest()
    with Engines("duckdb") as engines:
        stored = open_stored(run.folder.path)
        assert judge_again(stored, open_history(stored.history), engines, Registry.standard()).verdict is Verdict.PASS


def test_a_simulated_cluster_is_gone_when_its_history_is_judged(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disks grow with the run, and the judge needs the memory."""
    alive: list[object] = []

    def judge(*arguments: Any, **more: Any) -> Judgement:
        alive.append(world())
        return judge_run(*arguments, **more)

    judge_run = attempts.judge_run
    monkeypatch.setattr(attempts, "judge_run", judge)
    monkeypatch.setattr(attempts, "MANY_OPERATIONS", 1)
    run = attempt(toy, tmp_path)
    run.set_up()
    world = weakref.ref(run._world)
    assert world() is not None
    try:
        run.run()
    finally:
        run.tear_down()
    assert alive == [None]
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.PASS


def test_a_simulated_cluster_that_cannot_be_removed_costs_no_verdict(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_arguments: Any, **_more: Any) -> None:
        raise OSError("a bug in the removal")

    monkeypatch.setattr("assay.harness.run.environments.SimWorld.close", broken)
    monkeypatch.setattr(attempts, "MANY_OPERATIONS", 1)
    run = attempt(toy, tmp_path)
    run.set_up()
    assert run.run() is None
    with pytest.raises(OSError, match="a bug in the removal"):
        run.tear_down()
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.PASS


def test_a_run_is_in_use_until_its_report_is_written(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[Path]] = {}

    def look(when: str) -> None:
        for link in (tmp_path / store.LATEST, *tmp_path.glob(f"*/{store.LATEST}")):
            link.unlink(missing_ok=True)
        store.delete_runs(store.list_runs(tmp_path))
        seen[when] = store.list_runs(tmp_path)

    def watched(place: str, when: str) -> None:
        function = getattr(attempts, place)

        def watched_function(*arguments: Any, **more: Any) -> Any:
            look(when)
            return function(*arguments, **more)

        monkeypatch.setattr(attempts, place, watched_function)

    watched("judge_run", "the judgement")
    watched("measure_run", "the figures")
    run = attempt(toy, tmp_path)
    done(run)
    assert run.judgement is not None
    assert list(seen.items()) == [("the judgement", [run.folder.path]), ("the figures", [run.folder.path])]
    look("the end")
    assert seen["the end"] == []


@pytest.mark.parametrize(("raises", "status"), [(True, store.FINISHED), (False, store.ERROR)])
def test_what_spoke_against_a_pass_is_not_forgotten_when_a_run_breaks_off_behind_its_history(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raises: bool, status: str
) -> None:
    """As by a second Ctrl-C: while the logs are kept, or just before what spoke against it could be written."""

    async def broken(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    async def invoke(self: Any, operation: Operation) -> Completion:
        if operation.f == "poll" and raises and operation.phase is Phase.MAIN:
            raise ValueError("odd")
        return await plainly(self, operation)

    plainly = toy.ToyClient.invoke
    monkeypatch.setattr(toy.ToyClient, "invoke", invoke)
    if raises:
        monkeypatch.setattr("assay.harness.run.trial.Trial.keep_logs", broken)
    else:
        monkeypatch.setattr("assay.harness.run.trial.describe_failed_finds", interrupted)
    run = attempt(toy, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        done(run)
    stored = open_stored(run.folder.path)
    assert stored.closed
    assert stored.info is not None
    assert stored.info.status == status
    with Engines("duckdb") as engines:
        again = judge_again(stored, open_history(stored.history), engines, Registry.standard())
    assert again.verdict is Verdict.UNKNOWN
    assert ("ValueError: odd" if raises else "the run ended in an error") in again.unknown[0]


def interrupted(*_arguments: Any) -> None:
    raise KeyboardInterrupt


def test_a_history_is_opened_once_for_verdict_text_and_report(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def opening(self: HistoryReader, folder: Path, **given: Any) -> None:
        opened.append(folder)
        really(self, folder, **given)

    really = HistoryReader.__init__
    run = attempt(toy, tmp_path, ReportPolicy.ALL, defect="forgetful")
    with monkeypatch.context() as patched:
        patched.setattr(HistoryReader, "__init__", opening)
        try:
            run.set_up()
            text = str(run.run())
        finally:
            run.tear_down()
    assert run.judgement is not None
    first = run.judgement.findings[0]
    assert first.anomaly in run.judgement.forbidden
    assert text.startswith(f"FAIL {first.anomaly}")
    assert (run.folder.path / "report.html").exists()
    assert opened == [run.folder.history]


def test_a_system_that_never_serves_is_an_infrastructure_error(toy: ModuleType, tmp_path: Path) -> None:
    made = Experiment("test_toy", toy.ToySystem(broken=True), toy.ToyClient, Contract(), body)
    run = Attempt(made, Settings(seed=1, nodes=1, store=tmp_path), "t", "pytest t")
    with pytest.raises(InfrastructureError, match="n1"):
        done(run)


@pytest.mark.parametrize(
    ("nemesis", "own"),
    [
        ((), FaultRequirements()),
        (("kill",), FaultRequirements()),
        (("kill", "ups-failure"), FaultRequirements(own_disks=True)),
        (("clock", "kill"), FaultRequirements(own_clocks=True)),
        (("slow-disk",), FaultRequirements(slow_disks=True)),
        (("memory",), FaultRequirements(own_memory=True)),
        (("membership-remove",), FaultRequirements()),
        (("kill", "membership"), FaultRequirements(spares=1)),
        (("power-loss-in-fsync",), FaultRequirements(own_disks=True, slow_disks=True)),
    ],
)
def test_nodes_get_what_the_faults_of_a_run_need_and_no_more(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nemesis: tuple[str, ...], own: FaultRequirements
) -> None:
    class UpsFailure(PowerLoss):
        name = "ups-failure"

    opened: list[FaultRequirements] = []

    def open_world(*_arguments: Any, needs: FaultRequirements, **_more: Any) -> None:
        opened.append(needs)
        raise NotImplementedError

    monkeypatch.setattr("assay.harness.run.trial.open_world", open_world)
    run = attempt(toy, tmp_path, nemesis=nemesis)
    run.registry = Registry.extended(faults=[UpsFailure()])
    with pytest.raises(NotImplementedError):
        run.set_up()
    assert opened == [own]


@pytest.mark.parametrize("raises", [True, False])
def test_a_server_that_ends_by_itself_fails_the_run(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    async def short(self: Any, runtime: Any, argv: Sequence[str]) -> int:
        task = asyncio.ensure_future(entry(self, runtime, argv))
        await asyncio.sleep(3)
        task.cancel()
        if raises:
            raise ZeroDivisionError("a bug in the server")
        return 3

    entry = toy.ToySystem.entry
    monkeypatch.setattr(toy.ToySystem, "entry", short)
    run = attempt(toy, tmp_path, time_limit=5.0)
    run.experiment = replace(run.experiment, contract=forbid("unseen", recovery_deadline=2.0))
    done(run)
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.FAIL
    assert ("unexpected-exit", "n1") in {(one.anomaly, one.key) for one in run.judgement.findings}
    info = store.read_run(run.folder.path)
    assert info is not None
    assert ("a bug in the server" in str(info.problem)) is raises


def test_a_server_that_a_fault_ends_or_asks_to_end_has_not_ended_by_itself(toy: ModuleType, tmp_path: Path) -> None:
    run = attempt(toy, tmp_path, nemesis=("kill", "restart"), time_limit=9.0, nemesis_interval=4.0, rate=50.0)
    rows = done(run).table("looks").to_pylist()
    assert [(row["what"], row["node"]) for row in rows] == [("process", "n1")]


def test_a_system_that_can_be_seen_into_is_looked_at_with_each_acknowledgement(toy: ModuleType, tmp_path: Path) -> None:
    class Inspector:
        def acknowledged(self, key: str, position: int) -> Sequence[Mapping[str, Any]]:
            acknowledged.append((key, position))
            row = {"what": "lacking", "key": key, "node": "n1", "position": position, "log_end": 0}
            return [row] if len(acknowledged) == 3 else []

        def looked_at(self) -> Sequence[Mapping[str, Any]]:
            return [{"what": "inspected", "acknowledgements": len(acknowledged)}]

    class Open(toy.ToySystem):  # type: ignore[misc, name-defined]
        def inspector(self, cluster: Any) -> Inspector:
            return Inspector()

    acknowledged: list[tuple[str, int]] = []
    run = attempt(toy, tmp_path)
    run.experiment = replace(run.experiment, system=Open())
    history = done(run)
    looks = {row["what"]: row for row in history.table("looks").to_pylist()}
    sends = [row for row in history.table("effects").to_pylist() if row["kind"] == "append" and row["outcome"] == "ok"]
    last = {(row["op"], row["key"]): row["position"] for row in sends}
    assert sorted(acknowledged) == sorted((key, position) for (_, key), position in last.items())
    assert looks["inspected"]["acknowledgements"] == len(last) > 50
    assert (looks["lacking"]["node"], looks["lacking"]["log_end"]) == ("n1", 0)
    assert run.judgement is not None
    assert run.judgement.anomalies["early-acknowledgement"] == 1
