"""``--explore`` as a test: searches on all cores, and keeps the result as a run, a schedule file and a failure text."""

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

from assay.checkers.engine import Engines
from assay.checkers.judging.verdict import Verdict
from assay.cluster.system import (
    CLIENT_ROLE,
    ZOOKEEPER_ROLE,
    SupportsClientSessions,
    SupportsSettings,
    SupportsTurningPoints,
    System,
)
from assay.cluster.temporary_folders import create_temporary_folder
from assay.harness.run.attempt import Attempt, InfrastructureError, ReportPolicy
from assay.harness.run.experiment import Experiment
from assay.harness.run.full_disk import is_full
from assay.harness.run.import_by_name import find_packages
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.loop_watchdog import PATIENCE
from assay.harness.run.progress import Progress
from assay.harness.run.registry import Registry
from assay.harness.run.settings import AUTO, Budget, Settings, derive_seed
from assay.harness.run.store import choose_schedule_path, schedule_name
from assay.harness.run.systems import coarsen_choices
from assay.harness.search.code_coverage.coverage_file import compute_coverage
from assay.harness.search.code_coverage.source import SourceModule, find_modules
from assay.harness.search.coverage_report import CoverageReport, store_report
from assay.harness.search.example import Example, SystemParts
from assay.harness.search.explore import Explorer, FoundFailure
from assay.harness.search.fork_player import ForkPlayer
from assay.harness.search.player import DIED, ENDLESS, Player
from assay.harness.search.shrink import write_shrink_note
from assay.harness.search.strategies import SHORTEST_RUN, TIME_LIMITS, SearchSpace
from assay.harness.search.workers import ExplorationResult, run_search
from assay.nemesis.faults.fault import Census, Fault
from assay.nemesis.schedule.catalogue import MIX, FaultCatalogue, explain_unsuitable
from assay.nemesis.schedule.mix import list_mixable
from assay.nemesis.schedule.schedule import FaultSchedule, ScheduleError, encode_schedule
from assay.nemesis.schedule.target import list_groups

SHRUNK_SCHEDULES: Final = "found"
"""The folder of the store for the schedules of failures that searches found, and made small."""
MOST_LINES: Final = 10
"""Maximum number of lines of the run's own failure text that are shown."""


