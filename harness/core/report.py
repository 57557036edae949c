"""What a run reports in addition to its history: counts, and all that went wrong in the harness and its clients."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field

from assay.harness.core.operation import Outcome

KEPT_EXCEPTIONS = 20


@dataclass(frozen=True)
class UnexpectedException:
    """An exception that escaped from a client. The verdict cannot be pass: who knows what the client did."""

    index: int
    """The operation."""
    process: int
    f: str
    traceback: str


@dataclass
class RunReport:
    """Filled in while an interpreter runs; may be read at any time."""

    ok: int = 0
    fail: int = 0
    info: int = 0
    invoked: dict[str, int] = field(default_factory=dict)
    """Operations per node that clients belong to."""
    failed_opens: dict[str, int] = field(default_factory=dict)
    """Connections that could not be opened, per node; each was tried again."""
    failed_closes: int = 0
    """Clients whose ``close`` raised or took too long; of no consequence for the history."""
    last_errors: dict[str, str] = field(default_factory=dict)
    """Per node, what the last open or close that failed said."""
    exceptions: list[UnexpectedException] = field(default_factory=list)
    """The first 20."""
    exceptions_total: int = 0
    stuck: int = 0
    """Operations past their time limit that did not let themselves be cancelled, and were left behind."""
    stopped: bool = False
    """A run was ended by its stop event."""

    @property
    def completed(self) -> int:
        return self.ok + self.fail + self.info

    @property
    def unknown(self) -> list[str]:
        """Why no verdict on this run can be pass; empty when nothing speaks against it."""
        reasons = []
        if self.exceptions_total:
            first = self.exceptions[0]
            reasons.append(
                f"{self.exceptions_total} unexpected exceptions in the client; the first in operation {first.index} "
                f"({first.f}, process {first.process}):\n{first.traceback}"
            )
        return reasons

    def count(self, outcome: Outcome) -> None:
        if outcome is Outcome.OK:
            self.ok += 1
        elif outcome is Outcome.FAIL:
            self.fail += 1
        else:
            self.info += 1

    def open_failed(self, node: str, error: Exception) -> None:
        self.failed_opens[node] = self.failed_opens.get(node, 0) + 1
        self.last_errors[node] = f"open: {describe(error)}"

    def close_failed(self, node: str, error: Exception) -> None:
        self.failed_closes += 1
        self.last_errors[node] = f"close: {describe(error)}"

    def unexpected(self, index: int, process: int, f: str, error: BaseException) -> None:
        self.exceptions_total += 1
        if len(self.exceptions) < KEPT_EXCEPTIONS:
            text = "".join(traceback.format_exception(error))
            self.exceptions.append(UnexpectedException(index, process, f, text))


def describe(error: BaseException) -> str:
    """``ValueError: text`` in one line, at most 200 characters of text."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
