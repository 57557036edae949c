"""``--repeat`` with a time: rounds in turn, the first one whole, and no word of those that there was no time for."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.harness.plugin.repeat_rounds import TimedRounds, count_rounds
from assay.harness.run.settings import ONCE, Budget

SIM = ("--cluster=sim", "--nodes=1", "--time-limit=0.5", "--rate=100")


def two_tests(project: pytest.Pytester) -> None:
    file = Path(project.path / "test_file.py")
    text = file.read_text()
    name = "test_toy"
    again = text[text.index("@experiment") :].replace(name, "test_again")
    file.write_text(f"{text}\n\n{again}")


def test_the_first_round_is_run_whole_and_later_ones_are_no_skipped_tests(toy_project: pytest.Pytester) -> None:
    two_tests(toy_project)
    result = toy_project.runpytest_inprocess(*SIM, "--repeat=0.001s", "--seed=1", "--reports=never", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_toy[[]none-1]*", "*test_again[[]none-1]*"])


def test_tests_take_turns(toy_project: pytest.Pytester) -> None:
    two_tests(toy_project)
    result = toy_project.runpytest_inprocess(*SIM, "--repeat=3s", "--collect-only", "-q")
    names = [line.rpartition("::")[2] for line in result.outlines if "::" in line]
    assert names == [f"{name}[none-{number}]" for number in (1, 2, 3) for name in ("test_toy", "test_again")]


class Process:
    """Process as pytest-xdist's scheduler sees it: the tests that it was dealt."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.dealt: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.dealt += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def rounds_begun(config: pytest.Config, tests: int, rounds: int, ended: int) -> list[int]:
    """The round of each test that two processes have begun when ``ended`` of them have ended, one process slower."""
    scheduling = pytest.importorskip("xdist.scheduler").LoadScheduling(config)
    items = [f"test_{test}[{number}]" for number in range(rounds) for test in range(tests)]
    fast, slow = processes = Process(), Process()
    for process in processes:
        scheduling.add_node(process)
        scheduling.add_node_collection(process, items)
    scheduling.schedule()
    done = {fast: 0, slow: 0}
    for turn in range(ended):
        process = slow if turn % 3 == 0 else fast
        scheduling.mark_test_complete(process, process.dealt[done[process]], duration=2.0)
        done[process] += 1
    return [index // tests for one in processes for index in one.dealt[: done[one] + 1]]


@pytest.mark.parametrize(("option", "in_turn"), [("--repeat=10min", True), ("--repeat=600", False)])
def test_processes_of_xdist_take_turns(pytester: pytest.Pytester, option: str, in_turn: bool) -> None:
    config = pytester.parseconfigure(*SIM, option, "--dist=load", "--tx=2*popen")
    for ended in (14, 100, 281):
        turns = Counter(rounds_begun(config, 14, 600, ended))
        whole = all(turns[number] == 14 for number in range(max(turns) - 1))
        assert whole is in_turn, turns


def test_a_chunk_that_was_asked_for_stays(pytester: pytest.Pytester) -> None:
    config = pytester.parseconfigure(*SIM, "--repeat=10min", "--dist=load", "--tx=2*popen", "--maxschedchunk=5")
    assert config.getoption("maxschedchunk") == 5


@pytest.mark.parametrize(
    ("now", "number", "runs"), [(9.9, 2, True), (10.0, 2, False), (10.0, 1, True), (99.0, 1, True), (99.0, 7, False)]
)
def test_a_round_after_the_first_begins_only_while_there_is_time(
    request: pytest.FixtureRequest, now: float, number: int, runs: bool
) -> None:
    times = iter([5.0, 5.0 + now])
    rounds = TimedRounds(10.0, lambda item: number, lambda: next(times))
    rounds.pytest_runtest_protocol(request.node)
    assert (rounds.pytest_runtest_protocol(request.node) is None) is runs


def test_rounds_that_are_collected_are_as_many_as_asked_for_or_more_than_fit() -> None:
    assert count_rounds(ONCE) == 1
    assert count_rounds(Budget(examples=7)) == 7
    assert count_rounds(Budget(seconds=600.0)) == 600
    assert count_rounds(Budget(seconds=0.2)) == 2
