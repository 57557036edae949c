"""Settings of one run: everything needed to repeat it, typed, in one frozen value.

Options arrive as text from the command line. This module converts them once to :class:`Settings`; an error names the
option and its valid values. No other module reads options, environment variables or a clock to decide what to do.

Random generators are not shared. Every part of a run seeds its own with ``derive_seed(seed, "part")``, so that an
additional draw in one part does not affect the others. The derivation uses SHA-256, because Python's ``hash`` of text
differs between processes.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from assay.harness.run.limits import COUNT, SECONDS, OptionLimit, check_fault_count, check_number

Number = TypeVar("Number", int, float)

SIM: Final = "sim"
DOCKER: Final = "docker"
SSH: Final = "ssh"
ATTACH: Final = "attach"
CLUSTERS: Final = (DOCKER, SIM, SSH, ATTACH)
ON_HOSTS: Final = (SSH, ATTACH)
"""Kinds of clusters whose machines are named by ``--hosts``."""
DEFAULT_HOSTS: Final = "hosts.toml"
KEEP_CHOICES: Final = ("never", "failed", "always")
REPORT_CHOICES: Final = ("all", "failed", "never")
"""Which runs get an HTML page: the values of ``ReportPolicy``."""
HISTORY_CHOICES: Final = ("all", "failures")
"""Which runs keep their histories: the values of ``HistoryPolicy``."""
ENGINES: Final = ("auto", "sqlite", "duckdb", "spark")
"""The engines of ``assay.checkers.engine``, which is not imported here because it loads DuckDB."""
AUTO: Final = "auto"
INVARIANT_CHOICES: Final = (AUTO, "on", "off")
COVERAGE_CHOICES: Final = INVARIANT_CHOICES
HERE: Final = "here"
CLIENT_PLACES: Final = (AUTO, HERE, "container")
NONE: Final = "none"
ALL: Final = "all"
SEED_LIMIT: Final = 2**63
MOST_CLIENT_NODES: Final = 3
"""The maximum if the number of client nodes is not given."""


class SettingsError(ValueError):
    """An option has an invalid value. The message names the option, the value and the valid values."""


@dataclass(frozen=True)
class Budget:
    """The length of a search or a repetition: a number of examples (for ``--repeat``, of rounds), or of seconds."""

    examples: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.examples} examples" if self.seconds is None else f"{self.seconds:g} s"


ONCE: Final = Budget(examples=1)


@dataclass(frozen=True)
class Settings:
    """Settings of one run. Times are seconds; ``rate`` is operations per second of all workers (None: closed loop)."""

    seed: int
    cluster: str = SIM
    nodes: int = 3
    role_nodes: tuple[str, ...] = ()
    """Roles whose number of nodes is not ``nodes``, each ``role=number``."""
    zookeepers: int = 1
    hosts: Path | None = None
    """The machines of a cluster on hosts (``assay.cluster.hosts.inventory``): a file or ``compose:PROJECT``."""
    nemesis: tuple[str, ...] = ()
    nemesis_interval: float = 10.0
    nemesis_target: str | None = None
    time_limit: float = 30.0
    rate: float | None = None
    operation_timeout: float = 5.0
    drain_limit: float | None = None
    """Seconds that a phase after the last heal may go on without a new record; None: from the contract's deadlines."""
    concurrency: int = 6
    defect: str | None = None
    keep_cluster: str = "never"
    store: Path = Path("store")
    replay: Path | None = None
    """A file with the schedule to play; None draws one from the seed."""
    configuration: tuple[str, ...] = ()
    """Settings of the system, each ``name=value``."""
    nemesis_trigger: str = "every"
    """The trigger of the faults; ``every``: only the interval."""
    client_nodes: int | None = None
    """Number of client nodes, if the experiment uses them; None: as many as ``nodes``, at most three."""
    watch: bool = False
    """Whether the history is judged during the run, and findings are reported at once."""
    fail_fast: bool = False
    """Whether the first forbidden anomaly ends the run; requires ``watch``."""
    workload_mix: tuple[str, ...] = ()
    """Sorted names of the mixes that the workload adds, or ``random`` alone."""
    clients: str = AUTO
    """Place in which clients and the system's network calls run, with containers: a value of ``CLIENT_PLACES``."""
    invariants: str = AUTO
    """Whether the system's invariants are asserted during a simulation: a value of ``INVARIANT_CHOICES``."""

    @property
    def counts_by_role(self) -> dict[str, int]:
        """The numbers of ``role_nodes``, by role."""
        return {role: int(number) for role, _, number in (one.partition("=") for one in self.role_nodes)}

    @property
    def asserts_invariants(self) -> bool:
        """Whether invariants are asserted: by default not in a run with a defect, which clients should detect."""
        return self.invariants == "on" or (self.invariants == AUTO and self.defect is None)

    @property
    def nemesis_id(self) -> str:
        """The faults in a test id: ``kill+partition``, or ``none``."""
        return "+".join(self.nemesis) or NONE

    @property
    def client_node_count(self) -> int:
        """Number of client nodes, for an experiment that uses them."""
        return min(self.nodes, MOST_CLIENT_NODES) if self.client_nodes is None else self.client_nodes


