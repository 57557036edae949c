"""The search finds what fails, keeps what was new, makes small what it found, and ends when it should."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis.internal.conjecture.providers import HypothesisProvider

from assay.checkers.engine import Engines
from assay.checkers.judging.contract import Contract
from assay.harness.core.failure_rate import FailureRate
from assay.harness.core.generator import Generator
from assay.harness.run.attempt import ReportPolicy
from assay.harness.run.client_nodes import SystemWithClientNodes
from assay.harness.run.experiment import Experiment
from assay.harness.run.progress import SilentProgress
from assay.harness.run.settings import Budget, Settings
from assay.harness.search.code_coverage.counter import CodePlace
from assay.harness.search.example import Example, SystemParts
from assay.harness.search.exploration import Exploration, make_search_space
from assay.harness.search.explore import Explorer, FoundFailure
from assay.harness.search.player import DIED, ENDLESS, NOT_STARTED, Player, PlayOutcome, make_outcome_without_history
from assay.harness.search.workers import WorkerError, run_search
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, decode_schedule
from assay.nemesis.schedule.target import Target, TargetKind
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.group_client import GroupClient
from assay.workloads.broker.log_operations import traffic

from helpers import process_tree
from helpers.nightly import by_night
from helpers.small_disk import small_disk

OF_BROKER: Any = SimpleNamespace(system=Broker())
"""Stands for an experiment of which only the system is read."""

BASE = Settings(seed=3, time_limit=10.0, rate=50.0)


@pytest.fixture
def the_same_whatever_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis also draws from the constants in the code of all loaded modules: here a seed alone decides."""
    monkeypatch.setattr(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None)


@dataclass
class PretendPlayer:
    """Runs that take no time: ``fails`` says which fail."""

    fails: Callable[[Example], bool]
    played: int = 0
    code: Callable[[Example], frozenset[CodePlace]] = lambda example: frozenset()

    def play(self, example: Example, *, reports: ReportPolicy = ReportPolicy.NEVER) -> PlayOutcome:
        self.played += 1
        failed = self.fails(example)
        states = frozenset("+".join(pair) for pair in itertools.combinations(sorted(kinds(example)), 2))
        return PlayOutcome(
            verdict="fail" if failed else "pass",
            failures=frozenset({"lost-write"} if failed else ()),
            digest=str(hash((example.seed, len(example.schedule.steps)))),
            states=states,
            events=frozenset({"became-leader"}),
            injected=frozenset(range(1, len(example.schedule.steps) + 1)),
            folder=None,
            text=None,
            code=self.code(example),
        )

    def play_all(self, examples: Sequence[Example], enough: Callable[[], bool]) -> list[PlayOutcome]:
        return [self.play(example) for example in itertools.takewhile(lambda _: not enough(), examples)]


def explorer(player: Any, budget: Budget, seed: int = 3) -> Explorer:
    return Explorer(player, make_search_space(Broker(), replace(BASE, seed=seed), FaultCatalogue.standard()), budget)


def kinds(example: Example) -> set[str]:
    return {step.fault for step in example.schedule.steps}


@pytest.mark.parametrize("names", [(), ("members",)])
def test_a_fault_that_finds_nothing_to_strike_is_not_drawn(names: tuple[str, ...]) -> None:
    drawn = make_search_space(
        SystemWithClientNodes(Broker(groups=names), GroupClient), BASE, FaultCatalogue.standard()
    ).faults
    assert ("consumer-from-coordinator" in drawn) is bool(names)
    assert {"kill", "cut-consumer", "hold"} <= set(drawn)


@pytest.mark.parametrize("count", [1, 7, 20, 33])
def test_no_more_examples_are_played_than_there_may_be(count: int) -> None:
    player = PretendPlayer(lambda example: False)
    searching = explorer(player, Budget(examples=count))
    assert searching.run() is None
    assert player.played == searching.tally.examples == count


@pytest.mark.long
def test_two_faults_that_fail_together_are_found_and_nothing_else_is_left() -> None:
    player = PretendPlayer(lambda example: {"kill", "partition"} <= kinds(example))
    found = explorer(player, Budget(examples=2000), seed=2).run()
    assert found is not None
    assert sorted(step.fault for step in found.example.schedule.steps) == ["kill", "partition"]
    assert (found.example.nodes, found.example.concurrency, found.example.configuration) == (3, 1, ())
    assert found.finished
    assert found.identical
    assert found.rate.failed == found.rate.runs


