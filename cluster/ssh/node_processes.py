"""The processes of a node: starts, ends and pauses the main process and the sidecars, together or one by one.

Sidecars are further processes that the system needs on the node, such as an agent (:mod:`assay.cluster.sidecars`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from signal import Signals

from assay.cluster.node import NodeError, ProcessState, ProcessStatus
from assay.cluster.sidecars import Sidecar
from assay.cluster.ssh import process
from assay.cluster.ssh.process import MAIN

SIDECAR_MARK = "ASSAY_BESIDE"
"""Environment variable of sidecars. Preloaded libraries do not count the calls of processes that have it.

The calls of sidecars prove nothing about the main process.
"""


@dataclass(frozen=True)
class Program:
    """Command and settings of a node's main process. Every start builds a new instance.

    - ``user``: the process's user, if not root
    - ``owned``: files, and folders (with a ``/`` at the end), that this user gets
    - ``needed``: folders (with a ``/`` at the end) that exist at the start; the user may not own them
    - ``sidecars``: the sidecars by name, in starting order, before the main process
    """

    argv: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    user: str | None = None
    owned: Sequence[str] = ()
    needed: Sequence[str] = ()
    sidecars: Mapping[str, Program] = field(default_factory=dict)


def add_sidecars(main: Program, sidecars: Mapping[str, Sidecar]) -> Program:
    """Adds the sidecars to the main process's program. They inherit its settings unless they have their own.

    A sidecar with another user owns none of the main process's files. But it starts before the main process, so the
    folders are created at its start.
    """
    folders = [path for path in main.owned if path.endswith("/")]
    programs = {}
    for process_name, sidecar in sidecars.items():
        environment = {**main.environment, SIDECAR_MARK: "1", **sidecar.environment}
        program = replace(main, argv=sidecar.argv, environment=environment)
        programs[process_name] = (
            program if sidecar.user is None else replace(program, user=sidecar.user, owned=(), needed=folders)
        )
    return replace(main, sidecars=programs)


@dataclass(frozen=True)
class OneProcess:
    """A single process of a node; see :class:`assay.cluster.node.Part`."""

    node: ProcessMethods
    process_name: str

    @property
    def name(self) -> str:
        return self.node.name

    async def start(self) -> None:
        await self.node.start_one(self.process_name)

    async def kill(self) -> None:
        await self.node.signal_one(self.process_name, process.kill_command(self.process_name))

    async def terminate(self) -> None:
        await self.node.signal_one(self.process_name, self.node.terminate_command(self.process_name))

    async def stop(self) -> None:
        await self.node.stop_one(self.process_name)

    async def resume(self) -> None:
        await self.node.signal_one(self.process_name, process.resume_command(self.process_name))

    async def process(self) -> ProcessStatus:
        return process.parse_status(await self.node.shell(process.status_command(self.process_name)))


class CommandMethods:
    """The methods that the mixins of :class:`assay.cluster.ssh.node.SshNode` need from it."""

    name: str

    async def shell(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> str:
        raise NotImplementedError

    async def _record_undo(self, fault: str, undo: Sequence[str]) -> None:
        """Writes the undo command of a change into the undo journal."""
        raise NotImplementedError

    async def _mark_undone(self, fault: str) -> None:
        """Marks the change as undone in the undo journal."""
        raise NotImplementedError


class ProcessMethods(CommandMethods):
    """Mixin of :class:`assay.cluster.ssh.node.SshNode` for its processes."""

    sidecars: Sequence[str] = ()
    stop_signal: Signals = Signals.SIGTERM
    """Stop signal of the main process. Sidecars get SIGTERM."""

    async def _prepare_start(self) -> Program:
        """Prepares the start and returns the program."""
        raise NotImplementedError

    def part(self, process: str) -> OneProcess:
        if process not in (MAIN, *self.sidecars):
            raise NodeError(
                f"{self.name} has no process {process}; its processes are {', '.join((*self.sidecars, MAIN))}"
            )
        return OneProcess(self, process)

    async def start(self) -> None:
        program = await self._prepare_start()
        self.sidecars = tuple(program.sidecars)
        for process_name, sidecar in program.sidecars.items():
            if (await self.part(process_name).process()).state is ProcessState.DEAD:
                await self._launch(process_name, sidecar)
        await self._launch(MAIN, program)

    async def start_one(self, process_name: str) -> None:
        program = await self._prepare_start()
        await self._launch(process_name, program if process_name == MAIN else program.sidecars[process_name])

    async def _launch(self, process_name: str, program: Program) -> None:
        command = process.launch_command(
            program.argv,
            folder=program.folder,
            environment=program.environment,
            user=program.user,
            owned=program.owned,
            needed=program.needed,
            process=process_name,
            stop_signal=self._stop_signal_of(process_name),
        )
        try:
            await self.shell(command)
        except NodeError as error:
            raise NodeError(f"{error}; {process.log_path(process_name)} on {self.name} has what it printed") from error

    async def kill(self) -> None:
        await self._signal_all(process.kill_command)

    async def terminate(self) -> None:
        await self._signal_all(self.terminate_command)

    def terminate_command(self, process_name: str) -> str:
        """Returns the command that asks a process to end, and waits."""
        return process.terminate_command(process_name, self._stop_signal_of(process_name))

    def _stop_signal_of(self, process_name: str) -> Signals:
        """Returns the signal that asks the process to end."""
        return self.stop_signal if process_name == MAIN else Signals.SIGTERM

    async def stop(self) -> None:
        await self.stop_one(MAIN)
        for process_name in self.sidecars:
            if (await self.part(process_name).process()).state is ProcessState.RUNNING:
                await self.stop_one(process_name)

    async def resume(self) -> None:
        await self._signal_all(process.resume_command)

    async def _signal_all(self, command_for: Callable[[str], str]) -> None:
        """Applies a command to the main process, which must exist, and then to the existing sidecars."""
        await self.signal_one(MAIN, command_for(MAIN))
        for process_name in self.sidecars:
            await self.signal_one(process_name, process.tolerate_missing(command_for(process_name)))

    async def signal_one(self, process_name: str, command: str) -> None:
        """Runs a command that ends or resumes a process, and marks the process's pause as undone."""
        await self.shell(command)
        await self._mark_undone(_pause_key(process_name))

    async def stop_one(self, process_name: str) -> None:
        await self._record_undo(_pause_key(process_name), process.undo_stop_command(process_name))
        await self.shell(process.stop_command(process_name))
        if (await self.part(process_name).process()).state is not ProcessState.STOPPED:
            raise NodeError(
                f"{self.name}: SIGSTOP was sent but the {process_name} process is gone; did it crash just now?"
            )

    async def process(self) -> ProcessStatus:
        return await self.part(MAIN).process()

    async def _alive(self) -> list[str]:
        """Returns the names of the processes that are not dead."""
        states = {
            process_name: (await self.part(process_name).process()).state for process_name in (MAIN, *self.sidecars)
        }
        return [process_name for process_name, state in states.items() if state is not ProcessState.DEAD]


def _pause_key(process_name: str) -> str:
    return "stop" if process_name == MAIN else f"stop {process_name}"
