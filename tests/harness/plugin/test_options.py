"""Tests what a test's own needs change in the options of a session."""

import shlex
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import settings as of
from hypothesis import strategies as st

from assay.harness.plugin.options import Options, add_options, make_settings, read_options
from assay.harness.run.command_line import RECORDED_OPTIONS, make_repeat_command, make_reset
from assay.harness.run.limits import DAY, check_fault_count
from assay.harness.run.settings import ONCE, Settings

from helpers.examples import some_of

OPTIONS = Options(
    settings=Settings(seed=0, operation_timeout=2.0),
    nemesis=(),
    workload_mix=(),
    seed=1,
    repeat=ONCE,
    cluster=None,
    engine="auto",
    spark_master=None,
    explore=None,
    reports="all",
    history="all",
    timeout_given=False,
    code_coverage="auto",
)


@pytest.mark.parametrize(("given", "needs", "has"), [(False, 5.0, 5.0), (False, 1.0, 2.0), (True, 5.0, 2.0)])
def test_operations_are_given_the_time_they_need_unless_the_user_said_less(
    given: bool, needs: float, has: float
) -> None:
    options = replace(OPTIONS, timeout_given=given)
    made = make_settings(options, cluster="sim", seed=1, nemesis=("mix",), workload_mix=(), operation_timeout=needs)
    assert made.operation_timeout == has


class Typed:
    """Reads a command line as pytest does, as far as our options go."""

    rootpath = Path("/project")
    invocation_params = SimpleNamespace(dir=Path("/project"))

    def __init__(self, argv: list[str]) -> None:
        parser = pytest.Parser(_ispytest=True)
        add_options(parser)
        self._found: Namespace = parser.parse(argv)

    def getoption(self, name: str) -> Any:
        return getattr(self._found, name.removeprefix("--").replace("-", "_"))


def played(command: str, needs: float) -> Settings:
    """The settings of a run of the pasted command, for a test whose operations need so many seconds."""
    program, test, *argv = shlex.split(command)
    assert (program, test) == ("pytest", "t.py::test")
    config: Any = Typed(argv)
    options = read_options(config)
    assert options.seed is not None
    assert options.cluster is not None
    nemesis = tuple(name for text in options.nemesis for name in text.split(","))
    mix = tuple(name for text in options.workload_mix for name in text.split(","))
    made = make_settings(
        options, cluster=options.cluster, seed=options.seed, nemesis=nemesis, workload_mix=mix, operation_timeout=needs
    )
    return replace(made, nemesis=()) if made.replay is not None else made


SECONDS = st.floats(0.01, DAY)
SETTINGS = st.builds(
    Settings,
    seed=st.integers(0, 2**32),
    cluster=st.sampled_from(["sim", "docker"]),
    nodes=st.integers(1, 9),
    zookeepers=st.integers(1, 3),
    nemesis=st.sampled_from([(), ("mix",), ("kill",), ("kill", "partition")]),
    nemesis_interval=SECONDS | st.sampled_from([5.0, 10.0]),
    nemesis_target=st.none() | st.just("leader"),
    time_limit=SECONDS | st.sampled_from([20.0, 30.0]),
    rate=st.none() | SECONDS | st.just(80.0),
    operation_timeout=SECONDS | st.sampled_from([2.0, 5.0, 10.0]),
    concurrency=st.integers(1, 54),
    store=st.just(Path("/project/store")),
    replay=st.none() | st.just(Path("/elsewhere/a schedule.json")),
    configuration=st.lists(
        st.text("abc.=, 'x\"$\\", min_size=1).map(lambda text: f"name={text}"), max_size=40, unique=True
    ).map(tuple),
    workload_mix=st.sampled_from([(), ("bulk", "tails")]),
)


@of(max_examples=some_of(100), deadline=None)
@given(SETTINGS, st.sampled_from([0.0, 3.0, 10.0]), st.booleans())
def test_the_command_that_repeats_a_run_plays_its_settings(settings: Settings, needs: float, known: bool) -> None:
    assume(check_fault_count(settings.nemesis_interval, settings.time_limit) is None)
    """However long it is, and whether the test's own needs are known or not."""
    command = make_repeat_command("t.py::test", settings, needs if known else None)
    expected = replace(settings, nemesis=()) if settings.replay is not None else settings
    assert played(command, needs) == expected


def test_after_a_reset_the_options_of_the_project_do_not_count() -> None:
    """``addopts`` come first, and a command that repeats a run leaves out what has its default."""
    ini = ["--nemesis=kill", "--workload-mix=bulk", "--rate=20", "--set=a=b", "--watch", "--reports=failed"]
    config: Any = Typed([*ini, make_reset(RECORDED_OPTIONS), "--nemesis=stop", "--seed=7"])
    found = read_options(config)
    assert (found.nemesis, found.workload_mix, found.seed, found.reports) == (("stop",), (), 7, "failed")
    assert (found.settings.rate, found.settings.configuration, found.settings.watch) == (None, (), False)
    config = Typed([*ini, make_reset(["--nemesis", "--workload-mix"]), "--nemesis=none"])
    found = read_options(config)
    assert (found.nemesis, found.workload_mix, found.settings.rate) == (("none",), (), 20.0)
