"""A run as a pytest command: the defaults of its options, and the command that repeats it."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from assay.harness.run.settings import AUTO, NONE, Settings, parse_concurrency

DEFAULT_TRIGGER: Final = "every"
DEFAULT_NODES: Final = "3"
DEFAULT_ZOOKEEPERS: Final = "1"
MIX: Final = "mix"
"""The nemesis that has defaults of its own."""


@dataclass(frozen=True)
class OptionDefaults:
    """Default values of options as text; None: not set."""

    nemesis_interval: str = "10"
    time_limit: str = "30"
    operation_timeout: str = "5"
    concurrency: str = "2n"
    rate: str | None = None


DEFAULTS: Final = OptionDefaults()
# Many short runs find more than a few long ones. Workers that wait for a failed server are idle, and these seconds
# matter most. Therefore a mix has more workers and shorter timeouts.
DEFAULTS_OF_MIX: Final = OptionDefaults("5", "20", "2", "6n", "80")


def select_defaults(nemesis: Sequence[str]) -> OptionDefaults:
    """Returns the defaults for this combination of faults."""
    return DEFAULTS_OF_MIX if tuple(nemesis) == (MIX,) else DEFAULTS


def format_number(number: float) -> str:
    """Returns the shortest text that reads back as the same number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


RECORDED_OPTIONS: Final = frozenset({
    "--cluster", "--hosts", "--replay", "--nemesis", "--nemesis-interval", "--nemesis-target", "--nemesis-trigger",
    "--workload-mix", "--time-limit", "--rate", "--operation-timeout", "--drain-limit", "--nodes", "--zookeepers",
    "--concurrency", "--workers", "--defect", "--invariants", "--seed", "--set", "--fail-fast", "--watch",
})  # fmt: skip
"""Options that the command of a run may have. None of them makes pytest load a Python file."""
RESET: Final = "--reset-options"
"""Option that sets other options back to their defaults; see :func:`make_reset`."""


def make_reset(options: Iterable[str]) -> str:
    """Returns an argument after which earlier values of these options do not count.

    pytest puts a project's ``addopts`` before the arguments of each command. Without a reset, faults in ``addopts``
    would be added to those of a repeated run or of a night's cell. Other options in ``addopts`` would replace the
    defaults that a recorded command leaves out.
    """
    return f"{RESET}={','.join(sorted(options))}"


def format_nodes(settings: Settings) -> str:
    """Returns ``3``, ``server=1`` or ``2,sentinel=3``; the plain number is left out if it equals the first role's."""
    first = settings.role_nodes[0].rpartition("=")[2] if settings.role_nodes else ""
    plain = [] if first == str(settings.nodes) else [str(settings.nodes)]
    return ",".join([*plain, *settings.role_nodes])


def make_repeat_command(test: str, settings: Settings, operation_timeout: float | None = None) -> str:
    """Returns the command that repeats this run; options at their default are left out.

    ``operation_timeout``: the seconds that the test's operations need, which determine the default; None: unknown.
    """
    defaults = select_defaults(() if settings.replay is not None else settings.nemesis)
    timeout = (
        None if operation_timeout is None else format_number(max(float(defaults.operation_timeout), operation_timeout))
    )
    options: list[tuple[str, str | None, str | None]] = [
        ("--cluster", settings.cluster, None),
        ("--hosts", None if settings.hosts is None else str(settings.hosts), None),
        ("--replay", None if settings.replay is None else str(settings.replay), None),
        ("--nemesis", None if settings.replay is not None else ",".join(settings.nemesis) or None, None),
        ("--nemesis-interval", format_number(settings.nemesis_interval), defaults.nemesis_interval),
        ("--nemesis-target", settings.nemesis_target, None),
        ("--nemesis-trigger", settings.nemesis_trigger, DEFAULT_TRIGGER),
        ("--workload-mix", ",".join(settings.workload_mix) or None, None),
        ("--time-limit", format_number(settings.time_limit), defaults.time_limit),
        ("--rate", NONE if settings.rate is None else format_number(settings.rate), defaults.rate or NONE),
        ("--operation-timeout", format_number(settings.operation_timeout), timeout),
        ("--drain-limit", None if settings.drain_limit is None else format_number(settings.drain_limit), None),
        ("--nodes", format_nodes(settings), DEFAULT_NODES),
        ("--zookeepers", str(settings.zookeepers), DEFAULT_ZOOKEEPERS),
        ("--concurrency", str(settings.concurrency), str(parse_concurrency(defaults.concurrency, settings.nodes))),
        ("--workers", None if settings.client_nodes is None else str(settings.client_nodes), None),
        ("--clients", settings.clients, AUTO),
        ("--defect", settings.defect, None),
        ("--invariants", settings.invariants, AUTO),
        ("--seed", str(settings.seed), None),
    ]
    options += [("--set", setting, None) for setting in settings.configuration]
    given = [f"{name}={value}" for name, value, default in options if value is not None and value != default]
    flags = ["--fail-fast"] if settings.fail_fast else ["--watch"] if settings.watch else []
    return shlex.join(["pytest", test, *given, *flags])