def test_a_search_without_a_failure_ends_with_its_budget_and_tells_what_it_did() -> None:
    player = PretendPlayer(lambda example: False)
    one = explorer(player, Budget(examples=100))
    assert one.run() is None
    assert 100 <= one.tally.examples <= 120
    assert one.tally.verdicts == {"pass": one.tally.examples}
    assert one.tally.states > 10
    assert 0 < one.tally.corpus <= one.tally.examples


@pytest.mark.long
def test_the_same_seed_searches_the_same_and_another_one_something_else() -> None:
    def seen(seed: int) -> list[Example]:
        examples: list[Example] = []
        explorer(PretendPlayer(lambda example: bool(examples.append(example))), Budget(examples=60), seed).run()
        return examples

    assert seen(1) == seen(1)
    assert seen(1) != seen(2)


@pytest.mark.usefixtures("the_same_whatever_is_loaded")
@pytest.mark.parametrize("keeps", [True, by_night(False)], ids=["with-corpus", "without"])
def test_what_only_a_corpus_leads_to_is_found(keeps: bool) -> None:
    """Five kinds of faults in one run: new examples have fewer, so that only changes of changes come to it."""
    searching = explorer(PretendPlayer(lambda example: len(kinds(example)) >= 5), Budget(examples=300), seed=4)
    searching.on_found = lambda found: pytest.fail(FOUND)  # to make it small takes longer, and is another test's
    searching.on_progress = lambda tally: None if keeps else searching._corpus.clear()
    with pytest.raises(pytest.fail.Exception, match=FOUND) if keeps else contextlib.nullcontext():
        assert searching.run() is None


FOUND = "found"


def test_an_example_that_reaches_new_code_is_kept_also_when_its_states_are_known() -> None:
    """As long as it is new: the player says of each place once that it was reached."""
    places = [CodePlace("m", 1, None), CodePlace("m", 1, True)]
    searching = explorer(PretendPlayer(lambda example: False), Budget(examples=1))
    outcome = PretendPlayer(lambda example: False).play(Example.of(BASE, FaultSchedule(0)))
    kept = []
    for new in (frozenset(places[:1]), frozenset[CodePlace](), frozenset(places[1:])):
        searching._learn(Example.of(replace(BASE, seed=len(kept)), FaultSchedule(0)), replace(outcome, code=new))
        kept.append(searching.tally.corpus)
    assert kept == [1, 1, 2]
    assert searching.code == set(places)
    assert (searching.tally.lines, searching.tally.branches) == (1, 1)
    assert "1 lines and 1 branches of the system" in str(searching.tally)


def test_what_several_workers_reach_of_the_code_is_united() -> None:
    def make(number: int, note: Callable[[str], None]) -> Explorer:
        found = frozenset({CodePlace("m", 1, None), CodePlace("m", 2 + number, None)})
        return explorer(PretendPlayer(lambda example: False, code=lambda example: found), Budget(examples=2), number)

    result = run_search(make, 2, lambda line: None)
    assert {place.line for place in result.code} == {1, 2, 3}


def test_a_step_that_never_acted_is_not_kept_in_the_corpus() -> None:
    example = Example.of(
        BASE, FaultSchedule(0, tuple(FaultStep(float(at), "kill", Target(TargetKind.ONE), 1.0) for at in (1, 2, 3)))
    )
    assert [step.at for step in example.keep_steps({1, 3}).schedule.steps] == [1.0, 3.0]
    assert example.keep_steps(set()) == example  # a run without any fault leads nowhere


@pytest.mark.long
def test_several_workers_share_a_search_and_the_first_failure_ends_it() -> None:
    def make(number: int, note: Callable[[str], None]) -> Explorer:
        fails = (lambda example: "kill" in kinds(example)) if number == 1 else (lambda example: False)
        return explorer(PretendPlayer(fails), Budget(seconds=60.0), seed=number)

    result = run_search(make, 2, lambda line: None)
    assert result.found is not None
    assert kinds(result.found.example) == {"kill"}


def test_a_worker_that_breaks_is_reported_and_ends_the_search() -> None:
    def broken(example: Example) -> bool:
        raise RuntimeError("the harness broke")

    with pytest.raises(WorkerError, match="the harness broke"):
        run_search(lambda number, note: explorer(PretendPlayer(broken), Budget(examples=10)), 2, lambda line: None)