def derive_seed(seed: int, *parts: str | int) -> int:
    """Derives a 63-bit seed for one part of a run, equal for equal arguments in every process."""
    text = "/".join([str(seed), *(str(part) for part in parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % SEED_LIMIT


def seed_of_repetition(seed: int, number: int, test: str = "") -> int:
    """Returns the seed of repetition ``number`` (from 1) of a test.

    The first seed is ``seed`` itself, so that ``--seed`` repeats a run. Later seeds depend on ``test``; otherwise all
    tests would meet equal faults at equal times.
    """
    return seed if number == 1 else derive_seed(seed, "repeat", test, number) % 2**32


def list_required_faults(options: Sequence[str]) -> frozenset[str]:
    """Returns the faults that are named explicitly and must be available. Faults from ``all`` may be skipped."""
    names = (name.strip() for option in options for name in option.replace("+", ",").split(","))
    return frozenset(names) - {NONE, ALL, ""}


def _parse_number(kind: Callable[[str], Number], text: str, wrong: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise SettingsError(wrong) from None


def require_in_limits(option: str, text: str, value: Number, default_limit: OptionLimit) -> Number:
    """Returns the value. Raises :class:`SettingsError` if it is NaN, or beyond the option's limits.

    The limits are those in ``run/limits.py``, or else ``default_limit``.
    """
    reason = f"{option}={text} is not a number" if value != value else check_number(option, text, value, default_limit)
    if reason is not None:
        raise SettingsError(reason)
    return value


def parse_seconds(option: str, text: str, *, unit: float = 1.0) -> float:
    """Parses a number of seconds; ``unit``: the length of one unit of ``text`` in seconds."""
    value = _parse_number(float, text, f"{option}={text!r} is not a number of seconds")
    return require_in_limits(option, text, value * unit, SECONDS)


def parse_interval(option: str, text: str, time_limit: float, *, faults: bool) -> float:
    """Parses the seconds between faults in a run of ``time_limit`` seconds; ``faults``: whether the run has any."""
    interval = parse_seconds(option, text)
    if faults and (reason := check_fault_count(interval, time_limit)) is not None:
        raise SettingsError(reason)
    return interval


def parse_nodes(text: str) -> tuple[int, tuple[str, ...]]:
    """Parses ``3``, ``server=5,sentinel=3`` or ``5,sentinel=3`` to a number of nodes and the roles that differ.

    Without a plain number, the number of the first role holds for all roles that are not named.
    """
    plain: list[int] = []
    named: dict[str, int] = {}
    for part in text.split(","):
        role, sign, number = part.strip().rpartition("=")
        if not sign:
            plain.append(parse_count("--nodes", number))
        elif not role or role in named:
            raise SettingsError(f"--nodes={text!r}: {part!r} is not ROLE=NUMBER, or repeats a role")
        else:
            named[role] = parse_count(f"--nodes={role}", number)
    if len(plain) > 1:
        raise SettingsError(
            f"--nodes={text!r} has more than one number without a role: write ROLE=NUMBER for each role"
        )
    nodes = plain[0] if plain else next(iter(named.values()))
    return nodes, tuple(f"{role}={number}" for role, number in named.items())


def parse_rate(text: str | None) -> float | None:
    """Parses operations per second; None means a closed loop."""
    if text is None or text == NONE:
        return None
    value = _parse_number(float, text, f"--rate={text!r} is not a number of operations per second, nor {NONE!r}")
    return require_in_limits("--rate", text, value, COUNT)


def parse_count(option: str, text: str) -> int:
    value = _parse_number(int, text, f"{option}={text!r} is not a whole number")
    return require_in_limits(option, text, value, COUNT)


def parse_concurrency(text: str, nodes: int) -> int:
    """Parses the number of workers: a number (``6``), or a multiple of the nodes (``2n``)."""
    digits, multiple = (text[:-1], nodes) if text.endswith("n") else (text, 1)
    wrong = f"--concurrency={text!r} is neither a number of workers (6) nor per node (2n)"
    value = _parse_number(int, digits or "1", wrong) * multiple
    return require_in_limits("--concurrency", text, value, COUNT)


def parse_seed(text: str) -> int:
    value = _parse_number(lambda digits: int(digits, 0), text, f"--seed={text!r} is not a whole number")
    if not 0 <= value < SEED_LIMIT:
        raise SettingsError(f"--seed={text} must be between 0 and {SEED_LIMIT - 1}")
    return value


def parse_engine(text: str, spark_master: str | None) -> str:
    """Parses an engine. A Spark master rules out all engines but Spark."""
    engine = parse_choice("--engine", text, ENGINES)
    if engine in ("sqlite", "duckdb") and spark_master is not None:
        raise SettingsError(
            f"--spark-master={spark_master} needs --engine=spark or --engine=auto, not --engine={engine}"
        )
    return engine


def parse_path(option: str, text: str) -> str:
    """Rejects an empty path, which would mean the folder that pytest was started in."""
    if not text:
        raise SettingsError(f"{option}= is empty; give a path (is a variable of the shell not set?)")
    return text


def parse_setting(option: str, text: str) -> str:
    """Checks that the text is ``name=value``, and returns it."""
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise SettingsError(f"{option}={text!r} is not written as NAME=VALUE")
    return text


def parse_budget(option: str, text: str) -> Budget:
    """Parses a number of examples (``500``), or a time (``600s``, ``10min``, ``1h``)."""
    for unit, seconds in (("min", 60.0), ("h", 3600.0), ("s", 1.0)):
        if text.endswith(unit):
            return Budget(seconds=parse_seconds(option, text.removesuffix(unit), unit=seconds))
    return Budget(examples=parse_count(option, text))


def parse_choice(option: str, text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise SettingsError(f"{option}={text!r} is not one of {', '.join(choices)}")
    return text
