"""An execution of an experiment, from the first node to the closed history, as coroutines for any environment.

1. The main phase runs under faults until the time limit.
2. Every fault is healed. The system has until the contract's deadline to serve on every node again.
3. The generator's later phases (sentinels, the drain) run without faults.
4. The history is closed. ``Attempt`` judges it afterwards, as ``assay check`` would later.

The nodes' event logs are collected into the history throughout. No error in a run loses its history: faults are healed,
the history is closed, and the error is recorded. A first Ctrl-C ends the main phase, heals, and skips the drain. The
history so far is checked, but the verdict cannot be pass.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from assay.cluster.deploy import start_system
from assay.cluster.node import Cluster, Node, NodeError
from assay.cluster.operating_system import measure_sleep
from assay.cluster.system import (
    ZOOKEEPER_ROLE,
    DeploymentError,
    SupportsInspection,
    SupportsReplicas,
    SupportsSnapshots,
    System,
)
from assay.harness.core.client import Endpoint
from assay.harness.core.generator import Generator, phases, rate, split_phases, time_limit
from assay.harness.core.history import History
from assay.harness.core.history.data_sets import WORKER_NODES
from assay.harness.core.interpreter import Interpreter
from assay.harness.core.interpreter_status import InterpreterStatus, describe_with_location
from assay.harness.core.operation import Completed, Outcome
from assay.harness.core.timestamps import Origin, Stamps
from assay.harness.remote import RemoteClient
from assay.harness.remote.multiplexer import ByteWriter
from assay.harness.remote.network_worker import NetworkWorker
from assay.harness.remote.proxy import connect_directly, split_home
from assay.harness.run.client_nodes import assign_client_nodes, make_endpoints
from assay.harness.run.drain_watchdog import NewRecordCounter, compute_drain_limit, wait_for_standstill
from assay.harness.run.environments import FaultRequirements, World, open_world
from assay.harness.run.event_logs import EventLogCollector
from assay.harness.run.experiment import Experiment
from assay.harness.run.faults import plan_schedule, select_possible_faults
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.live_judging import LiveJudge
from assay.harness.run.observers import (
    InspectingRecorder,
    InvariantAsserter,
    LeaderPoller,
    QuiescenceWatch,
    StallMeter,
    describe_failed_finds,
    describe_uncaught,
    list_crashes,
    read_wall_offsets,
    record_processes,
)
from assay.harness.run.progress import Progress, RunTally
from assay.harness.run.registry import Registry
from assay.harness.run.resource_recorder import ResourceRecorder
from assay.harness.run.settings import Settings, derive_seed
from assay.harness.run.store import RunOutput
from assay.harness.run.system_on_network import SystemOnNetwork, may_leave_harness, start_worker
from assay.harness.run.systems import apply_settings, complete_contract, with_defect
from assay.nemesis.engine.conductor import Conductor
from assay.nemesis.engine.reporter import FaultPhase, FaultRow
from assay.nemesis.faults.process import restrict
from assay.nemesis.schedule.catalogue import MIX, FaultCatalogue
from assay.nemesis.schedule.schedule import FaultSchedule, encode_schedule
from assay.nemesis.schedule.target import list_possible_servers, parse_target, servers

TICK: Final = 0.1
"""Seconds between two checks of the interrupt and updates of the progress."""
READY_INTERVAL: Final = 0.25
"""Seconds between two calls of a node's ``ready``."""
START_SECONDS: Final = 90.0
"""Time limit for all processes to serve and for the set-up. A slow machine under load takes a third of it."""
REPLICA_SECONDS: Final = 60.0
"""Time limit for reading the nodes' disks."""
REPLICA_ROWS: Final = 4_096
"""Rows of replicas after which other tasks of the loop run."""


class FaultUnavailableError(Exception):
    """A requested fault cannot be injected into this cluster. The message says why, and the remedy."""


@dataclass(frozen=True)
class TrialEnd:
    """How a run ended, in addition to its history.

    ``notes`` are reasons against a pass, ``problems`` are for the record, ``remarks`` for the author of the client.
    """

    digest: str
    interrupted: bool
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    stood_still: float = 0.0
    """Seconds for which the machine paused the tester."""