@dataclass
class UnendedPlayer(PretendPlayer):
    """Every other run comes to no end."""

    instead: str = ENDLESS

    def play(self, example: Example, *, reports: ReportPolicy = ReportPolicy.NEVER) -> PlayOutcome:
        outcome = super().play(example, reports=reports)
        return outcome if self.played % 2 else make_outcome_without_history(self.instead)


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (ENDLESS, "UNKNOWN: an example did not end in 120 s"),
        (DIED, "UNKNOWN: the process that played an example died"),
    ],
)
def test_what_has_no_end_ends_no_search_but_is_no_pass_and_can_be_played_again(
    instead: str, said: str, found: bool, tmp_path: Path
) -> None:
    result = run_search(
        lambda number, note: explorer(UnendedPlayer(lambda example: False, instead=instead), Budget(examples=4)),
        1,
        lambda line: None,
    )
    assert result.tally.verdicts == {"pass": 2, instead: 2}
    unended = {ENDLESS: result.endless, DIED: result.died}.pop(instead)
    assert len(unended) == 2 == len(result.endless + result.died)
    nowhere: Any = None
    asked = Exploration(
        OF_BROKER, Settings(1, store=tmp_path), Budget(), "t", lambda made: f"pytest {made.seed} {made.replay}",
        SilentProgress(),
        nowhere,
    )  # fmt: skip
    if found:
        result = replace(result, found=found_in(unended[0], "lost-write"), broken="broken")
    text = asked._make_text(result)
    assert text is not None
    assert text.startswith("FOUND lost-write" if found else said)
    for example in unended:
        (kept,) = (tmp_path / "found").glob(f"{example.seed}-{instead}-*.json")
        assert decode_schedule(kept.read_bytes()) == example.schedule
        assert f"replay: pytest {example.seed} {kept}" in text
    assert asked._make_text(replace(result, endless=(), died=(), found=None)) is None


@dataclass
class BreakingPlayer(PretendPlayer):
    """Finds what fails, and then does what it must not."""

    ends: Callable[[], object] = lambda: None

    def play_all(self, examples: Sequence[Example], enough: Callable[[], bool]) -> list[PlayOutcome]:
        played = super().play_all(examples, enough)
        self.fails = lambda example: bool(self.ends())
        return played


def breaks() -> None:
    raise RuntimeError("the harness broke")


@pytest.mark.parametrize(
    ("ends", "said"),
    [(breaks, "RuntimeError: the harness broke"), (lambda: os._exit(3), "explorer 0 died with exit code 3")],
    ids=["raises", "dies"],
)
def test_what_was_found_stays_found_when_its_explorer_breaks_while_it_is_made_small(
    ends: Callable[[], object], said: str, tmp_path: Path
) -> None:
    def make(number: int, note: Callable[[str], None]) -> Explorer:
        return explorer(BreakingPlayer(lambda example: True, ends=ends), Budget(seconds=60.0))

    result = run_search(make, 1, lambda line: None)
    assert not result.interrupted
    assert said in result.broken
    assert result.found is not None
    assert result.found.outcome.failures == {"lost-write"}
    nowhere: Any = None
    asked = Exploration(
        OF_BROKER, Settings(1, store=tmp_path), Budget(), "t", lambda made: "pytest", SilentProgress(), nowhere
    )
    lines = asked._describe_unreplayed(result.found, result.broken).splitlines()
    assert lines[0].startswith("FOUND lost-write: after ")
    assert lines[1].startswith("the search broke while it was made small: ")
    assert said in lines[-1]


def test_what_an_interrupted_search_has_found_is_kept_though_it_is_not_small_yet() -> None:
    def make(number: int, note: Callable[[str], None]) -> Explorer:
        player = PretendPlayer(lambda example: "kill" in kinds(example))
        ground = make_search_space(Broker(), replace(BASE, seed=number), FaultCatalogue.standard())
        return Explorer(player, ground, Budget(seconds=60.0), note=note)  # type: ignore[arg-type]

    def interrupt(line: str) -> None:
        if "fails with" in line:
            signal.raise_signal(signal.SIGINT)

    result = run_search(make, 2, interrupt)
    assert result.interrupted
    assert result.found is not None
    assert "kill" in kinds(result.found.example)
    assert (result.found.rate, result.found.finished) == (None, False)


