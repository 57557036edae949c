"""Progress inside pytest: written past its capturing, by its own terminal reporter."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from assay.harness.run.progress import Progress


def make_announcer(config: pytest.Config) -> Callable[[str], None]:
    """Returns a function that shows a step of the collection.

    On a terminal the step replaces pytest's line about the collection. Elsewhere it has a line of its own, and under
    ``-q`` none.
    """
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or config.get_verbosity() < 0:
        return lambda text: None
    if reporter.isatty:
        return lambda text: reporter.rewrite(text, erase=True, bold=True)

    def write(text: str) -> None:
        reporter.write_line(text)
        reporter.flush()

    return write


def make_progress(config: pytest.Config) -> "Progress":
    """Returns a live line on a terminal, plain lines elsewhere, and nothing under ``-q``."""
    # A collection needs no progress, and importing rich takes long.
    from rich.console import Console

    from assay.harness.run.progress import PlainProgress, SilentProgress, TerminalProgress

    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or config.get_verbosity() < 0:
        return SilentProgress()
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    suspend_capture: Callable[[], AbstractContextManager[Any]]
    suspend_capture = nullcontext if capture is None else capture.global_and_fixture_disabled
    if reporter.isatty:
        with suspend_capture():  # a console that is made while output is captured shows no live line ever after
            console = Console()
        return TerminalProgress(console, suspend_capture)

    terminal = config.get_terminal_writer()

    def write(text: str) -> None:
        with suspend_capture():
            reporter.ensure_newline()
            if terminal.width_of_current_line:  # the letter of a test whose cluster is being removed
                terminal.line()
            reporter.write_line(text)
            reporter.flush()  # a pipe would show the lines of several minutes at once

    return PlainProgress(write)
