"""Examples are played in a process of their own, which forks; what leaves a run replays from the start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest

from assay.checkers.engine import Engines
from assay.harness.core.operation import Completion, Operation
from assay.harness.run.attempt import ReportPolicy
from assay.harness.run.experiment import Experiment, find_experiment
from assay.harness.run.import_by_name import find_packages
from assay.harness.run.settings import Settings
from assay.harness.search import fork_server, fork_supervisor
from assay.harness.search.code_coverage.source import find_modules
from assay.harness.search.example import Example, SystemParts
from assay.harness.search.fork_player import (
    MAX_DEATHS,
    TURNING_POINT_FACTOR,
    UNKNOWN_FACTOR,
    ForkPlayer,
    ForkServerError,
)
from assay.harness.search.fork_server import ForkPoint
from assay.harness.search.player import DIED, ENDLESS, Player
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep
from assay.nemesis.schedule.target import parse_target
from assay.nemesis.schedule.trigger import OnEvent
from assay.workloads.broker.log_client import LogClient
from assay.workloads.test_log import test_log as of_log

from helpers import process_tree
from helpers.nightly import by_night

KILL = FaultStep(0.6, "kill", parse_target("n1"), 1.0, seed=3)


def experiment() -> Experiment:
    found = find_experiment(of_log)
    assert found is not None
    return found


def an_example(seed: int = 1, *steps: FaultStep) -> Example:
    return Example.of(Settings(seed, time_limit=4.0, rate=20.0), FaultSchedule(0, steps or (KILL,)))


def quick(tmp_path: Path, defect: str | None = None, invariants: str = "auto") -> ForkPlayer:
    base = Settings(1, store=tmp_path, time_limit=4.0, rate=20.0, defect=defect, invariants=invariants)
    return ForkPlayer(Player(experiment(), base, tmp_path / "schedules", Engines(threads=1)))


@pytest.fixture
def player(tmp_path: Path) -> Iterator[ForkPlayer]:
    with closing(quick(tmp_path)) as made:
        yield made


def never() -> bool:
    return False


@pytest.mark.slow
def test_when_each_process_dies_the_error_names_an_example_such_that_it_can_be_played(tmp_path: Path) -> None:
    """As when memory is used up."""

    class Deadly(LogClient):
        async def invoke(self, operation: Operation) -> Completion:
            os._exit(1)

    base = Settings(1, store=tmp_path, time_limit=4.0, rate=20.0)
    made = replace(experiment(), client=Deadly)
    deadly = ForkPlayer(Player(made, base, tmp_path, Engines(threads=1)))
    with closing(deadly) as player, pytest.raises(ForkServerError) as raised:
        player.play_all([an_example(seed) for seed in range(20)], never)
    said = str(raised.value).splitlines()
    assert said == [
        f"each process that played one of {MAX_DEATHS} examples died (is memory used up?), the last of:",
        f"  seed {MAX_DEATHS - 1}",
        *(f"  {line}" for line in an_example().lines(SystemParts.of(experiment().system))),
    ]


class StuckClient(LogClient):
    """It stands still once, at its first call in the first process that plays; ``stands`` is what it does."""

    flag: ClassVar[Path]
    stands: ClassVar[Callable[[], None]]

    async def invoke(self, operation: Operation) -> Completion:
        if not self.flag.exists():
            self.flag.touch()
            type(self).stands()
        return await super().invoke(operation)


def spins() -> None:
    os.nice(19)  # whatever else runs goes first
    while True:
        pass


def waits() -> None:
    """Waits where no exception reaches it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    time.sleep(600)


@pytest.mark.slow
@pytest.mark.parametrize("stands", [spins, by_night(waits)])
def test_a_run_that_has_no_end_is_killed_and_named_and_others_are_played_after_it(
    stands: Callable[[], None], tmp_path: Path
) -> None:
    class Stuck(StuckClient):
        flag = tmp_path / "flag"

    Stuck.stands = staticmethod(stands)
    base = Settings(1, store=tmp_path / "store", time_limit=4.0, rate=20.0)
    made = replace(experiment(), client=Stuck)
    player = ForkPlayer(Player(made, base, tmp_path, Engines(threads=1)), patience=6.0)
    with closing(player):
        stuck, played = player.play_all([an_example(7), an_example(1)], never)
        left = player.branch(Random(1), stopping, 2, never)
    assert (stuck.verdict, stuck.failures) == (ENDLESS, frozenset())
    assert played.digest is not None
    assert [outcome.digest is not None for _, outcome in left] == [True, True]


