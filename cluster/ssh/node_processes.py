"""The processes of a node: starts, ends and pauses the main process and the sidecars, together or one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from signal import Signals

from assay.cluster.node import NodeError, ProcessState, ProcessStatus
from assay.cluster.sidecars import Sidecar
from assay.cluster.ssh import process
from assay.cluster.ssh.process import MAIN

BESIDE = "ASSAY_BESIDE"
"""Environment variable of sidecars.

Preloaded libraries do not record these, because they prove nothing about the main process.
"""


@dataclass(frozen=True)
class Program:
    """A node's main process as it is launched. It is built again at every start, because a defect or fault may change
    it.

    - ``user``: the process's user, if not root
    - ``owned``: files, and folders (with a ``/`` at the end), that this user gets
    - ``needed``: folders (with a ``/`` at the end) that exist at the start; the user may not own them
    - ``beside``: the sidecars by name, in starting order, before the main process
    """

    argv: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    user: str | None = None
    owned: Sequence[str] = ()
    needed: Sequence[str] = ()
    beside: Mapping[str, Program] = field(default_factory=dict)


def add_sidecars(main: Program, others: Mapping[str, Sidecar]) -> Program:
    """Adds the sidecars to the main process's program. They inherit its settings unless they set their own.

    A sidecar with another user owns none of the main process's files. It starts first, so the folders are created for
    it.
    """
    folders = [path for path in main.owned if path.endswith("/")]
    programs = {}
    for named, one in others.items():
        environment = {**main.environment, BESIDE: "1", **one.environment}
        program = replace(main, argv=one.argv, environment=environment)
        programs[named] = program if one.user is None else replace(program, user=one.user, owned=(), needed=folders)
    return replace(main, beside=programs)


@dataclass(frozen=True)
class OneProcess:
    """See :class:`assay.cluster.node.Part`."""

    node: ProcessMethods
    named: str

    @property
    def name(self) -> str:
        return self.node.name

    async def start(self) -> None:
        await self.node.start_one(self.named)

    async def kill(self) -> None:
        await self.node.end_one(self.named, process.kill_command(self.named))

    async def terminate(self) -> None:
        await self.node.end_one(self.named, self.node.asking_to_end(self.named))

    async def stop(self) -> None:
        await self.node.stop_one(self.named)

    async def resume(self) -> None:
        await self.node.end_one(self.named, process.resume_command(self.named))

    async def process(self) -> ProcessStatus:
        return process.parse_status(await self.node.shell(process.look_command(self.named)))


class CommandMethods:
    """The methods that the mixins of :class:`assay.cluster.ssh.node.SshNode` need from it."""

    name: str

    async def shell(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> str:
        raise NotImplementedError

    async def _note(self, fault: str, undo: Sequence[str]) -> None:
        raise NotImplementedError

    async def _tick_off(self, fault: str) -> None:
        raise NotImplementedError


class ProcessMethods(CommandMethods):
    """Mixin of :class:`assay.cluster.ssh.node.SshNode` for its processes."""

    beside: Sequence[str] = ()
    stop_signal: Signals = Signals.SIGTERM
    """Stop signal of the main process. Sidecars get SIGTERM."""

    async def _to_start(self) -> Program:
        """Prepares the start and returns the program."""
        raise NotImplementedError

    def part(self, process: str) -> OneProcess:
        if process not in (MAIN, *self.beside):
            raise NodeError(f"{self.name} has no process {process}; there are {', '.join((*self.beside, MAIN))}")
        return OneProcess(self, process)

    async def start(self) -> None:
        program = await self._to_start()
        self.beside = tuple(program.beside)
        for named, other in program.beside.items():
            if (await self.part(named).process()).state is ProcessState.DEAD:
                await self._launch(named, other)
        await self._launch(MAIN, program)

    async def start_one(self, named: str) -> None:
        program = await self._to_start()
        await self._launch(named, program if named == MAIN else program.beside[named])

    async def _launch(self, named: str, program: Program) -> None:
        command = process.launch_command(
            program.argv,
            folder=program.folder,
            environment=program.environment,
            user=program.user,
            owned=program.owned,
            needed=program.needed,
            process=named,
            stop_signal=self._asked_by(named),
        )
        try:
            await self.shell(command)
        except NodeError as error:
            raise NodeError(f"{error}; {process.log_path(named)} on {self.name} has what it printed") from error

    async def kill(self) -> None:
        await self._end(process.kill_command)

    async def terminate(self) -> None:
        await self._end(self.asking_to_end)

    def asking_to_end(self, named: str) -> str:
        """Returns the command that asks a process to end, and waits."""
        return process.terminate_command(named, self._asked_by(named))

    def _asked_by(self, named: str) -> Signals:
        return self.stop_signal if named == MAIN else Signals.SIGTERM

    async def stop(self) -> None:
        await self.stop_one(MAIN)
        for named in self.beside:
            if (await self.part(named).process()).state is ProcessState.RUNNING:
                await self.stop_one(named)

    async def resume(self) -> None:
        await self._end(process.resume_command)

    async def _end(self, how: Callable[[str], str]) -> None:
        """Applies a command to the main process, which must exist, and then to the existing sidecars."""
        await self.end_one(MAIN, how(MAIN))
        for named in self.beside:
            await self.end_one(named, process.tolerate_missing(how(named)))

    async def end_one(self, named: str, command: str) -> None:
        """Runs the command. It also ends a pause of the process."""
        await self.shell(command)
        await self._tick_off(_pause_key(named))

    async def stop_one(self, named: str) -> None:
        await self._note(_pause_key(named), process.undo_stop_command(named))
        await self.shell(process.stop_command(named))
        if (await self.part(named).process()).state is not ProcessState.STOPPED:
            raise NodeError(f"{self.name}: SIGSTOP was sent but the {named} process is gone; did it crash just now?")

    async def process(self) -> ProcessStatus:
        return await self.part(MAIN).process()

    async def _alive(self) -> list[str]:
        """Returns the names of the processes that are not dead."""
        states = {named: (await self.part(named).process()).state for named in (MAIN, *self.beside)}
        return [named for named, state in states.items() if state is not ProcessState.DEAD]


def _pause_key(named: str) -> str:
    return "stop" if named == MAIN else f"stop {named}"