@dataclass
class Trial:
    """A run: call ``set_up``, then ``run`` once, and ``tear_down`` in every case."""

    experiment: Experiment
    system: System
    settings: Settings
    world: World
    output: RunOutput
    faults: FaultCatalogue
    interrupt: Interrupt
    progress: Progress
    tally: RunTally = field(default_factory=RunTally)
    origin: Origin | None = None
    """When the history began; None before."""
    schedule: FaultSchedule | None = None
    """The faults to play; None: drawn from the settings."""
    live_judge: LiveJudge | None = None
    """Judges the history while it grows, if requested."""
    resources: ResourceRecorder | None = None
    """Samples memory and disk space, if the run is kept."""
    on_network: SystemOnNetwork | None = None
    """The system, if its network calls may have to run on the network of its nodes."""
    _worker: NetworkWorker | None = None
    _generator: Generator | None = None
    _cluster: Cluster | None = None
    _conductor: Conductor | None = None
    _assertions: InvariantAsserter = field(default_factory=InvariantAsserter)
    _logs_kept: bool = False
    _stalls: StallMeter = field(default_factory=lambda: StallMeter(TICK))
    _ready_error: Exception | None = None
    """The last exception of a node's ``ready``."""
    _problems: list[str] = field(default_factory=list)
    _unavailable: list[str] = field(default_factory=list)
    """Faults that ``--nemesis=mix`` must not draw on this cluster."""

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "set_up comes first"
        return self._cluster

    @property
    def conductor(self) -> Conductor:
        """The conductor of the current run, which injects and heals its faults."""
        assert self._conductor is not None, "run comes first"
        return self._conductor

    @property
    def _cut_short(self) -> bool:
        """Whether the run must end early, by an interruption or a broken invariant."""
        return self.interrupt.requested or self._assertions.broken

    def prepare(self) -> None:
        """Lets the test make its generator before there is a cluster. Raises the exceptions of the test."""
        if self._generator is None:
            self._generator = self.experiment.generator(self.settings)

    async def set_up(self) -> None:
        """Starts the nodes and the system on them, until it serves.

        Raises ``NodeError``, ``DeploymentError`` or other errors of the world, and :class:`FaultUnavailableError`.
        """
        self.prepare()
        self._cluster = await self.world.open(self.progress.note)
        if self.on_network is not None:
            with self.world.step("starting the process for clients"):
                self._worker = await start_worker(self.on_network, self._cluster, self.world.runtime)
        if self._worker is not None:
            self.progress.note("clients run in a container, on the network of the nodes")
        await start_system(self.system, self._cluster, START_SECONDS, self.progress.note)
        target = None if self.settings.nemesis_target is None else parse_target(self.settings.nemesis_target)
        for name in select_possible_faults(self.system, self.settings, self.faults):
            with self.world.step(f"trying whether {name} can be injected"):
                reason = await restrict(self.faults[name], target).probe(self._cluster, self.system)
            if reason is not None and self.settings.nemesis == (MIX,):
                self._unavailable.append(name)
                self.progress.note(f"the mix leaves out {name}: {reason}")
            elif reason is not None:
                raise FaultUnavailableError(f"--nemesis={name} is not available here: {reason}")

    async def run(self) -> TrialEnd:
        """Runs the workload under faults, the heal and the drain."""
        loop = asyncio.get_running_loop()
        # A killed simulation can be replayed, so its history is sealed only at its end.
        sealing = None if getattr(loop, "simulated", False) else loop
        history = self.output.open_history(sealing)
        stamps = Stamps()
        self.origin = Origin(stamps.to_loop_time(0), time.time(), read_wall_offsets(self.cluster))
        try:
            status = await self._drive(history, stamps)
            self.output.write(f"history/{WORKER_NODES}", msgspec.json.encode(status.worker_nodes, order="sorted"))
            digest = history.digest()
            history.close()
        except BaseException:
            # The rows so far stay readable, but the history is not marked as complete.
            with contextlib.suppress(Exception):  # an error here must not hide the one that ended the run
                history.flush()
            history.abandon()
            raise
        ends = () if self.interrupt.reason is None else (self.interrupt.reason,)
        uncaught = describe_uncaught(getattr(loop, "uncaught", ()))
        finds = describe_failed_finds(self.conductor.finder_statistics)
        unknown, remarks = (*ends, *status.unknown), (*status.remarks, *uncaught, *finds)
        stood_still = self._stalls.total
        return TrialEnd(digest, self.interrupt.requested, unknown, tuple(self._problems), remarks, stood_still)

    async def keep_logs(self) -> None:
        """Copies the nodes' logs into the run's folder, once. An error costs the run neither its history nor its
        verdict.
        """
        if self._cluster is not None and self.output.logs is not None and not self._logs_kept:
            self._logs_kept = True
            try:
                missing = await self.world.save_logs(self.output.logs)
            except Exception as error:  # noqa: BLE001 - user code lists the logs
                missing = [describe_with_location(error)]
            for one in missing:
                self.progress.note(f"log not kept: {one}")

    async def tear_down(self, *, keep: bool) -> None:
        """Keeps the nodes' logs and removes the cluster, or leaves it if ``keep`` is true. Idempotent."""
        try:
            await self.keep_logs()
        finally:
            self._cluster = None
            try:
                if self._worker is not None:
                    with self.world.step("ending the process for clients"):
                        await self._worker.close()
            finally:
                await self.world.close(keep=keep)

    async def _drive(self, history: History, stamps: Stamps) -> InterpreterStatus:
        """Runs the workload, the faults and the observers until the history is complete."""
        settings = self.settings
        assert self._generator is not None, "set_up comes first"
        main, *later = split_phases(self._generator)
        contract, sources = self.experiment.contract, self.world.random_sources
        if self.schedule is None:
            # A fault under which the system may stall by design (`may_stall`) may strike all servers at once.
            self.schedule = plan_schedule(self.system, settings, self.faults, self._unavailable, contract.may_stall)
        schedule = self.schedule
        conductor = self._conductor = Conductor(
            self.cluster,
            self.system,
            schedule,
            sources.source("targets", derive_seed(settings.seed, "targets")),
            self._make_fault_recorder(history, stamps),
            stamps.now,
            catalogue=self.faults,
            recovery_seconds=contract.recovery_deadline,
            reseed=sources.reseed,
            call_between_events=self.world.call_between_events,
        )
        self.output.write("schedule.json", encode_schedule(schedule))
        collector = EventLogCollector(
            list_possible_servers(self.cluster, self.system), history, stamps, conductor.handle_event
        )

        def count_acknowledged(completed: Completed) -> None:
            if completed.completion.outcome is Outcome.OK:
                conductor.count_acknowledged()

        inspector = self.system.inspector(self.cluster) if isinstance(self.system, SupportsInspection) else None
        recorder = InspectingRecorder(history, inspector, stamps, self._assertions.acknowledged)
        counter, stop = NewRecordCounter(recorder), asyncio.Event()
        ticker = asyncio.get_running_loop().create_task(self._tick(stamps, stop), name="progress and interrupt")
        leader_poller = LeaderPoller(self.system, self.cluster, history, stamps)
        if self.resources is not None:
            self.resources.start(self.cluster, stamps.to_loop_time(0))
        collector.start()
        leader_poller.start()
        if self.live_judge is not None:
            await self.live_judge.start()
        if settings.asserts_invariants:
            self._assertions.begin(self.system, self.cluster, history, stamps, stop.set)
        try:
            async with Interpreter(
                endpoints=self._make_endpoints(),
                client=self._make_client,
                recorder=counter,
                concurrency=settings.concurrency,
                runtime=self.world.runtime(),
                operation_timeout=settings.operation_timeout,
                seed=derive_seed(settings.seed, "workload"),
                stamps=stamps,
                on_completion=(self.tally.completed, count_acknowledged),
                backs_off=settings.rate is None,  # workers pause after repeated failures
            ) as interpreter:
                sources.listen("workload", interpreter.reseed)  # each branch of a search has random numbers of its own
                history.show_unfinished(interpreter.iterate_unfinished_operations)
                paced = main if settings.rate is None else rate(settings.rate, main)
                await self._run_main_phase(interpreter, conductor, time_limit(settings.time_limit, paced), stop)
                if later and not self._cut_short:
                    self.tally.stage = "drain"
                    await self._run_later_phases(interpreter, phases(*later), stop, counter)
                if not self._cut_short:
                    await self._wait_until_at_rest(history, stamps)
                if not self._cut_short:
                    await record_processes(self.cluster, servers(self.cluster, self.system), history, stamps)
                    recorder.close()
                    await self._read_replicas(history)
                return interpreter.status
        finally:
            if self.live_judge is not None:
                await self.live_judge.stop()
                self._problems.extend(self.live_judge.problems)
            self._problems.extend(await conductor.close())
            self.output.write("schedule.json", encode_schedule(conductor.outcome))  # now as it was played
            await leader_poller.stop()
            await collector.stop()
            self._problems.extend((*leader_poller.problems, *collector.problems))
            self._problems.extend(list_crashes(self.cluster))
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)
            if self.resources is not None:
                await self.resources.stop(asyncio.get_running_loop().time() - stamps.to_loop_time(0))
            self._assertions.end()

    async def _run_main_phase(
        self, interpreter: Interpreter, conductor: Conductor, main: Generator, stop: asyncio.Event
    ) -> None:
        """Runs the main phase. When it returns, every fault is healed, and every server is ready or the contract's
        deadline is over.
        """
        self.tally.stage = "main"
        nemesis = asyncio.get_running_loop().create_task(conductor.run(), name="nemesis")
        try:
            await interpreter.run(main, stop=stop)
        finally:
            self.tally.stage = "healing"
            self._problems.extend(await conductor.heal_all())
            await nemesis
        if not self._cut_short:
            await self._wait_for_recovery(conductor)

    async def _run_later_phases(
        self, interpreter: Interpreter, later: Generator, stop: asyncio.Event, counter: NewRecordCounter
    ) -> None:
        """Runs the later phases, and ends those that would go on for ever."""
        counter.enabled = True
        endless = asyncio.Event()
        contract, settings = self.experiment.contract, self.settings
        limit = compute_drain_limit(contract, settings)
        patience, timeout = contract.recovery_deadline, settings.operation_timeout
        watch = wait_for_standstill(interpreter, patience, timeout, counter, limit)
        watcher = asyncio.get_running_loop().create_task(watch, name="endless")
        watcher.add_done_callback(lambda task: endless.set())
        try:
            await interpreter.run(later, stop=stop, until=endless)
            if watcher.done():
                watcher.result()
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _wait_for_recovery(self, conductor: Conductor) -> None:
        """Waits until all nodes serve again. The checks judge whether that took too long."""
        deadline = self.experiment.contract.recovery_deadline
        try:
            async with asyncio.timeout(deadline):
                await conductor.wait_for_recoveries()
                waiting = [node for node in self.cluster.nodes if node.role != ZOOKEEPER_ROLE]
                while waiting and not self._cut_short:
                    if await self._is_ready(waiting[0]):
                        waiting.pop(0)
                    else:
                        await asyncio.sleep(READY_INTERVAL)
        except TimeoutError:
            last = (
                ""
                if self._ready_error is None
                else f"; the last error of ready(): {describe_with_location(self._ready_error)}"
            )
            self._problems.append(f"not every node was ready {deadline:g} s after the last heal{last}")

    async def _wait_until_at_rest(self, history: History, stamps: Stamps) -> None:
        """Takes snapshots of the system until it is at rest, or until the deadlines for that have passed."""
        if isinstance(self.system, SupportsSnapshots):
            self.tally.stage = "coming to rest"
            watch = QuiescenceWatch(self.system, self.cluster, self.world.runtime(), history, stamps)
            obstacle = await watch.wait_until_at_rest(self.experiment.contract.rest, lambda: self._cut_short)
            if obstacle is not None:
                self._problems.append(obstacle)

    async def _read_replicas(self, history: History) -> None:
        """Records all replicas on the nodes' disks, if the system can read them. If one cannot be read, records none
        of them, and a problem.
        """
        if not isinstance(self.system, SupportsReplicas):
            return
        self.tally.stage = "reading the replicas"
        try:
            async with asyncio.timeout(REPLICA_SECONDS):
                records = await self.system.replicas(self.cluster)
        except (NodeError, DeploymentError, OSError) as error:
            reason = str(error) or f"not done within {REPLICA_SECONDS:g} s"
            self._problems.append(f"the replicas' disks could not be read: {reason}")
            return
        for number, one in enumerate(records, start=1):
            history.replica(**one)
            if number % REPLICA_ROWS == 0:
                await asyncio.sleep(0)

    async def _is_ready(self, node: Node) -> bool:
        try:
            return await self.system.ready(node)
        except Exception as error:  # noqa: BLE001 - a recovering node may answer in any way; retried until the deadline
            self._ready_error = error
            return False

    def _make_fault_recorder(self, history: History, stamps: Stamps) -> Callable[[FaultRow], None]:
        """Returns a function that records fault rows.

        The row of an injection is written when the injection is complete. Its detail also has the time at which the
        injection began, because the fault may have done harm since then.
        """

        def record(row: FaultRow) -> None:
            columns = row.columns()
            if row.phase is FaultPhase.INJECTED:
                began = min(stamps.to_stamp(self.conductor.start_time + row.detail["at"]), row.time)
                columns["detail"] = {**row.detail, "began": began}
            history.fault(**columns)
            if row.phase is FaultPhase.INJECTED:
                self.tally.active_faults[row.id] = str(row)
                self.tally.injected += 1
            elif row.phase is FaultPhase.HEALED:
                self.tally.active_faults.pop(row.id, None)

        return record

    async def _tick(self, stamps: Stamps, stop: asyncio.Event) -> None:
        """Updates the progress by the loop's clock, because reading stamps would advance the history's clock."""
        loop = asyncio.get_running_loop()
        origin = stamps.to_loop_time(0)
        while True:
            if self.interrupt.requested:
                stop.set()
            self.tally.elapsed = loop.time() - origin
            self.progress.update(self.tally)
            if self.resources is not None:
                self.resources.sample(self.tally.elapsed)
            slept = 0.0 if getattr(loop, "simulated", False) else measure_sleep()
            self._stalls.record_sleep(loop.time(), time.process_time(), slept)
            await asyncio.sleep(TICK)

    def _make_endpoints(self) -> list[Endpoint]:
        endpoints = make_endpoints(self.system, self.cluster, self.settings.defect, self.experiment.client_options)
        return assign_client_nodes(endpoints, self.cluster) if self.experiment.client_nodes else endpoints

    def _make_client(self) -> Any:
        kind, worker = self.experiment.client, self._worker
        if worker is None and not self.experiment.client_nodes:
            return kind()

        async def connect_through_worker(endpoint: Endpoint) -> tuple[asyncio.StreamReader, ByteWriter]:
            assert worker is not None
            return worker.open_connection() if endpoint.home is None else await worker.relay(*split_home(endpoint))

        connect = connect_directly if worker is None else connect_through_worker
        return RemoteClient(kind, self.settings.operation_timeout, connect)


def make_trial(
    experiment: Experiment,
    settings: Settings,
    output: RunOutput,
    registry: Registry,
    *,
    run_id: str,
    interrupt: Interrupt,
    progress: Progress,
) -> Trial:
    """Returns a trial that has not started. Its contract includes the limits of its system.

    ``experiment`` and ``settings`` already include their mixes. ``run_id`` marks the run's containers.
    """
    configured = apply_settings(with_defect(experiment.system, settings.defect), settings.configuration)
    experiment = replace(experiment, contract=complete_contract(experiment.contract, configured))
    on_network = SystemOnNetwork(configured, experiment.client) if may_leave_harness(settings) else None
    system = experiment.deployed_system(on_network or configured)  # perhaps with client nodes
    drawn = [registry.faults[name] for name in select_possible_faults(system, settings, registry.faults)]
    world = open_world(system, settings, run_id=run_id, needs=FaultRequirements.of_faults(drawn))
    return Trial(
        experiment, system, settings, world, output, registry.faults, interrupt, progress, on_network=on_network
    )