@pytest.mark.slow
def test_an_example_that_its_process_died_of_is_no_pass_and_others_are_played_after_it(tmp_path: Path) -> None:
    class Deadly(StuckClient):
        flag = tmp_path / "flag"

    Deadly.stands = staticmethod(lambda: os._exit(1))
    base = Settings(1, store=tmp_path / "store", time_limit=4.0, rate=20.0)
    made = replace(experiment(), client=Deadly)
    player = ForkPlayer(Player(made, base, tmp_path, Engines(threads=1)))
    with closing(player):
        died, played = player.play_all([an_example(7), an_example(1)], never)
        Deadly.flag.unlink()
        ((_, branch),) = player.branch(Random(1), stopping, 1, never)
        again = player.play(an_example(1))
    assert [(outcome.verdict, outcome.failures) for outcome in (died, branch)] == [(DIED, frozenset())] * 2
    assert played.digest == again.digest is not None


@pytest.mark.slow
def test_what_breaks_an_invariant_is_judged_before_others_are_played(tmp_path: Path) -> None:
    with closing(quick(tmp_path, "ack-before-replication", "on")) as player:
        (first,) = player.play_all([an_example(seed) for seed in (1, 2, 3)], never)
    assert "broken-invariant" in first.failures


@pytest.mark.slow
def test_a_step_that_waits_in_vain_is_left_out_unless_nothing_is_left_then(player: ForkPlayer) -> None:
    vain = msgspec.structs.replace(KILL, trigger=OnEvent("never-comes", within=1.0, optional=True))
    alone, waited_for = player.play(an_example(1, vain)), player.play(an_example(1, vain).require_triggers())
    assert {alone.verdict, waited_for.verdict} == {"unknown"}
    with_it, without_it = player.play(an_example(1, KILL, vain)), player.play(an_example(1, KILL))
    assert with_it.digest == without_it.digest, "it is the same run"
    assert with_it.injected == without_it.injected == {1}
    assert player.play(an_example(1, KILL, vain).require_triggers()).digest != without_it.digest, (
        "it says what was meant"
    )


@pytest.mark.slow
def test_fork_points_of_a_run_that_was_unknown_are_left_less_often(player: ForkPlayer) -> None:
    vain = msgspec.structs.replace(KILL, trigger=OnEvent("never-comes", within=1.0, optional=True))
    idle, struck = an_example(1, vain), an_example(2, KILL)
    assert [outcome.verdict for outcome in player.play_all([idle, struck], never)] == ["unknown", "pass"]
    favours: dict[int, set[float]] = {1: set(), 2: set()}
    for kept in player._archive._entries:
        favours[kept.item.fork_point.example.seed].add(kept.favour)
    assert favours[1]
    assert favours[1] <= {UNKNOWN_FACTOR, UNKNOWN_FACTOR * TURNING_POINT_FACTOR}
    assert favours[2]
    assert favours[2] <= {1.0, TURNING_POINT_FACTOR}


@pytest.mark.slow
def test_a_fork_point_costs_what_is_left_to_be_played_there_also_in_a_run_that_left_another(player: ForkPlayer) -> None:
    player.play_all([an_example(1, KILL)], never)
    costs = {kept.item.fork_point.at: kept.cost for kept in player._archive._entries}
    assert len(costs) > 1
    by_time = [cost for _, cost in sorted(costs.items())]
    assert by_time == sorted(by_time, reverse=True)
    assert len(set(by_time)) == len(by_time)
    player.branch(Random(1), stopping, 4, never)
    of_branches = [kept for kept in player._archive._entries if kept.item.fork_point.example.schedule.branches]
    assert of_branches
    for kept in of_branches:
        (branch,) = kept.item.fork_point.example.schedule.branches
        assert 0 < kept.cost < 1.5 * costs[branch.at], "what was played before does not count"


