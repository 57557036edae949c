"""What a run reports in addition to its history: counts, and all that went wrong in the harness and its clients."""

import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from assay.harness.core.observed_node import Observed
from assay.harness.core.operation import Outcome
from assay.harness.core.printable import encodable

KEPT_EXCEPTIONS = 20


@dataclass(frozen=True)
class UnexpectedException:
    """An exception that escaped from a client. The verdict cannot be pass: who knows what the client did."""

    index: int
    """The operation."""
    process: int
    f: str
    summary: str
    """In one line, with the place: ``KeyError: 'k' at test_bank.py:17``."""
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
    opened: set[str] = field(default_factory=set)
    """Nodes at which a client could be opened at least once."""
    closes: int = 0
    """Clients that were closed, or were to be."""
    failed_closes: int = 0
    """Clients whose ``close`` raised or took too long; of no consequence for the history."""
    open_errors: dict[str, str] = field(default_factory=dict)
    """Per node, what the last open that failed said, and where in the client's code."""
    close_errors: dict[str, str] = field(default_factory=dict)
    """The same of closes; for the record."""
    exceptions: list[UnexpectedException] = field(default_factory=list)
    """The first 20."""
    exceptions_total: int = 0
    endpoints: dict[str, Observed] = field(default_factory=dict)
    """By worker, what its clients are given."""
    stuck: int = 0
    """Operations past their time limit that did not let themselves be cancelled, and were left behind."""
    deaf_clients: dict[str, dict[str, int]] = field(default_factory=dict)
    """Clients that did not let themselves be cancelled when the run was over, by method and node."""
    stopped: bool = False
    """A run was ended by its stop event."""
    deserted: float | None = None
    """A run was ended because it had waited for clients to be open for so many seconds."""
    deserted_by: list[str] = field(default_factory=list)
    """Of these nodes."""
    unanswered: float | None = None
    """A run was ended because for so many seconds no operation had been answered."""

    endless: tuple[float, str] | None = None
    """A run was ended because for so many seconds this generator had read nothing new."""

    @property
    def through(self) -> dict[str, str]:
        """By worker, the node through which its clients reach the system, where they asked for no other address."""
        return {worker: one.node for worker, one in self.endpoints.items() if not one.others}

    @property
    def completed(self) -> int:
        return self.ok + self.fail + self.info

    @property
    def unknown(self) -> list[str]:
        """Why no verdict on this run can be pass; empty when nothing speaks against it.

        The first line of each says what it is; a traceback may follow.
        """
        reasons = []
        never = sorted(self.failed_opens.keys() - self.opened)
        if never:
            reasons.append(
                f"no client could be opened on {', '.join(never)}; the last error: {self.open_errors[never[-1]]}"
            )
        if self.deserted is not None and self.opened:
            missing = [node for node in self.deserted_by if node in self.open_errors]
            last = self.open_errors[missing[-1]] if missing else "none"
            some = "" if self.invoked.keys() <= set(self.deserted_by) else f" on {', '.join(self.deserted_by)}"
            reasons.append(
                f"no client could be opened{some} for {self.deserted:g} s when all faults were healed, so the workload "
                f"was not brought to its end; the last error: {last}"
            )
        if self.unanswered is not None:
            reasons.append(
                f"no operation was answered for {self.unanswered:g} s when all faults were healed, so the workload was "
                "not brought to its end"
            )
        if self.endless is not None:
            limit, generator = self.endless
            reasons.append(
                f"the generator {generator} did not end: for {limit:g} s after all faults were healed it read no "
                "record that was new, so the workload was not brought to its end; have it end by itself, or raise "
                "--drain-limit"
            )
        if self.exceptions_total:
            first = self.exceptions[0]
            reasons.append(
                f"{self.exceptions_total} unexpected exception{'s' * (self.exceptions_total > 1)} in the client; "
                f"the first: {first.summary}, in operation {first.index} ({first.f}, process {first.process}):\n"
                f"{first.traceback}"
            )
        return reasons

    @property
    def remarks(self) -> list[str]:
        """What an author of a client wants to know of, though the history is none the worse for it."""
        said = []
        if self.stuck:
            said.append(
                f"{self.stuck} operation{'s' * (self.stuck > 1)} did not end at the time limit nor when cancelled, and "
                "went on beside the run: invoke() must let CancelledError through, or have a time limit of its own"
            )
        for method in ("open", "close"):
            of_nodes = self.deaf_clients.get(method, {})
            if number := sum(of_nodes.values()):
                said.append(
                    f"{method}() of {number} client{'s' * (number > 1)} ({', '.join(sorted(of_nodes))}) "
                    "did not end when cancelled, and was left behind: it must let CancelledError through"
                )
        if self.opened and self.failed_closes and self.failed_closes == self.closes:
            node, last = next(reversed(self.close_errors.items()))
            said.append(f"close() failed for every client; the last error, on {node}: {last}")
        return said

    def count(self, outcome: Outcome) -> None:
        if outcome is Outcome.OK:
            self.ok += 1
        elif outcome is Outcome.FAIL:
            self.fail += 1
        else:
            self.info += 1

    def open_failed(self, node: str, error: Exception) -> None:
        self.failed_opens[node] = self.failed_opens.get(node, 0) + 1
        self.open_errors[node] = placed(error)

    def deaf(self, method: str, node: str) -> None:
        """A client of this node does not let this method of its be cancelled."""
        of_nodes = self.deaf_clients.setdefault(method, {})
        of_nodes[node] = of_nodes.get(node, 0) + 1

    def close_failed(self, node: str, error: Exception) -> None:
        self.failed_closes += 1
        self.close_errors[node] = placed(error)

    def unexpected(self, index: int, process: int, f: str, error: BaseException) -> None:
        self.exceptions_total += 1
        if len(self.exceptions) < KEPT_EXCEPTIONS:
            text = encodable("".join(traceback.format_exception(error)))
            self.exceptions.append(UnexpectedException(index, process, f, placed(error), text))


def describe(error: BaseException) -> str:
    """``ValueError: text`` in one line, at most 200 characters of text."""
    return encodable(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


def placed(error: BaseException) -> str:
    """As :func:`describe`, and the file and line of the caller's own code that it came from, if it came from any."""
    return describe(error) + place(error)


def place(error: BaseException | None) -> str:
    """`` at test_bank.py:17``, the last line of the caller's own code that an exception came through; else empty."""
    own = [
        f" at {Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(None if error is None else error.__traceback__)
        if not _foreign(frame.f_globals.get("__name__", ""), frame.f_code.co_filename)
    ]
    return own[-1] if own else ""


def _foreign(module: str, file: str) -> bool:
    """Code that no reader of an error has to mend: this harness, Python's own, an installed package."""
    return (
        module.startswith(("assay.harness.", "assay.cluster.", "assay.nemesis."))
        or module.partition(".")[0] in sys.stdlib_module_names
        or "site-packages" in file
    )
