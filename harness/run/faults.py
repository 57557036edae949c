"""The faults that the command line selects: their combinations, whether they suit a system, and their schedules."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from assay.cluster.containers import SupportsContainers
from assay.cluster.naming import make_node_name
from assay.cluster.system import (
    CLIENT_ROLE,
    ZOOKEEPER_ROLE,
    SupportsClientSessions,
    SupportsStrikePoints,
    SupportsTurningPoints,
    System,
)
from assay.harness.core.files import read_file
from assay.harness.run.declared_nodes import list_own_roles
from assay.harness.run.limits import check_node_count
from assay.harness.run.settings import NONE, Settings, SettingsError, derive_seed
from assay.harness.run.systems import apply_settings
from assay.nemesis.faults.fault import Census, count_spares
from assay.nemesis.schedule.catalogue import MIX, FaultCatalogue, FaultNameError, explain_unsuitable
from assay.nemesis.schedule.draw import draw_schedule
from assay.nemesis.schedule.mix import draw_mix, list_mixable
from assay.nemesis.schedule.schedule import FaultSchedule, ScheduleError, ScheduleRecord, decode_schedule
from assay.nemesis.schedule.target import TargetError, list_groups
from assay.nemesis.schedule.target import parse_target as parse_target
from assay.nemesis.schedule.trigger import EVERY_INTERVAL, TriggerError
from assay.nemesis.schedule.trigger import parse_trigger as parse_trigger


def list_fault_combinations(options: Sequence[str], faults: FaultCatalogue) -> tuple[tuple[str, ...], ...]:
    """Returns the combinations that ``--nemesis`` asks for, each a sorted tuple of names; ``((),)`` if it is not given.

    Raises :class:`SettingsError` for an unknown name.
    """
    try:
        selected = faults.select(options or (NONE,))
    except FaultNameError as error:
        raise SettingsError(str(error)) from None
    return tuple(one.names for one in sorted(selected, key=lambda one: one.id))


def read_replay(path: Path, faults: FaultCatalogue) -> FaultSchedule:
    """Reads a schedule, or the planned schedule of a recorded run, from a file. Raises :class:`SettingsError`."""
    try:
        found = decode_schedule(read_file(path), str(path))
    except OSError as error:
        raise SettingsError(f"--replay={path}: {error.strerror}") from None
    except ScheduleError as error:
        raise SettingsError(f"--replay: {error}") from None
    schedule = found.as_planned() if isinstance(found, ScheduleRecord) else found
    try:
        faults.check(schedule)
    except ScheduleError as error:
        raise SettingsError(f"--replay={path}: {error}") from None
    return schedule


def list_fault_names(schedule: FaultSchedule) -> tuple[str, ...]:
    """Returns the fault names of a schedule, sorted as in test ids."""
    return tuple(sorted({step.fault for step in schedule.all_steps}))


def select_possible_faults(system: System, settings: Settings, faults: FaultCatalogue) -> tuple[str, ...]:
    """Returns the faults that a run may inject: those of ``--nemesis``, and for ``mix`` all that suit the system."""
    if settings.nemesis != (MIX,):
        return settings.nemesis
    return tuple(name for name in list_mixable(faults) if explain_unsuitable(faults[name], system) is None)


def check_target(text: str | None) -> None:
    """Raises :class:`SettingsError` for an invalid ``--nemesis-target``."""
    if text is None:
        return
    try:
        parse_target(text)
    except TargetError as error:
        raise SettingsError(f"--nemesis-target={text}: {error}") from None


def check_trigger(text: str | None) -> None:
    """Raises :class:`SettingsError` for an invalid ``--nemesis-trigger``."""
    try:
        parse_trigger(text or EVERY_INTERVAL)
    except TriggerError as error:
        raise SettingsError(f"--nemesis-trigger={text}: {error}") from None


def explain_inapplicable(system: System, settings: Settings, faults: FaultCatalogue) -> str | None:
    """Returns why this system cannot run with these faults, defect, settings and times; None if it can."""
    if settings.defect is not None and settings.defect not in system.defects:
        known = ", ".join(system.defects) or "none"
        return f"--defect={settings.defect}: {system.name} has no such defect; its defects are: {known}"
    if (reason := explain_invalid_roles(system, settings)) is not None:
        return reason
    if (reason := check_node_count(count_nodes(system, settings))) is not None:
        return reason
    try:
        apply_settings(system, settings.configuration)
    except SettingsError as error:
        return str(error)
    for name in select_possible_faults(system, settings, faults):
        reason = explain_unsuitable(faults[name], system)
        if reason is not None:
            return f"--nemesis={name} {reason}"
    try:
        plan_schedule(system, settings, faults)
    except ScheduleError as error:
        return f"--nemesis={','.join(settings.nemesis)}: {error}"
    return None


def explain_invalid_roles(system: System, settings: Settings) -> str | None:
    """Returns an error if ``--nodes`` names a role whose nodes it cannot count; else None."""
    own = list_own_roles(system)
    for role in settings.counts_by_role:
        if role == ZOOKEEPER_ROLE:
            return f"--nodes={role}: set the number of ZooKeeper's nodes with --zookeepers"
        if role == CLIENT_ROLE:
            return f"--nodes={role}: set the number of nodes for clients with --workers"
        if role not in own:
            near = get_close_matches(role, own, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            return f"--nodes={role}: {system.name} has no such role; its roles are {', '.join(own)}{meant}"
    return None


def count_nodes(system: System, settings: Settings) -> dict[str, int]:
    """Returns the number of nodes per role, in starting order."""
    special = settings.counts_by_role | {ZOOKEEPER_ROLE: settings.zookeepers, CLIENT_ROLE: settings.client_node_count}
    return {role: special.get(role, settings.nodes) for role in system.roles}


def plan_schedule(
    system: System,
    settings: Settings,
    faults: FaultCatalogue,
    unavailable: Collection[str] = (),
    allowed_on_all: Collection[str] = (),
) -> FaultSchedule:
    """Draws the faults of a run from its seed. Raises ``ScheduleError`` if they do not fit the time or the cluster.

    ``unavailable``: faults that a mix must not draw on this cluster. ``allowed_on_all``: faults that may strike all
    servers at once.
    """
    if settings.replay is not None:
        return require_in_time(read_replay(settings.replay, faults), settings.time_limit)
    nodes = count_nodes(system, settings)
    roles = () if isinstance(system, SupportsContainers) else system.roles  # their main role's nodes have its name
    own = {role: nodes[role] for role in list_own_roles(system)}
    census = Census(
        servers=sum(own.values()),
        zookeepers=nodes.get(ZOOKEEPER_ROLE, 0),
        keys=tuple(system.keys()),
        clients=nodes.get(CLIENT_ROLE, 0),
        groups=list_groups(system),
        sessions=isinstance(system, SupportsClientSessions),
        spares=count_spares([faults[name] for name in select_possible_faults(system, settings, faults)]),
        roles=tuple(own),
        named=tuple(make_node_name(roles, role, index) for role in own for index in range(1, own[role] + 1)),
    )
    if settings.nemesis == (MIX,):
        return draw_mix(
            derive_seed(settings.seed, "nemesis"),
            [name for name in select_possible_faults(system, settings, faults) if name not in unavailable],
            catalogue=faults,
            census=census,
            interval=settings.nemesis_interval,
            time_limit=settings.time_limit,
            allowed_on_all=allowed_on_all,
            events=tuple(system.turning_points) if isinstance(system, SupportsTurningPoints) else (),
        )
    return draw_schedule(
        derive_seed(settings.seed, "nemesis"),
        settings.nemesis,
        catalogue=faults,
        census=census,
        interval=settings.nemesis_interval,
        time_limit=settings.time_limit,
        target=None if settings.nemesis_target is None else parse_target(settings.nemesis_target),
        trigger=parse_trigger(settings.nemesis_trigger),
    )


def require_in_time(schedule: FaultSchedule, time_limit: float) -> FaultSchedule:
    """Returns the schedule. Raises ``ScheduleError`` if a step ends after the run's main phase.

    A step that is replayed exactly may end later: in the original run, the end of the main phase may have healed it.
    """
    for step in schedule.all_steps:
        if step.until >= time_limit and (not step.exact or step.at >= time_limit):
            raise ScheduleError(f"{step} ends at {step.until:g} s: raise --time-limit above {step.until:g}")
    for branch in schedule.branches:
        if branch.at >= time_limit:
            raise ScheduleError(f"{branch}: raise --time-limit above {branch.at:g}")
    return schedule


def format_fault_list(faults: FaultCatalogue, systems: Iterable[System]) -> str:
    """Returns the text of ``--nemesis-list``: one line per fault, and per event at which a fault can strike."""
    parts = [_format_columns(faults.descriptions())]
    for system in systems:
        if isinstance(system, SupportsStrikePoints) and system.strike_points:
            how = "--nemesis-trigger=hold:EVENT:KEY --nemesis-target=origin"
            parts.append(f"events of {system.name} at which a fault can strike exactly: {how}")
            parts[-1] += "\n" + _format_columns(system.strike_points)
    return "\n\n".join(parts)


def _format_columns(lines: Mapping[str, str]) -> str:
    width = max(len(name) for name in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines.items())
