"""Signals to a pytest session: SIGTERM and SIGHUP do what Ctrl-C does, and a second signal ends a run at once.

1. During a run, the first signal asks the run to heal, check and report; then the session ends.
2. While a run is reported or its fixtures are torn down, the first signal lets that finish; then the session ends.
3. Everywhere else, such as during collection, a signal raises ``KeyboardInterrupt``.
4. After a signal in a test with a run, the next signal ends the process at once. Before that, the process prints its
   stack, and from its undo journals what it leaves behind.

The controller of pytest-xdist passes a signal on to its workers and waits, because each has a run to heal. A worker
that is between two tests starts no further test. In a session without experiments, pytest-xdist handles its workers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from assay.cluster.temporary_folders import create_temporary_folder
from assay.harness.run.interrupt import StopSignals, handle_stop_signals, print_stack_at_end, raise_interrupt

PLUGIN: Final = "assay-signals"
STOP_REASON: Final = "interrupted; what there was has been checked and reported"
WORKER_FILES: Final = "assay_runs"
"""Key in the input of a worker of pytest-xdist: a folder with an empty file for each worker that has experiments.

The file's name is the worker's process id. The controller needs the folder, because it collects no tests itself.
"""
MOST_FRAMES: Final = 20
"""Maximum number of frames of the stack that is printed at a second signal: those of the test, not those of pytest."""
_EXIT: Final = os._exit
"""Ends this process, even while a run has replaced ``os._exit`` (``assay.cluster.sim.process.ExitCalls``)."""


class SessionSignals:
    """The plugin of one session."""

    def __init__(self, config: pytest.Config, is_experiment: Callable[[pytest.Item], bool]) -> None:
        self.signals = StopSignals(raise_interrupt, self._end_at_once)
        self.signals.acknowledge = self._acknowledge
        self._config = config
        self._is_experiment = is_experiment
        self._worker_files: Path | None = None
        """In the controller of pytest-xdist: the folder ``WORKER_FILES``."""
        self._input: dict[str, Any] | None = getattr(config, "workerinput", None)
        """In a worker of pytest-xdist: its input from the controller."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Ends the session after a test in which a signal arrived, even if the test was completed."""
        if not self._is_experiment(item):
            with self.signals.handling_first(raise_interrupt):
                return (yield)
        try:
            with self.signals.installed(), self.signals.handling_first(self._acknowledge):
                return (yield)
        finally:
            if self.signals.received is not None and not item.session.shouldstop:
                item.session.shouldstop = STOP_REASON

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Lets a signal interrupt the start of a cluster. A worker of pytest-xdist reports this as a failure.

        Otherwise pytest-xdist would count the worker as crashed.
        """
        if not self._is_experiment(item):
            return (yield)
        try:
            with self.signals.handling_first(raise_interrupt):
                return (yield)
        except KeyboardInterrupt as interrupt:
            if self._input is None or self.signals.received is None:
                raise
            raise pytest.fail.Exception(f"{interrupt} before the run began", pytrace=False) from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Makes a worker only record a signal between two tests, and the controller wait for its workers."""
        if self._config.pluginmanager.hasplugin("dsession"):
            with self.signals.installed(), self.signals.handling_first(self._end_workers):
                return (yield)
        if self._input is None or WORKER_FILES not in self._input or not any(map(self._is_experiment, session.items)):
            return (yield)
        self._config.pluginmanager.register(NoFurtherTests(self.signals), f"{PLUGIN}-no-further-tests")
        own_file = Path(self._input[WORKER_FILES]) / str(os.getpid())
        with self.signals.installed(), self.signals.handling_first(self._acknowledge):
            own_file.touch()
            try:
                return (yield)
            finally:
                own_file.unlink(missing_ok=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Passes the folder (``WORKER_FILES``) to a worker that is about to start, if it runs on this machine."""
        if not node.gateway.spec.popen:
            return
        if self._worker_files is None:
            self._worker_files = folder = create_temporary_folder("workers")
            self._config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        node.workerinput[WORKER_FILES] = str(self._worker_files)

    def _acknowledge(self, number: signal.Signals) -> None:
        """Says that a first signal arrived, in code that must finish. ``StopSignals.received`` has recorded it."""
        if self._input is None:  # the controller of pytest-xdist speaks for its workers
            self._print(
                f"assay: {number.name}: the run is ended, checked and reported; a second signal ends it at once"
            )

    def _end_workers(self, number: signal.Signals) -> None:
        if not self._pass_on(number):
            raise_interrupt(number)
        self._print(f"assay: {number.name}: each worker ends its run; a second signal ends all at once")

    def _end_at_once(self, number: signal.Signals) -> None:
        self._pass_on(number)
        with contextlib.suppress(Exception):  # the process ends now in any case
            if self.signals.before_abort is not None:
                self.signals.before_abort(number)
        if self._worker_files is not None:
            shutil.rmtree(self._worker_files, ignore_errors=True)
        self._print(f"assay: a second signal, {number.name}: ended at once; {describe_leftovers()}\n{_format_stack()}")
        _EXIT(128 + number)

    def _pass_on(self, number: signal.Signals) -> bool:
        """Signals the workers with experiments. Returns False if there are none."""
        workers = (
            [int(file.name) for file in self._worker_files.iterdir()]
            if self._worker_files and self._worker_files.is_dir()
            else []
        )
        for process in workers:
            with contextlib.suppress(OSError):
                os.kill(process, number)
        return bool(workers)

    def releasing_output(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context manager that suspends pytest's capturing."""
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        released: contextlib.AbstractContextManager[Any]
        released = contextlib.nullcontext() if capture is None else capture.global_and_fixture_disabled()
        return released

    def _print(self, text: str) -> None:
        """Prints past pytest's capturing."""
        with (
            contextlib.suppress(Exception),
            self.releasing_output(),
        ):  # a terminal that is gone must not prevent the end
            sys.stderr.write(f"\n{text}\n")
            sys.stderr.flush()


class NoFurtherTests:
    """The plugin of a worker that runs none of its tests after a signal."""

    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Skips a test silently after a signal: True means that the test is handled."""
        if self._signals.received is None:
            return None
        item.session.shouldstop = STOP_REASON
        return True


def _format_stack() -> str:
    """Returns the stack of the code that a signal has interrupted, without the handlers of signals."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") in (__name__, StopSignals.__module__):
        frame = frame.f_back
    lines = traceback.format_stack(frame, MOST_FRAMES)
    return "".join(["the code was here (most recent call last):\n", *lines]).rstrip()


def register(config: pytest.Config, is_experiment: Callable[[pytest.Item], bool]) -> StopSignals:
    """Adds the plugin to a session, and handles signals until its end."""
    plugin = SessionSignals(config, is_experiment)
    config.pluginmanager.register(plugin, PLUGIN)
    stack = contextlib.ExitStack()
    stack.enter_context(handle_stop_signals())
    with plugin.releasing_output():
        stderr = os.dup(2)
    stack.callback(os.close, stderr)
    stack.enter_context(print_stack_at_end(stderr))
    config.add_cleanup(stack.close)
    return plugin.signals


def describe_leftovers() -> str:
    """Names what this process has not undone, and the remedy."""
    try:
        from assay.cluster import owner
        from assay.cluster.journal import describe_outstanding, state_folder

        left = describe_outstanding(state_folder(), owner.current_owner())
    except Exception as error:  # noqa: BLE001 - the process ends now in any case
        return f"what is left behind cannot be read: {error}; `assay heal` undoes it"
    if not left:
        return "nothing is left behind"
    return "\n".join(
        ["these changes are left; `assay heal` or the next session undoes them:", *(f"  {one}" for one in left)]
    )