@pytest.mark.slow
def test_a_process_that_died_with_nothing_to_do_costs_no_example(player: ForkPlayer) -> None:
    before = player.play(an_example(1))
    *_, playing = process_tree.descendants(os.getpid())
    os.kill(playing, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while "Z" not in Path(f"/proc/{playing}/stat").read_text().rpartition(")")[2] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert player.play(an_example(1)).digest == before.digest is not None


@pytest.mark.slow
@pytest.mark.long
def test_a_branch_that_has_no_end_is_killed_too_and_no_run_is_left_where_it_was(tmp_path: Path) -> None:
    class Stuck(LogClient):
        async def invoke(self, operation: Operation) -> Completion:
            if (tmp_path / "flag").exists():
                spins()
            return await super().invoke(operation)

    base = Settings(1, store=tmp_path / "store", time_limit=4.0, rate=20.0)
    made = replace(experiment(), client=Stuck)
    player = ForkPlayer(Player(made, base, tmp_path, Engines(threads=1)), patience=6.0)
    with closing(player):
        player.play_all([an_example(1)], never)
        (tmp_path / "flag").touch()
        ((_, stuck),) = player.branch(Random(1), stopping, 5, never)
        (tmp_path / "flag").unlink()
        again = player.play(an_example(1))
    assert stuck.verdict == ENDLESS
    assert again.digest is not None


def stopping(rng: Random, fork_point: ForkPoint) -> list[FaultStep]:
    return [FaultStep(fork_point.at + 0.1, "stop", parse_target("n2"), 0.3, seed=rng.getrandbits(32))]


def facts(outcome: Any) -> tuple[object, ...]:
    return outcome.verdict, outcome.failures, outcome.digest, outcome.states, outcome.events, outcome.injected


@pytest.mark.long
@pytest.mark.slow
def test_what_passes_leaves_no_file_and_is_judged_as_in_a_folder(player: ForkPlayer, tmp_path: Path) -> None:
    outcomes = player.play_all([an_example(1), an_example(2)], never)
    assert list(tmp_path.iterdir()) == []
    ordinary = Player(experiment(), player._player.base, tmp_path / "again", Engines(threads=1))
    assert [facts(outcome) for outcome in outcomes] == [facts(ordinary.play(an_example(seed))) for seed in (1, 2)]
    assert not any(outcome.failures for outcome in outcomes)


@pytest.mark.slow
def test_what_fails_says_the_same_and_is_kept_once_a_report_is_wanted(tmp_path: Path) -> None:
    with closing(quick(tmp_path, "ack-before-replication")) as player:
        examples = [an_example(seed) for seed in (1, 2)]
        played = zip(examples, player.play_all(examples, never), strict=True)
        example, found = next((one, outcome) for one, outcome in played if outcome.failures)
        assert facts(player.play(example)) == facts(found)
        assert list(tmp_path.iterdir()) == []
        kept = player.play(example, reports=ReportPolicy.FAILED)
    assert facts(kept) == facts(found)
    assert kept.folder is not None
    assert (kept.folder / "verdict.json").exists()


@pytest.mark.slow
def test_a_broken_invariant_ends_an_example_and_is_what_it_fails_with(tmp_path: Path) -> None:
    """Sends are acknowledged before followers have them; that no client needs to have missed one yet."""
    with closing(quick(tmp_path, "ack-before-replication", invariants="on")) as player:
        (found,) = player.play_all([an_example(1)], never)
        assert found.failures == {"broken-invariant"}
        kept = player.play(an_example(1), reports=ReportPolicy.FAILED)
    assert facts(kept) == facts(found)
    assert kept.text is not None
    assert "the invariant acknowledged was broken" in kept.text


@pytest.mark.long
@pytest.mark.slow
def test_branches_replay_from_the_start_to_the_same_history_also_branches_of_branches(player: ForkPlayer) -> None:
    player.play_all([an_example()], never)
    left = player.branch(Random(1), stopping, 10, never)
    assert len(left) == 10
    digests = {}
    for example, outcome in left:
        digests[outcome.digest] = example
        assert player.play(example).digest == outcome.digest
    assert len(digests) > 2, "other chance makes other histories"
    deepest = max((example for example, _ in left), key=lambda example: len(example.schedule.branches))
    assert len(deepest.schedule.branches) > 1
    found = [outcome.digest for example, outcome in left if example is deepest]
    assert [player._player.play(deepest).digest] == found, "in this process, and in files, as well"


@pytest.mark.slow
@pytest.mark.long
def test_counting_changes_no_run_and_a_branch_counts_for_itself(player: ForkPlayer, tmp_path: Path) -> None:
    """A healthy run is left by kills: what only these reach is counted, each place once, over all processes."""

    def killing(rng: Random, fork_point: ForkPoint) -> list[FaultStep]:
        return [FaultStep(fork_point.at + 0.1, "kill", parse_target(f"n{number}"), 0.5) for number in (1, 2, 3)]

    healthy = Example.of(Settings(1, time_limit=4.0, rate=20.0), FaultSchedule(0))
    base = player._player.base
    counted = Player(experiment(), base, tmp_path / "schedules", Engines(threads=1))
    with closing(ForkPlayer(counted, modules=find_modules(find_packages(experiment().system)))) as counting:
        first, again = counting.play_all([healthy, healthy], never)
        words = [word for kept in counting._archive._entries for word in kept.features]
        of_events = [
            kept.item.fork_point for kept in counting._archive._entries if set(kept.features) - {fork_server.NEW_CODE}
        ]
        left = counting.branch(Random(1), killing, 3, never)
        last = counting.play(healthy)
    (plain,) = player.play_all([healthy], never)
    assert of_events
    assert all(fork_point.node and fork_point.event for fork_point in of_events), "new code beside it hides no event"
    outcomes = [first, again, *(outcome for _, outcome in left), last]
    everything = [place for outcome in outcomes for place in outcome.code]
    assert facts(first) == facts(again) == facts(plain)
    assert len(everything) == len(set(everything)), "what is known to one process is new to no other"
    assert {place.module.rpartition(".")[0] for place in first.code} > {"assay.system_under_test.log"}
    assert (again.code, last.code, plain.code) == (frozenset(), frozenset(), frozenset())
    recovery = {place.line for place in everything if place.module == "assay.system_under_test.log.recovery"}
    before = {place.line for place in first.code if place.module == "assay.system_under_test.log.recovery"}
    assert recovery > before, "a broker that was killed recovers its logs, in a forked process alone"
    assert fork_server.NEW_CODE in words
    example, outcome = left[0]
    assert player.play(example).digest == outcome.digest


PLAYS = """
import os, sys
from random import Random
from assay.harness.run.import_by_name import find_packages
from assay.harness.run.registry import Registry
from assay.harness.run.settings import Settings
from assay.harness.run.experiment import find_experiment
from assay.harness.search import fork_server
from assay.harness.search.code_coverage.counter import CoverageCounter
from assay.harness.search.code_coverage.source import find_modules
from assay.harness.search.example import Example
from assay.nemesis.schedule.schedule import Branch, FaultSchedule, FaultStep
from assay.nemesis.schedule.target import parse_target
from assay.nemesis.schedule.trigger import OnEvent
from assay.workloads.broker.log_client import LogClient
from assay.workloads.test_log import test_log

left = []
def leave(fork_point):
    left.append(fork_point.at)
    assert len(os.listdir("/proc/self/task")) == 1
kill = FaultStep(0.6, "kill", parse_target("n1"), 1.0, seed=3)
example = Example.of(Settings(1, time_limit=4.0, rate=20.0), FaultSchedule(0, (kill,)))
count = CoverageCounter(find_modules(find_packages(find_experiment(test_log).system)))
count.start()
run = fork_server._Run(fork_server.PlayRequest(example, fork_points=3), leave, count)
played = run.play(find_experiment(test_log), Settings(1), Registry.standard())
assert len(left) == 3
assert len(played.code) > 1000
assert not {"numpy", "pyarrow", "duckdb", "pandas"} & set(sys.modules)
assert len(os.listdir("/proc/self/task")) == 1
print(played.digest)
"""


@pytest.mark.slow
def test_what_plays_has_one_thread_loads_no_arrow_and_writes_no_file(player: ForkPlayer, tmp_path: Path) -> None:
    """And the history is the same under another hash seed, whether or not someone looks for fork points, or counts."""
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", PLAYS]
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [player.play(an_example()).digest]
    assert list(tmp_path.iterdir()) == []


def test_a_process_with_two_threads_is_not_forked() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="one thread"):
            fork_server.fork_single_threaded()
    finally:
        over.set()
        thread.join()


