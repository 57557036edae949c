"""Effects of other plugins and of pytest's own options on a run: time limits, reruns of failures, ``-x``.

- pytest-timeout raises its failure in the code that is running. An event loop would regard this as an error of a task
  or a callback, and the simulation as a crash of the system. Here the failure becomes an interrupt, which every event
  loop lets through. The failure itself is raised at the end of the test's phase.
- pytest-rerunfailures and similar plugins turn a failed run into a pass if the next one passes. They are rejected.
- ``-x`` and ``--maxfail`` stop at violations. An unknown verdict is a failure in pytest, but no violation.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable
from types import FrameType
from typing import Any, Final

import pytest

from assay.harness.run.interrupt import StopSignals

RERUNS: Final = {
    "reruns": "--reruns",
    "force_reruns": "--force-reruns",
    "retries": "--retries",
    "force_flaky": "--force-flaky",
}
"""Options of plugins that rerun a failed test, by the name of their value."""
MARK: Final = "flaky"
RERUN_COUNTS: Final = ("reruns", "retries", "max_runs")
"""Keywords of the mark ``flaky`` of these plugins that give the number of reruns."""
UNKNOWN: Final = "UNKNOWN"
"""The failure text of an unknown verdict begins with this word."""


class TimeLimitInterrupt(KeyboardInterrupt):
    """The time limit of another plugin is over."""


class OtherPlugins:
    """The plugin of one session."""

    def __init__(
        self, config: pytest.Config, signals: StopSignals, is_experiment: Callable[[pytest.Item], bool]
    ) -> None:
        self._config = config
        self._signals = signals
        self._is_experiment = is_experiment
        self._expired: BaseException | None = None
        """The failure of pytest-timeout, until the test's phase ends."""
        self._may_raise = True
        """Whether a time limit may interrupt running code; not in a tear-down, which removes the cluster."""

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Wraps the handler that pytest-timeout has just installed."""
        result = yield
        theirs = signal.getsignal(signal.SIGALRM)
        if self._is_experiment(item) and callable(theirs):
            handler: Callable[[int, FrameType | None], Any] = theirs
            self._expired = None
            signal.signal(signal.SIGALRM, lambda number, frame: self._expire(handler, number, frame))
        return result

    def _expire(self, handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:  # noqa: BLE001 - raised when the phase of the test ends
            self._expired = error
            if self._signals.current_interrupt is not None:
                self._signals.current_interrupt.end(str(error))  # needed if user code catches the exception below
            if self._may_raise:
                raise TimeLimitInterrupt(str(error)) from None

    def _run_phase(self, item: pytest.Item) -> Generator[None, Any, Any]:
        try:
            result = yield
        except BaseException:
            self._raise_expired(item)
            raise
        self._raise_expired(item)
        return result

    def _raise_expired(self, item: pytest.Item) -> None:
        error, self._expired = self._expired, None
        if error is not None and self._is_experiment(item):
            if isinstance(error, pytest.fail.Exception):
                error.pytrace = False  # the position of an event loop is no help, and takes long to render
            raise error.with_traceback(None) from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._run_phase(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._run_phase(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Protects the removal of a cluster from time limits."""
        self._may_raise = False
        try:
            return (yield from self._run_phase(item))
        finally:
            self._may_raise = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Marks an unknown verdict in the report, which pytest-xdist also passes to its controller."""
        report = yield
        report.assay_unknown = (
            self._is_experiment(item)
            and call.when == "call"
            and call.excinfo is not None
            and str(call.excinfo.value).startswith(UNKNOWN)
        )
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Raises the failure limit by one for an unknown verdict, so that it does not count."""
        if not getattr(report, "assay_unknown", False) or self._config.getoption("--stop-at-unknown"):
            return
        for limit in (self._config.option, self._config.pluginmanager.getplugin("dsession")):
            if getattr(limit, "maxfail", 0):
                limit.maxfail += 1


def register(config: pytest.Config, signals: StopSignals, is_experiment: Callable[[pytest.Item], bool]) -> None:
    """Adds the plugin to a session."""
    config.pluginmanager.register(OtherPlugins(config, signals, is_experiment), "assay-other-plugins")


def check_reruns(config: pytest.Config, experiments: Iterable[pytest.Item]) -> str | None:
    """Returns why these experiments cannot run, if a plugin would rerun failures; else None."""
    given = [option for name, option in RERUNS.items() if config.getoption(name, None)]
    forced = [option for option in given if option.startswith("--force")]
    if not given and "reruns" in config._parser._inidict and _is_positive(config.getini("reruns")):
        given = ["reruns in the configuration file"]
    for item in experiments:
        mark = item.get_closest_marker(MARK)
        if causes := forced or (given if mark is None else [f"the mark {MARK}"] if _asks_for_reruns(mark) else []):
            return (
                f"{causes[0]} would run {item.name} again after a failure, and report the test as passed although a "
                f"violation was found: leave it out, or mark the experiment @pytest.mark.{MARK}(reruns=0); "
                "--repeat=N runs each test N times, and each failure counts"
            )
    return None


def _asks_for_reruns(mark: pytest.Mark) -> bool:
    """Returns whether the mark asks for reruns. A mark without a number asks for one."""
    given = [*mark.args[:1], *(mark.kwargs[name] for name in RERUN_COUNTS if name in mark.kwargs)]
    return not given or any(given)


def _is_positive(value: Any) -> bool:
    return str(value or "0").strip() not in ("", "0")
