"""The second copy of a real node's main process. The fault that starts it also ends it.

A tracer (:mod:`assay.cluster.ssh.tracing`) runs the copy, counts the changes that the copy makes to the data, and
writes its exit status to a file. The copy gets the same command and environment, except for the path of the event log:
the copy has its own.
"""

from __future__ import annotations

from dataclasses import replace

from assay.cluster.node import NodeError
from assay.cluster.second_copy import SECOND_COPY, SecondCopyStatus, names_log, second_log, with_second_log
from assay.cluster.ssh import process, tracing
from assay.cluster.ssh.node_processes import SIDECAR_MARK, OneProcess, ProcessMethods, Program

STATUS = f"{process.FOLDER}/{SECOND_COPY}.status"
COUNTS = f"{process.FOLDER}/{SECOND_COPY}.changes"
"""``STATUS`` and ``COUNTS`` are files of the tracer: the copy's exit status, and the number of its changes."""


def build_copy(main: Program, events: str | None, data: str | None) -> Program:
    """Returns the program of the copy. ``events``: the main process's event log; ``data``: the folder of its data."""
    environment, argv = dict(main.environment), list(main.argv)
    owned = [*main.owned, STATUS, COUNTS]
    if events is not None:
        argv = [with_second_log(word, events) for word in argv]
        environment = {name: with_second_log(value, events) for name, value in environment.items()}
        owned.append(second_log(events))
    command = tracing.command(argv, data or "", "" if events is None else second_log(events), COUNTS, STATUS)
    return replace(main, argv=command, environment={**environment, SIDECAR_MARK: "1"}, owned=owned, sidecars={})


def parse_changes(counted: str) -> tuple[int | None, str | None]:
    """Parses the tracer's count. Returns the number of changes, and the reason why there may be more."""
    number, _, trouble = counted.strip().partition(" ")
    if not number:
        return None, "the tracer of the copy has counted nothing"
    return (None, trouble) if trouble and not int(number) else (int(number), trouble or None)


class SecondCopyMethods(ProcessMethods):
    """Mixin of :class:`assay.cluster.ssh.node.SshNode` that runs the second copy."""

    had_second_copy: bool = False
    """Whether a copy was ever started, so that its logs may exist."""

    def _main_program(self) -> Program:
        raise NotImplementedError

    def event_log_path(self) -> str | None:
        """Returns the path of the main process's event log."""
        raise NotImplementedError

    def second_unavailable(self) -> str | None:
        program, events = self._main_program(), self.event_log_path()
        if events is None or names_log(list(program.argv), program.environment, events):
            return None
        return (
            f"the copy would write to the event log {events} of the first process: name the file in the command or in "
            "the environment, where the copy gets another one"
        )

    async def start_second(self, data: str | None = None) -> None:
        if (reason := self.second_unavailable()) is not None:
            raise NodeError(f"{self.name} cannot run a second copy of its process: {reason}")
        program = build_copy(await self._prepare_start(), self.event_log_path(), data)
        await self._record_undo(SECOND_COPY, ("sh", "-c", process.tolerate_missing(process.kill_command(SECOND_COPY))))
        await self.shell(f"mkdir -p {process.FOLDER} && rm -f {STATUS} {COUNTS}")
        self.had_second_copy = True
        await self._launch(SECOND_COPY, program)

    async def second(self) -> SecondCopyStatus:
        if not self.had_second_copy:
            raise NodeError(f"{self.name}: no second copy of its process was started")
        status = await OneProcess(self, SECOND_COPY).process()
        counted = await self.shell(f"cat {COUNTS} 2>/dev/null || true")
        changes, not_proved = parse_changes(counted)
        if status.incarnation is not None:
            return SecondCopyStatus(status.incarnation, True, None, changes, not_proved)
        exit_status = (await self.shell(f"cat {STATUS} 2>/dev/null || true")).strip()
        return SecondCopyStatus(None, False, int(exit_status) if exit_status.isdigit() else None, changes, not_proved)

    async def end_second(self) -> None:
        if self.had_second_copy:
            await self.shell(process.tolerate_missing(process.kill_command(SECOND_COPY)))
            await self._mark_undone(SECOND_COPY)

    async def _alive(self) -> list[str]:
        alive = await super()._alive()
        if self.had_second_copy and (await self.second()).alive:
            alive.append(SECOND_COPY)
        return alive

    def part(self, process: str) -> OneProcess:
        is_copy = process == SECOND_COPY and self.had_second_copy
        return OneProcess(self, SECOND_COPY) if is_copy else super().part(process)
