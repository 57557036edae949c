"""Hold: a process stops itself (SIGSTOP) right after an event of its event log, and continues at the heal.

A stop over SSH needs 40 to 70 ms, which is too slow to hit the moment after an event. So the process stops itself on
request. The request is a line in a file (:class:`assay.cluster.system.SupportsHold`) that the process reads after each
event that it writes. Parameters:

- ``event``: the event's name
- ``key``: the event's key; if it is left out, any key
- ``restart``: the targets are killed and started after the request was made, so that they write the events of a start
  (registered, recovered, became-follower). The random nemesis always does that, because other events may never come. In
  hand-written steps leave it out, and let another step provoke the event.
- ``draw_event``: the event is drawn from those that the nodes' event logs have had at least three times in this run.
  If it has not come after half of the duration, the first target is killed and started, and an event of a start is
  taken instead. The evidence then has ``fell_back``. Older schedules call this parameter ``seen``.

All targets get the request. Each stops by itself at the event, and the fault has taken effect if one of them stopped.
At the heal the requests are withdrawn first, then the stopped processes continue.

Proof: the process was seen stopped at the heal, and the last line of its event log is the requested event.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from assay.cluster.node import Cluster, Node, NodeError, ProcessState
from assay.cluster.system import SupportsHold, System
from assay.nemesis.faults.fault import LINGER_SECONDS, Census, Impact, Injection, Proof, on_each
from assay.nemesis.faults.process import ServerFault, evidence_of, read_status
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import TargetError

MIN_OCCURRENCES: Final = 3
"""The parameter ``draw_event`` draws from events that the nodes' event logs have had at least this often."""


CANNOT_HOLD: Final = (
    "{system} cannot stop itself after an event: define its methods hold_file and start_events (SupportsHold)"
)


class HoldFault(ServerFault):
    """Requests processes to stop after an event. The heal withdraws the request and continues the processes."""

    name = "hold"
    description = "the process stops itself right after an event of its event log, and goes on at the heal"
    capabilities: Sequence[type] = (SupportsHold,)
    impact = Impact(ends_process=True, pauses_process=True, gradual=True)
    """The process ends only with the parameter ``restart``. Each target stops at its own time, when it has its event
    (``gradual``).
    """
    lingers = LINGER_SECONDS
    """Seconds that the fault may outlast its duration, until a target has stopped."""

    def parameters(self, rng: random.Random, census: Census) -> dict[str, Parameter]:
        """Leaves the event open until the injection, when the system is known."""
        return {"restart": True}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        if not isinstance(system, SupportsHold):
            return CANNOT_HOLD.format(system=system.name)
        return await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        system, event, key = _read_request(injection)
        request = event if key is None else f"{event} {key}"
        await _request_stop(
            injection, system, injection.targets, request, bool(injection.step.parameters.get("restart", False))
        )
        injection.evidence["event"] = event
        if _draws_event(injection.step.parameters):
            injection.background = asyncio.get_running_loop().create_task(_fall_back(injection, system))

    async def observe(self, injection: Injection) -> None:
        await injection.end_background()
        await super().observe(injection)
        last = injection.evidence.get(injection.names[0], {}).get("last_event")
        if (
            "fell_back" in injection.evidence
            and last is not None
            and isinstance(injection.context.system, SupportsHold)
        ):
            at_start = last["event"] in injection.context.system.start_events
            injection.evidence["event"] = last["event"] if at_start else "an event of a start"

    async def observe_node(self, injection: Injection, node: Node) -> None:
        await super().observe_node(injection, node)
        last = injection.context.last_events.get(node.name)
        evidence_of(injection, node)["last_event"] = last and {name: last.get(name) for name in ("event", "key", "seq")}

    async def heal(self, injection: Injection) -> None:
        await injection.end_background()
        await super().heal(injection)

    async def undo(self, injection: Injection, node: Node) -> None:
        system = injection.context.system
        if not isinstance(system, SupportsHold):
            return
        await node.write_file(system.hold_file(node), b"")
        state = (await node.process()).state
        if state is ProcessState.DEAD:
            await node.start()
        elif state is ProcessState.STOPPED:
            await node.resume()
        evidence_of(injection, node)["after"] = await read_status(node)

    def proof(self, injection: Injection) -> Proof:
        event = injection.evidence.get("event")
        key = injection.step.parameters.get("key")
        reasons = []
        for name in injection.names:
            reason = _find_missing_proof(injection.evidence.get(name, {}), event, key)
            if reason is None:
                return Proof(True, injection.evidence)
            reasons.append(f"{name}: {reason}")
        return Proof(False, injection.evidence, "; ".join(reasons))


def _draws_event(parameters: Mapping[str, Parameter]) -> bool:
    return bool(parameters.get("draw_event", parameters.get("seen", False)))


def _read_request(injection: Injection) -> tuple[SupportsHold, str, str | None]:
    """Returns the system, and the event and its key after which processes must stop."""
    system, parameters = injection.context.system, injection.step.parameters
    if not isinstance(system, SupportsHold):
        raise TargetError(CANNOT_HOLD.format(system=system.name))
    event, key = parameters.get("event"), parameters.get("key")
    if event is None and _draws_event(parameters):
        frequent = sorted(event for event, count in injection.context.event_counts.items() if count >= MIN_OCCURRENCES)
        event = random.Random(injection.seed).choice(frequent or list(system.start_events))
    if event is None:
        if not parameters.get("restart", False):
            raise TargetError(
                "hold: the parameter event is missing: name an event, or set restart=true or draw_event=true"
            )
        event = random.Random(injection.seed).choice(list(system.start_events))
    if any(word is not None and (not str(word) or len(str(word).split()) != 1) for word in (event, key)):
        raise NodeError(f"hold: the parameters event ({event!r}) and key ({key!r}) must be one word each")
    return system, str(event), None if key is None else str(key)


async def _request_stop(
    injection: Injection, system: SupportsHold, nodes: Sequence[Node], request: str, restart: bool
) -> None:
    """Writes the request, lines of ``SupportsHold.hold_file``, on these nodes."""

    async def write(node: Node) -> None:
        evidence_of(injection, node)["before"] = await read_status(node)
        await node.write_file(system.hold_file(node), f"{request}\n".encode())
        if restart:
            await node.kill()
            await node.start()

    await on_each(nodes, write)


async def _fall_back(injection: Injection, system: SupportsHold) -> None:
    """After half of the duration, restarts the first target for an event of a start, unless a target is stopped."""
    await asyncio.sleep(injection.step.duration / 2)
    try:
        for node in injection.targets:
            if (await node.process()).state is ProcessState.STOPPED:
                return
        injection.evidence["fell_back"] = f"{injection.evidence['event']} did not come"
        # Requests a stop at every event of a start, because a single one may come too late: a broker registers only
        # after its former session has expired.
        await _request_stop(injection, system, injection.targets[:1], "\n".join(system.start_events), True)
    except NodeError as error:
        injection.evidence["fell_back"] = str(error)


def _find_missing_proof(node_evidence: dict[str, Any], event: str | None, key: Parameter | None) -> str | None:
    """Returns what is missing from the proof for one node, or None."""
    if "at_heal" not in node_evidence:
        return "the state of its process at the heal could not be read"
    if node_evidence["at_heal"]["state"] != ProcessState.STOPPED:
        return f"was {node_evidence['at_heal']['state']} at the heal: it never reached {event}"
    last = node_evidence.get("last_event")
    if last is None:
        return "was stopped, but no line of its event log has been read"
    if last["event"] != event or (key is not None and last["key"] != key):
        return f"was stopped, but its last event was {last['event']}, not {event}"
    return None
