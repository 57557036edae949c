"""Status of an interpreter: counts, and errors in the harness and its clients, in addition to the history."""

import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from assay.harness.core.observed_node import ObservedEndpoint
from assay.harness.core.operation import Outcome
from assay.harness.core.printable import to_encodable

KEPT_EXCEPTIONS = 20


@dataclass(frozen=True)
class UnexpectedException:
    """An exception that escaped from a client. The client's effects are unknown then, so the verdict cannot be pass."""

    index: int
    """Index of the operation."""
    process: int
    f: str
    summary: str
    """The error on one line with its location: ``KeyError: 'k' at test_bank.py:17``."""
    traceback: str


@dataclass
class InterpreterStatus:
    """Counts and errors of an interpreter, updated while it runs. They may be read at any time."""

    ok: int = 0
    fail: int = 0
    info: int = 0
    invoked: dict[str, int] = field(default_factory=dict)
    """Operations by the node of their client's endpoint."""
    failed_opens: dict[str, int] = field(default_factory=dict)
    """Failed attempts to open a client, by node; each was retried."""
    opened: set[str] = field(default_factory=set)
    """Nodes at which a client was opened at least once."""
    closes: int = 0
    """Attempts to close a client."""
    failed_closes: int = 0
    """Clients whose ``close`` raised or timed out. The history is not affected."""
    open_errors: dict[str, str] = field(default_factory=dict)
    """By node, the last error of a failed open, with its location in the client's code."""
    close_errors: dict[str, str] = field(default_factory=dict)
    """By node, the last error of a failed close."""
    exceptions: list[UnexpectedException] = field(default_factory=list)
    """The first 20 exceptions."""
    exceptions_total: int = 0
    endpoints: dict[str, ObservedEndpoint] = field(default_factory=dict)
    """By worker, the endpoint that its clients get."""
    stuck: int = 0
    """Operations past their time limit that ignored their cancellation and were abandoned."""
    hanging_clients: dict[str, dict[str, int]] = field(default_factory=dict)
    """Clients that ignored their cancellation at the end of the run, by method and node."""
    stopped: bool = False
    """Whether a run was ended by its stop event."""
    open_wait: float | None = None
    """If a run was ended because clients could not be opened: the seconds that it had waited."""
    unopened_nodes: list[str] = field(default_factory=list)
    """The nodes of these clients."""
    answer_wait: float | None = None
    """If a run was ended because no operation was answered: the seconds that it had waited."""
    endless: tuple[float, str] | None = None
    """If a run was ended because a generator's operations read no new record for too long: the seconds that it had
    waited, and the generator."""

    @property
    def worker_nodes(self) -> dict[str, str]:
        """By worker, the node through which its clients reach the system.

        Leaves out workers whose clients asked for the addresses of other nodes.
        """
        return {worker: one.node for worker, one in self.endpoints.items() if not one.has_read_others}

    @property
    def completed(self) -> int:
        return self.ok + self.fail + self.info

    @property
    def unknown(self) -> list[str]:
        """The reasons why the verdict on this run cannot be pass; empty if there are none.

        The first line of each names the reason; a traceback may follow.
        """
        reasons = []
        never = sorted(self.failed_opens.keys() - self.opened)
        if never:
            reasons.append(
                f"no client could be opened on {', '.join(never)}; the last error: {self.open_errors[never[-1]]}"
            )
        if self.open_wait is not None and self.opened:
            missing = [node for node in self.unopened_nodes if node in self.open_errors]
            last = self.open_errors[missing[-1]] if missing else "none"
            some = "" if self.invoked.keys() <= set(self.unopened_nodes) else f" on {', '.join(self.unopened_nodes)}"
            reasons.append(
                f"no client could be opened{some} for {self.open_wait:g} s when all faults were healed, so the "
                f"workload was not brought to its end; the last error: {last}"
            )
        if self.answer_wait is not None:
            reasons.append(
                f"no operation was answered for {self.answer_wait:g} s when all faults were healed, so the workload "
                "was not brought to its end"
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
        """Hints for the author of a client about mistakes that do not affect the history."""
        remarks = []
        if self.stuck:
            remarks.append(
                f"{self.stuck} operation{'s' * (self.stuck > 1)} did not end at the time limit nor when cancelled, and "
                "went on beside the run: invoke() must let CancelledError through, or have a time limit of its own"
            )
        for method in ("open", "close"):
            of_nodes = self.hanging_clients.get(method, {})
            if number := sum(of_nodes.values()):
                remarks.append(
                    f"{method}() of {number} client{'s' * (number > 1)} ({', '.join(sorted(of_nodes))}) "
                    "did not end when cancelled, and was left behind: it must let CancelledError through"
                )
        if self.opened and self.failed_closes and self.failed_closes == self.closes:
            node, last = next(reversed(self.close_errors.items()))
            remarks.append(f"close() failed for every client; the last error, on {node}: {last}")
        return remarks

    def count(self, outcome: Outcome) -> None:
        if outcome is Outcome.OK:
            self.ok += 1
        elif outcome is Outcome.FAIL:
            self.fail += 1
        else:
            self.info += 1

    def add_open_failure(self, node: str, error: Exception) -> None:
        self.failed_opens[node] = self.failed_opens.get(node, 0) + 1
        self.open_errors[node] = describe_with_location(error)

    def add_hanging_client(self, method: str, node: str) -> None:
        """Counts a client of ``node`` whose ``method`` ignores cancellation."""
        of_nodes = self.hanging_clients.setdefault(method, {})
        of_nodes[node] = of_nodes.get(node, 0) + 1

    def add_close_failure(self, node: str, error: Exception) -> None:
        self.failed_closes += 1
        self.close_errors[node] = describe_with_location(error)

    def add_exception(self, index: int, process: int, f: str, error: BaseException) -> None:
        self.exceptions_total += 1
        if len(self.exceptions) < KEPT_EXCEPTIONS:
            text = to_encodable("".join(traceback.format_exception(error)))
            self.exceptions.append(UnexpectedException(index, process, f, describe_with_location(error), text))


def describe_error(error: BaseException) -> str:
    """Returns an exception on one line, such as ``ValueError: text``, with at most 200 characters of its text."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - user code
        text = "its text cannot be made"
    return to_encodable(f"{type(error).__name__}: {' '.join(text.split())[:200]}")


def describe_with_location(error: BaseException) -> str:
    """Returns :func:`describe_error` with the file and line in the user's code, if the exception passed through it."""
    return describe_error(error) + find_location(error)


def find_location(error: BaseException | None) -> str:
    """Returns `` at test_bank.py:17``, the last line of the user's code that an exception passed through.

    The text is empty if there is none.
    """
    own = [
        f" at {Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(None if error is None else error.__traceback__)
        if not _is_foreign(frame.f_globals.get("__name__", ""), frame.f_code.co_filename)
    ]
    return own[-1] if own else ""


def find_frame_location(frame: FrameType) -> str:
    """Returns `` at test_bank.py:17 in transfer``, the innermost line of the user's code on a stack.

    If the stack has no code of the user's, it is the innermost line.
    """
    at: FrameType | None = frame
    while at is not None and _is_foreign(at.f_globals.get("__name__", ""), at.f_code.co_filename):
        at = at.f_back
    found = at or frame
    return f" at {Path(found.f_code.co_filename).name}:{found.f_lineno} in {found.f_code.co_qualname}"


def _is_foreign(module: str, file: str) -> bool:
    """Returns whether code belongs to this harness, to Python or to an installed package, and not to the user."""
    return (
        module.startswith(("assay.harness.", "assay.cluster.", "assay.nemesis."))
        or module.partition(".")[0] in sys.stdlib_module_names
        or "site-packages" in file
    )