SLEEPING = """
import time
from assay.harness.run.settings import Budget, Settings
from assay.harness.search.explore import Explorer, FoundFailure
from assay.harness.search.exploration import Exploration, make_search_space
from assay.harness.search.workers import run_search
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.system_under_test.deployment import Broker

class Player:
    def play_all(self, examples, enough):
        time.sleep(600)

ground = make_search_space(Broker(), Settings(seed=3), FaultCatalogue.standard())
run_search(lambda number, note: Explorer(Player(), ground, Budget(examples=1)), 2, print)
"""


def test_its_processes_end_with_the_one_that_started_them_however_that_ends() -> None:
    parent = subprocess.Popen([sys.executable, "-c", SLEEPING])
    workers = process_tree.started(parent.pid, 2)
    parent.kill()
    parent.wait()
    assert process_tree.left(workers) == []


def found_in(example: Example, *failures: str, digest: str | None = None) -> FoundFailure:
    nothing: frozenset[Any] = frozenset()
    outcome = PlayOutcome("error", frozenset(failures), digest, nothing, nothing, nothing, None, None)
    return FoundFailure(example, outcome, FailureRate(2, 2), True, True, example, 2.4, 7)


def exploration_of(system: Any, client: Any, store: Path) -> Exploration:
    def body(settings: Settings) -> Generator:
        return traffic(system.keys())

    made = Experiment("test_toy", system, client, Contract(), body)
    settings = Settings(1, cluster="sim", nodes=1, store=store, time_limit=2.0, rate=20.0)
    return Exploration(
        made, settings, Budget(), "t", lambda again: f"pytest --replay={again.replay}", SilentProgress(), Engines()
    )


def test_a_run_that_is_too_short_for_a_fault_is_not_searched_with(toy: ModuleType, tmp_path: Path) -> None:
    asked = exploration_of(toy.ToySystem(), toy.ToyClient, tmp_path)
    asked.settings = replace(asked.settings, time_limit=1.4)
    assert asked.run() == "UNKNOWN: --time-limit=1.4 leaves no time for a fault: take 1.5 or more"
    shortest = make_search_space(Broker(), replace(BASE, time_limit=1.5), FaultCatalogue.standard())
    done = Explorer(PretendPlayer(lambda example: False), shortest, Budget(examples=5))  # type: ignore[arg-type]
    assert done.run() is None
    assert done.tally.examples == 5


def test_what_does_not_start_is_no_crash_of_a_process(toy: ModuleType, tmp_path: Path) -> None:
    """Else a crash of five servers would be made small to three, on which the system does not start."""
    asked = exploration_of(toy.ToySystem(broken=True), toy.ToyClient, tmp_path / "store")
    player = Player(asked.experiment, asked.settings, tmp_path / "scratch", Engines())
    outcome = player.play(Example.of(asked.settings, FaultSchedule(0)))
    assert (outcome.verdict, outcome.failures) == ("error", {NOT_STARTED})


