"""Usage errors that show only while tests are collected or set up: one line, and exit code 4, as pytest's own.

- pytest reports a ``UsageError`` in a fixture as an error of the test. ``pytest.exit`` ends the session, but frames its
  message as an interruption. So :func:`refuse_session` ends it in this way, and the message becomes a ``UsageError``
  outside of the tests.
- pytest-xdist loses a usage error of a worker, and may crash on it. So a worker passes the error on to the controller,
  which raises it when all workers have ended.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NoReturn

import pytest

TEXTS: Final = pytest.StashKey[tuple[str, ...]]()
"""In the session's stash: the lines of its usage error."""
WORKER_ERRORS: Final = "assay_usage_errors"
"""Key in the output of a worker of pytest-xdist: the lines of its usage error."""


def make_usage_error(config: pytest.Config, *lines: str) -> pytest.UsageError:
    """Returns a usage error for the caller to raise during the collection. A worker of pytest-xdist passes it on."""
    config.stash[TEXTS] = lines
    return pytest.UsageError(*lines)


def refuse_session(config: pytest.Config, line: str) -> NoReturn:
    """Ends the session with a usage error. For fixtures."""
    config.stash[TEXTS] = (line,)
    pytest.exit(line, returncode=int(pytest.ExitCode.USAGE_ERROR))


class UsageErrors:
    """The plugin of one session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._of_workers: dict[str, None] = {}
        """In the controller of pytest-xdist: the lines of its workers, each once, in the order of their arrival."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, Any, Any]:
        try:
            return (yield)
        except pytest.UsageError:
            self._pass_on(session)
            raise

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        try:
            result = yield
        except pytest.exit.Exception:
            if (lines := self._config.stash.get(TEXTS, None)) is None:
                raise
            self._pass_on(session)
            raise pytest.UsageError(*lines) from None
        except KeyboardInterrupt:
            if not self._of_workers:
                raise
        if self._of_workers:
            raise pytest.UsageError(*self._of_workers)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Receives the usage error of a worker that has ended."""
        output = getattr(node, "workeroutput", None) or {}
        self._of_workers.update(dict.fromkeys(output.get(WORKER_ERRORS, ())))

    def _pass_on(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None and (lines := self._config.stash.get(TEXTS, None)) is not None:
            output[WORKER_ERRORS] = list(lines)
            session.shouldstop = "usage error"  # without it, the controller regards the worker as crashed


def register(config: pytest.Config) -> None:
    """Adds the plugin to a session."""
    config.pluginmanager.register(UsageErrors(config), "assay-usage-errors")