STANDS = """
import sys, time
from pathlib import Path
from assay.checkers.engine import Engines
from assay.harness.run.settings import Settings
from assay.harness.search.example import Example
from assay.harness.search.player import Player
from assay.harness.search.fork_player import ForkPlayer, ForkServerError
from assay.harness.run.experiment import find_experiment
from assay.nemesis.schedule.schedule import FaultSchedule
from assay.workloads.broker.log_client import LogClient
from assay.workloads.test_log import test_log

settings = Settings(1, time_limit=4.0, rate=20.0)
player = ForkPlayer(Player(find_experiment(test_log), settings, Path("schedules"), Engines(threads=1)))
player.play_all([Example.of(settings, FaultSchedule(0))], lambda: False)
print("standing", flush=True)
time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.slow
def test_the_processes_that_stand_end_with_the_one_that_searches_however_that_ends() -> None:
    parent = subprocess.Popen([sys.executable, "-c", STANDS], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "standing\n"
    standing = process_tree.started(parent.pid, 3)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert process_tree.left(standing) == []


SEARCHES = """
import os, time
from assay.harness.search import workers

class Waiting:
    def run(self):
        print(os.getpid(), flush=True)
        time.sleep(600)

workers.run_search(lambda number, note: Waiting(), 2, print)
"""


@pytest.mark.long
@pytest.mark.slow
def test_explorers_end_with_their_parent_even_if_it_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", SEARCHES], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    explorers = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert process_tree.left(explorers) == []


@pytest.mark.parametrize("limit", [-1, 2**62])
def test_a_system_without_a_limit_of_descriptors_is_not_asked_to_close_all_of_them(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: limit)
    assert fork_supervisor._find_descriptor_limit() < 10_000, "the open ones are listed"

    def list_nothing(folder: str) -> list[str]:
        raise FileNotFoundError(folder)

    monkeypatch.setattr(os, "listdir", list_nothing)
    assert fork_supervisor._find_descriptor_limit() == fork_supervisor.MOST_DESCRIPTORS