def test_ctrl_c_while_what_was_found_is_played_again_ends_the_session(toy: ModuleType, tmp_path: Path) -> None:
    class Interrupting(toy.ToyClient):  # type: ignore[misc, name-defined]
        async def open(self, *arguments: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            await super().open(*arguments)

    asked = exploration_of(toy.ToySystem(), Interrupting, tmp_path)
    asked.settings = replace(asked.settings, concurrency=1)
    said = asked._replay_and_describe(
        found_in(Example.of(asked.settings, FaultSchedule(0)), "lost-write", digest="1")
    ).splitlines()
    assert said[0] == "FOUND lost-write: after 7 examples, 2 s"
    assert "history 1: interrupted while it was played again" in said
    assert asked.interrupted


def test_a_system_that_does_not_start_is_found_like_any_failure(toy: ModuleType, tmp_path: Path) -> None:
    asked = exploration_of(toy.ToySystem(broken=True), toy.ToyClient, tmp_path)
    said = asked._replay_and_describe(found_in(Example.of(asked.settings, FaultSchedule(0)), NOT_STARTED)).splitlines()
    assert said[0] == "FOUND not-started: after 7 examples, 2 s"
    assert "no history: equal in other plays and another process" in said
    assert any(line.startswith("the cluster did not start: ") for line in said)
    (kept,) = (tmp_path / "found").glob("*.json")
    assert said[-2:] == [f"schedule: {kept}", f"replay: pytest --replay={kept}"]


def test_what_was_found_is_said_on_a_full_disk(tmp_path: Path) -> None:
    nowhere: Any = None
    example = Example.of(BASE, FaultSchedule(0, (FaultStep(1.0, "kill", Target(TargetKind.ONE), 1.0),)))
    with small_disk(tmp_path / "disk", "64k") as disk:
        with pytest.raises(OSError, match="No space left"):
            (disk / "large").write_bytes(bytes(1 << 20))
        asked = Exploration(
            OF_BROKER, Settings(1, store=disk), Budget(), "t", lambda made: "pytest", SilentProgress(), nowhere
        )
        said = asked._describe_failure(found_in(example, "crash")).splitlines()
        assert said[0] == "FOUND crash: after 7 examples, 2 s"
        assert "No space left" in said[1]
        assert said[2:] == [f"  {line}" for line in example.lines(SystemParts())]
        assert list((disk / "found").iterdir()) == [], "nor is half of it left"


class FickleWhenShown(PretendPlayer):
    """A run that is played to be shown is another one."""

    def play(self, example: Example, *, reports: ReportPolicy = ReportPolicy.NEVER) -> PlayOutcome:
        outcome = super().play(example, reports=reports)
        return outcome if reports is ReportPolicy.NEVER else replace(outcome, failures=frozenset(), digest="another")


def test_what_was_found_keeps_its_name_though_the_last_play_does_not_fail() -> None:
    found = explorer(FickleWhenShown(lambda example: True), Budget(examples=10)).run()
    assert found is not None
    assert (found.outcome.failures, found.identical) == ({"lost-write"}, False)


def test_no_search_takes_the_schedule_of_another(tmp_path: Path) -> None:
    """With the same seed and the same anomaly, as two tests of one session can have."""
    nowhere: Any = None
    asked = Exploration(
        OF_BROKER, Settings(1, store=tmp_path), Budget(), "t", lambda made: str(made.replay), SilentProgress(), nowhere
    )
    steps = [FaultStep(float(at), "kill", Target(TargetKind.ONE), 1.0) for at in (1, 2)]
    found = [Example.of(replace(BASE, seed=0), FaultSchedule(0, (step,))) for step in steps]
    played = [
        Path(asked._describe_unreplayed(found_in(one, "crash")).splitlines()[-1].removeprefix("replay: "))
        for one in found
    ]
    assert [decode_schedule(one.read_bytes()) for one in played] == [one.schedule for one in found]
    asked._describe_unreplayed(found_in(found[1], "crash"))
    assert len(list((tmp_path / "found").iterdir())) == 2, "the same schedule is there once"
    played[1].write_text("edited by its user")
    again = Path(asked._describe_unreplayed(found_in(found[1], "crash")).splitlines()[-1].removeprefix("replay: "))
    assert played[1].read_text() == "edited by its user"
    assert decode_schedule(again.read_bytes()) == found[1].schedule


def test_a_search_that_is_cut_short_says_what_is_left_and_how_to_play_it_again(tmp_path: Path) -> None:
    first = Example.of(
        BASE, FaultSchedule(0, tuple(FaultStep(float(at), "kill", Target(TargetKind.ONE), 1.0) for at in (1, 2, 3)))
    )
    nothing: frozenset[Any] = frozenset()
    outcome = PlayOutcome("fail", frozenset({"lost-write"}), None, nothing, nothing, nothing, None, None)
    found = FoundFailure(first.keep_steps({2}), outcome, None, False, False, first, 2.4, 7)
    nowhere: Any = None
    settings = Settings(1, store=tmp_path)
    asked = Exploration(
        OF_BROKER, settings, Budget(), "t", lambda made: f"pytest --replay={made.replay}", SilentProgress(), nowhere
    )
    said = asked._describe_unreplayed(found).splitlines()
    (kept,) = (tmp_path / "found").glob(f"{first.seed}-lost-write-*.json")
    assert said[:2] == [
        "FOUND lost-write: after 7 examples, 2 s",
        "interrupted while it was made small: 1 of 3 steps are left; it was not played again",
    ]
    assert [line for line in said if " s  kill " in line] == [
        f"  {line}" for line in found.example.lines(SystemParts())[-1:]
    ]
    assert said[-2:] == [f"schedule: {kept}", f"replay: pytest --replay={kept}"]
    assert decode_schedule(kept.read_bytes()) == found.example.schedule
