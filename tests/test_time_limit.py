"""A test that hangs fails, with its name and with the stacks of what hangs; the tests after it are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import time_limit

HELPERS = str(Path(time_limit.__file__).parents[1])
MUCH_SHORTER = """
from helpers import time_limit
time_limit.LIMITS["hangs"] = 3.0
time_limit.DEFAULT, time_limit.AGAIN, time_limit.PATIENCE = 0.0, 0.2, 2.0
time_limit.LIMITS["ends"] = 100.0

def pytest_configure(config):
    config.addinivalue_line("markers", "hangs: it has a short limit")
    config.addinivalue_line("markers", "ends: it has the limit of other tests")
"""
"""A conftest.py: the limits of a test run, without its patience."""
START = """
import asyncio, ctypes, threading
import pytest
from assay.cluster.sim.loop import SimLoop

def wait_in_vain():
    threading.Event().wait()

@pytest.mark.ends
def test_another():
    pass
"""
IN_THE_TEST = """
@pytest.mark.hangs
def test_hangs():
    wait_in_vain()
"""
IN_A_LIBRARY = """
@pytest.mark.hangs
def test_hangs():
    lock = ctypes.create_string_buffer(64)
    python = ctypes.PyDLL(None)  # its functions keep the interpreter's lock
    while True:
        python.pthread_mutex_lock(lock)
"""
WITH_TASKS = """
async def hold():
    await asyncio.Event().wait()

async def turn():
    while True:
        await asyncio.sleep(1)

async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(hold(), name="holder")
        group.create_task(turn(), name="turner")

@pytest.mark.hangs
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, SimLoop])
def test_hangs(loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", HELPERS)
    pytester.makeconftest(MUCH_SHORTER)
    return pytester


def hanging(session: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """Runs these tests, and one that ends, in a session of their own."""
    session.makepyfile(START + source)
    return session.runpytest_subprocess("-p", "helpers.time_limit", "-p", "no:cacheprovider", *options)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-p", "no:xdist"), id="alone"),
        pytest.param(("-n", "1"), id="in a worker", marks=pytest.mark.long),
    ],
)
def test_a_test_that_hangs_fails_with_its_name_and_its_stack(session: pytest.Pytester, options: tuple[str]) -> None:
    done = hanging(session, IN_THE_TEST, *options)
    done.assert_outcomes(failed=1, passed=1)
    done.stdout.fnmatch_lines(
        ["call of *.py::test_hangs: no end within 3 s", "Thread *:", "* in test_hangs", "* in wait_in_vain"]
    )


def test_a_coroutine_that_hangs_fails_its_test_with_all_tasks(session: pytest.Pytester) -> None:
    """In the simulation, too, whose time passes without an end."""
    done = hanging(session, WITH_TASKS, "-p", "no:xdist")
    done.assert_outcomes(failed=2, passed=1)
    for name in ("new_event_loop", "SimLoop"):
        done.stdout.fnmatch_lines(
            [
                f"call of *::test_hangs?{name}?: no end within 3 s",
                "Task holder:",
                "* in hold",
                "Task turner:",
                "* in turn",
            ]
        )


def test_a_test_that_swallows_the_exception_fails_nevertheless(session: pytest.Pytester) -> None:
    source = """
@pytest.mark.hangs
def test_hangs():
    for _ in range(3):
        with pytest.raises(BaseException):
            wait_in_vain()
"""
    done = hanging(session, source, "-p", "no:xdist")
    done.assert_outcomes(failed=1, passed=1)
    done.stdout.fnmatch_lines(["call of *.py::test_hangs: no end within 3 s", "* in wait_in_vain"])


@pytest.mark.long
def test_a_shared_fixture_that_hangs_is_tried_once(session: pytest.Pytester) -> None:
    source = """
tries = []

@pytest.fixture(scope="module")
def shared():
    tries.append(1)
    wait_in_vain()

@pytest.mark.hangs
def test_hangs(shared):
    pass

@pytest.mark.hangs
def test_needs_it_too(shared):
    pass

@pytest.mark.ends
def test_tries():
    assert len(tries) == 1
"""
    done = hanging(session, source, "-p", "no:xdist")
    done.assert_outcomes(errors=2, passed=2)
    done.stdout.fnmatch_lines(["setup of *.py::test_hangs: no end within 3 s", "* in shared"])


@pytest.mark.long
def test_a_teardown_that_hangs_keeps_no_other_from_being_done(session: pytest.Pytester) -> None:
    source = """
done = []

@pytest.fixture
def outer():
    yield
    done.append("outer")

@pytest.fixture
def inner(outer):
    yield
    wait_in_vain()

@pytest.mark.hangs
def test_hangs(inner):
    pass

@pytest.mark.ends
def test_done():
    assert done == ["outer"]
"""
    done = hanging(session, source, "-p", "no:xdist")
    done.assert_outcomes(errors=1, passed=3)
    done.stdout.fnmatch_lines(["teardown of *.py::test_hangs: no end within 3 s", "* in inner"])


def test_a_call_that_never_returns_to_the_interpreter_ends_the_session_with_the_stack(session: pytest.Pytester) -> None:
    done = hanging(session, IN_A_LIBRARY, "-p", "no:xdist")
    assert done.ret == 1
    done.stderr.fnmatch_lines(["Timeout (*)!", "*, line * in test_hangs"])


@pytest.mark.long
def test_a_call_that_never_returns_in_a_worker_fails_its_test_and_another_worker_goes_on(
    session: pytest.Pytester,
) -> None:
    done = hanging(session, IN_A_LIBRARY + IN_THE_TEST.replace("test_hangs", "test_hangs_later"), "-n", "1")
    done.assert_outcomes(failed=2, passed=1)
    done.stdout.fnmatch_lines(["worker 'gw0' crashed while running '*.py::test_hangs'"])
    done.stderr.fnmatch_lines(["Timeout (*)!", "*, line * in test_hangs"])


@pytest.mark.long
def test_the_largest_limit_counts(pytester: pytest.Pytester) -> None:
    items = pytester.getitems(
        """
import pytest
from hypothesis import given, strategies
def test_plain(): pass
@pytest.mark.docker
@pytest.mark.long
def test_marked(): pass
@given(strategies.none())
def test_property(nothing): pass
"""
    )
    plain, marked, law = map(time_limit.limit_of, items)
    assert plain == time_limit.DEFAULT
    assert marked == max(time_limit.LIMITS[mark] for mark in ("docker", "long"))
    assert law >= max(plain, time_limit.EXAMPLE)