@dataclass
class Exploration:
    """Search of one test. ``run`` can be called once; ``test`` is the pytest node id, ``command`` repeats a run."""

    experiment: Experiment
    settings: Settings
    budget: Budget
    test: str
    command: Callable[[Settings], str]
    progress: Progress
    engines: Engines
    code_coverage: str = AUTO
    """``on``, ``off``, or ``auto``: count lines and branches if the system has Python source."""
    workers: int = os.cpu_count() or 1
    interrupted: bool = False
    interrupt: Interrupt = field(default_factory=Interrupt)
    registry: Registry = field(default_factory=Registry.standard)
    passed_examples: int | None = None
    """The number of examples of a search that found nothing, once it has ended."""

    def __post_init__(self) -> None:
        if self.settings.invariants == AUTO and self.settings.defect is not None:
            self.settings = replace(self.settings, invariants="on")
        self._modules: tuple[SourceModule, ...] = ()

    def run(self) -> str | None:
        """Searches. Returns None if runs passed and none failed, else the failure text.

        A request to stop interrupts only the search, not the description of the failure that it found.
        """
        with self.interrupt.recording_requests():
            return self._run()

    def _run(self) -> str | None:
        limit = self.settings.time_limit
        if limit < SHORTEST_RUN:
            return f"UNKNOWN: --time-limit={limit:g} leaves no time for a fault: take {SHORTEST_RUN:g} or more"
        try:
            self._modules = find_countable_modules(
                self.experiment.deployed_system(), self.code_coverage, self.progress.note
            )
        except ValueError as error:
            return f"UNKNOWN: {error}"
        scratch, started = create_temporary_folder("explore"), datetime.now(UTC)
        try:
            with self.interrupt.raising_requests():
                result = run_search(
                    lambda number, note: self._make_explorer(number, note, scratch), self.workers, self.progress.note
                )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self.interrupted = result.interrupted or self.interrupt.by_user
        self.progress.note(f"explored {result.tally}")
        self._store_coverage(result, started)
        text = self._make_text(result)
        self.passed_examples = result.tally.examples if text is None else None
        return text

    def _make_text(self, result: ExplorationResult) -> str | None:
        texts = [
            self._describe_outcome(result),
            *map(self._describe_endless, result.endless),
            *map(self._describe_death, result.died),
        ]
        return "\n".join(text for text in texts if text is not None) or None

    def _describe_outcome(self, result: ExplorationResult) -> str | None:
        if result.found is not None:
            return self._describe_failure(result.found, result.broken)
        if self.interrupted:
            return f"UNKNOWN: the search was interrupted: {result.tally}"
        if not result.tally.verdicts.get(str(Verdict.PASS)):
            return f"UNKNOWN: no run of the search passed: {result.tally}"
        return None

    def _store_coverage(self, result: ExplorationResult, started: datetime) -> None:
        """Stores the coverage report for ``assay search show``. A full disk only costs the report, not the search."""
        system, tally = self.experiment.deployed_system(), result.tally
        report = CoverageReport(
            test=self.test,
            started=started.isoformat(),
            seconds=tally.seconds,
            examples=tally.examples,
            verdicts=tally.verdicts,
            states=dict(result.reached),
            events=tuple(system.turning_points) if isinstance(system, SupportsTurningPoints) else (),
            faults=make_search_space(system, self.settings, self.registry.faults).faults,
            code=compute_coverage(self._modules, result.code),
        )
        try:
            path = store_report(self.settings.store, report)
        except OSError as error:
            self.progress.note(f"the coverage report is not kept: {error}")
        else:
            self.progress.note(f"coverage report: assay search show {path}")

    def tear_down(self) -> None:
        """Closes the progress display."""
        self.progress.close()

    def _make_explorer(self, number: int, note: Callable[[str], None], scratch: Path) -> Explorer:
        seed = self.settings.seed if number == 0 else derive_seed(self.settings.seed, "explorer", number) % 2**32
        limit = min(self.settings.time_limit, max(TIME_LIMITS))
        base = replace(self.settings, seed=seed, time_limit=limit, store=scratch / str(number))
        player = Player(self.experiment, base, base.store / "schedules", Engines(threads=1, spark=False), self.registry)
        budget = self.budget
        if budget.examples is not None:
            # The shares of all workers add up to the budget exactly.
            budget = Budget(examples=(budget.examples + self.workers - 1 - number) // self.workers)
        return Explorer(
            ForkPlayer(player, modules=self._modules),
            make_search_space(self.experiment.deployed_system(), base, self.registry.faults),
            budget,
            note=note,
        )

    @property
    def _parts(self) -> SystemParts:
        return SystemParts.of(self.experiment.system)

    def _describe_example(self, example: Example) -> list[str]:
        return [f"  {line}" for line in example.lines(self._parts)]

    def _describe_endless(self, example: Example) -> str:
        headline = f"UNKNOWN: an example did not end in {PATIENCE:g} s and was killed: is there code that never waits?"
        return self._describe_unended(
            example, ENDLESS, headline, f"if a step never ends, it names the line after {PATIENCE:g} s"
        )

    def _describe_death(self, example: Example) -> str:
        headline = "UNKNOWN: the process that played an example died: is memory used up, or did a library crash?"
        return self._describe_unended(example, DIED, headline, "it may end the process")

    def _describe_unended(self, example: Example, what: str, headline: str, hint: str) -> str:
        """Describes an example that did not end, and how to play it again."""
        try:
            schedule, settings = self._write_schedule(example.require_triggers(), what)
        except OSError as error:
            kept = [f"nothing of it could be kept: {error}"]
        else:
            kept = [f"schedule: {schedule}", f"replay: {self.command(settings)} # {hint}"]
        return "\n".join([headline, f"  seed {example.seed}", *self._describe_example(example), *kept])

    def _write_schedule(self, example: Example, what: str) -> tuple[Path, Settings]:
        """Returns the schedule's file, and the settings that play it.

        The file name contains a digest of the schedule, because the seed alone is not unique: most shrunk examples have
        seed 0.
        """
        content = encode_schedule(example.schedule)
        name = schedule_name(str(example.seed), [what]).removesuffix(".json")
        folder = self.settings.store / SHRUNK_SCHEDULES
        folder.mkdir(parents=True, exist_ok=True)
        schedule = choose_schedule_path(folder, f"{name}-{hashlib.sha256(content).hexdigest()[:8]}.json", content)
        return schedule, example.settings(self.settings, schedule)

    def _describe_failure(self, found: FoundFailure, broken: str = "") -> str:
        """Describes the failure, even if a full disk has no room for its run.

        ``broken``: the traceback of an exception that ended the search while it shrank the failure, if there was one.
        """
        try:
            return (
                self._describe_unreplayed(found, broken)
                if self.interrupted or broken
                else self._replay_and_describe(found)
            )
        except Exception as error:
            if not is_full(error):
                raise
            lines = [_make_headline(found), f"nothing of it could be kept: {error}"]
            return "\n".join([*lines, *self._describe_example(found.example), *broken.splitlines()])

    def _describe_unreplayed(self, found: FoundFailure, broken: str = "") -> str:
        """Describes a failure whose shrinking was interrupted, or ended by an exception. It is not played again."""
        schedule, settings = self._write_schedule(found.example.require_triggers(), _join_failures(found))
        steps, before = len(found.example.schedule.all_steps), len(found.first.schedule.all_steps)
        return "\n".join(
            [
                _make_headline(found),
                f"{'the search broke' if broken else 'interrupted'} while it was made small: "
                f"{steps} of {before} steps are left; it was not played again",
                *self._describe_example(found.example),
                f"schedule: {schedule}",
                f"replay: {self.command(settings)}",
                *broken.splitlines(),
            ]
        )

    def _replay_and_describe(self, found: FoundFailure) -> str:
        schedule, settings = self._write_schedule(found.example, _join_failures(found))
        attempt = Attempt(
            experiment=self.experiment,
            settings=settings,
            test=self.test,
            command=self.command(settings),
            progress=self.progress,
            reports=ReportPolicy.FAILED,
            engines=self.engines,
            interrupt=self.interrupt,
            registry=self.registry,
        )
        try:
            attempt.set_up()
            write_shrink_note(
                attempt.folder.path, found.first, found.example, self._parts, runs=found.plays, first=None,
                last=str(found.rate), minimal=found.finished,
            )  # fmt: skip
            text = attempt.run() or attempt.problem or "it did not fail again"
        except InfrastructureError as error:  # the failure is that the system does not start
            text = str(error)
        finally:
            attempt.tear_down()
            self.interrupted = attempt.interrupted
        same = found.identical and attempt.digest == found.outcome.digest
        again = "equal in other plays and another process" if same else "NOT equal in every play"
        again = "interrupted while it was played again" if self.interrupted else again
        steps, before = len(found.example.schedule.all_steps), len(found.first.schedule.all_steps)
        lines = [
            _make_headline(found),
            f"shrunk from {before} steps to {steps}"
            + ("" if found.finished else " (not minimal: the time for shrinking was over)")
            + f"; with other seeds it fails {found.rate}",
            *self._describe_example(found.example),
            ("no history: " if found.outcome.digest is None else f"history {found.outcome.digest}: ") + again,
            *[line for line in text.splitlines() if not line.startswith(("seed:", "repeat:"))][:MOST_LINES],
            f"schedule: {schedule}",
            f"replay: {self.command(settings)}",
        ]
        return "\n".join(lines)


def _join_failures(found: FoundFailure) -> str:
    return "+".join(sorted(found.outcome.failures))


def _make_headline(found: FoundFailure) -> str:
    return f"FOUND {', '.join(sorted(found.outcome.failures))}: after {found.examples} examples, {found.after:.0f} s"


def make_search_space(system: System, base: Settings, catalogue: FaultCatalogue) -> SearchSpace:
    """Returns the space to draw from, with the requested faults, or else all that suit this system."""
    suited = [
        name
        for name in sorted({*catalogue.in_nemesis_all, *list_mixable(catalogue)})
        if explain_unsuitable(catalogue[name], system) is None
    ]
    chosen = () if base.nemesis == (MIX,) else base.nemesis
    variants = system.variants if isinstance(system, SupportsSettings) else {}
    space = SearchSpace(
        catalogue=catalogue,
        base=Example.of(base, FaultSchedule(0)),
        faults=chosen or tuple(suited),
        keys=tuple(system.keys()),
        turning_points=tuple(system.turning_points) if isinstance(system, SupportsTurningPoints) else (),
        variants=tuple((name, coarsen_choices(values)) for name, values in variants.items()),
        ensemble=ZOOKEEPER_ROLE in system.roles,
        clients=lambda nodes: replace(base, nodes=nodes).client_node_count if CLIENT_ROLE in system.roles else 0,
        groups=list_groups(system),
        resizable=not base.role_nodes,
        sessions=isinstance(system, SupportsClientSessions),
    )
    if chosen:
        return space
    # A fault may suit a system and still find no target in this cluster: no key, no group, too few servers.
    census = space.census(base.nodes, base.zookeepers)
    return replace(space, faults=tuple(name for name in space.faults if _is_drawable(catalogue[name], census)))


def _is_drawable(fault: Fault, census: Census) -> bool:
    try:
        fault.draw(Random(0), census, None)
    except ScheduleError:
        return False
    return True


def find_countable_modules(system: System, wanted: str, note: Callable[[str], None]) -> tuple[SourceModule, ...]:
    """Returns the system's modules, or none if ``--code-coverage`` is off, or ``auto`` and there is no source.

    Raises ``ValueError`` if it is ``on`` and there is no source.
    """
    if wanted == "off":
        return ()
    try:
        return find_modules(find_packages(system))
    except ValueError as error:
        remedy = "name it in the system's code_packages (SupportsCodePackages), or give --code-coverage=off"
        if wanted == "on":
            raise ValueError(f"{error}: {remedy}") from error
        note(f"lines and branches are not counted: {error}: {remedy}")
        return ()
