"""What one run is: everything that is needed to do it again, typed, in one frozen value.

Options arrive as text from the command line. They are turned into a :class:`Settings` here, once, and an error says
which option was wrong and what it takes. Nothing further down reads an option, an environment variable or a clock
to find out what to do.

Randomness is derived, never shared: every part of a run seeds its own generator with ``derive(seed, "part")``, so
that a part which draws once more does not change what the others draw. The derivation is SHA-256, because Python's
own ``hash`` of text differs between two processes.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from assay.harness.run.limits import COUNT, SECONDS, Limit, too_many_faults, wrong_number

Number = TypeVar("Number", int, float)

SIM: Final = "sim"
DOCKER: Final = "docker"
SSH: Final = "ssh"
ATTACH: Final = "attach"
CLUSTERS: Final = (DOCKER, SIM, SSH, ATTACH)
ON_HOSTS: Final = (SSH, ATTACH)
"""Kinds whose machines are named by ``--hosts``."""
DEFAULT_HOSTS: Final = "hosts.toml"
KEEP: Final = ("never", "failed", "always")
REPORTS: Final = ("all", "failed", "never")
"""Of which runs a page is written: the values of ``Reports``."""
ENGINES: Final = ("auto", "sqlite", "duckdb", "spark")
"""Of ``assay.checkers.engine``, which is not imported here: it loads DuckDB."""
AUTO: Final = "auto"
INVARIANTS: Final = (AUTO, "on", "off")
CODE_COVERAGE: Final = INVARIANTS
NONE: Final = "none"
ALL: Final = "all"
SEED_LIMIT: Final = 2**63
MOST_CLIENT_NODES: Final = 3
"""Unless more are asked for."""


class SettingsError(ValueError):
    """An option has a value that cannot be; the message names the option, the value, and what it takes."""


@dataclass(frozen=True)
class Budget:
    """How long a search or a repetition goes on: so many examples, or so many seconds."""

    examples: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.examples} examples" if self.seconds is None else f"{self.seconds:g} s"


ONCE: Final = Budget(examples=1)


@dataclass(frozen=True)
class Settings:
    """One run. Times are seconds, ``rate`` is operations per second over all workers (None: closed loop)."""

    seed: int
    cluster: str = SIM
    nodes: int = 3
    role_nodes: tuple[str, ...] = ()
    """Of roles that have another number of nodes: each ``role=number``."""
    zookeepers: int = 1
    hosts: Path | None = None
    """The machines of a cluster on hosts (``assay.cluster.hosts.inventory``), a file or ``compose:PROJECT``."""
    nemesis: tuple[str, ...] = ()
    nemesis_interval: float = 10.0
    nemesis_target: str | None = None
    time_limit: float = 30.0
    rate: float | None = None
    operation_timeout: float = 5.0
    drain_limit: float | None = None
    """Seconds that a phase after the last heal may go on without a new record; None: by the contract's deadlines."""
    concurrency: int = 6
    defect: str | None = None
    keep_cluster: str = "never"
    store: Path = Path("store")
    replay: Path | None = None
    """A file with the schedule to play; None draws one from the seed."""
    configuration: tuple[str, ...] = ()
    """The system's own settings, each ``name=value``."""
    nemesis_trigger: str = "every"
    """What the faults wait for; ``every`` is nothing but the interval."""
    client_nodes: int | None = None
    """Nodes that clients live on, for an experiment whose clients do; None: as many as ``nodes``, at most three."""

    watch: bool = False
    """Whether the history is judged while the run goes on, and what is found is said at once."""
    fail_fast: bool = False
    """Whether the first forbidden anomaly ends the run; it takes a watch."""
    workload_mix: tuple[str, ...] = ()
    """What the workload takes on in addition: names of mixes, sorted, or ``random`` alone."""

    invariants: str = AUTO
    """Are the system's invariants asserted while a simulation runs? One of ``INVARIANTS``."""

    @property
    def asserts(self) -> bool:
        """Are they, in this run? A built-in defect is there to be seen by what it does to clients, unless asked for."""
        return self.invariants == "on" or (self.invariants == AUTO and self.defect is None)

    @property
    def nemesis_id(self) -> str:
        """``kill+partition``, or ``none``: what stands in a test id."""
        return "+".join(self.nemesis) or NONE

    @property
    def client_node_count(self) -> int:
        """How many nodes clients live on, in an experiment whose clients do."""
        return min(self.nodes, MOST_CLIENT_NODES) if self.client_nodes is None else self.client_nodes


def derive(seed: int, *parts: str | int) -> int:
    """A seed of 63 bits for one part of a run; the same for the same arguments, in every process."""
    text = "/".join([str(seed), *(str(part) for part in parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % SEED_LIMIT


def repeated_seed(seed: int, number: int, test: str = "") -> int:
    """The seed of repetition ``number`` of a test, from 1. The first is the seed itself: a run is repeated by its seed.

    From the second on each ``test`` has its own, or all would meet the same faults at the same times.
    """
    return seed if number == 1 else derive(seed, "repeat", test, number) % 2**32


def asked_by_name(options: Sequence[str]) -> frozenset[str]:
    """The faults named one by one, which must be available; what only ``all`` brings in may be skipped."""
    names = (name.strip() for option in options for name in option.replace("+", ",").split(","))
    return frozenset(names) - {NONE, ALL, ""}


def _read(kind: Callable[[str], Number], text: str, wrong: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise SettingsError(wrong) from None


def limited(option: str, text: str, value: Number, otherwise: Limit) -> Number:
    """The value. Raises :class:`SettingsError` when it is beyond the option's row of ``limits``, or no number."""
    reason = f"{option}={text} is not a number" if value != value else wrong_number(option, text, value, otherwise)
    if reason is not None:
        raise SettingsError(reason)
    return value


def parse_seconds(option: str, text: str, *, unit: float = 1.0) -> float:
    """A number of seconds; ``unit``: the seconds that one of ``text`` has."""
    value = _read(float, text, f"{option}={text!r} is not a number of seconds")
    return limited(option, text, value * unit, SECONDS)


def parse_interval(option: str, text: str, time_limit: float, *, faults: bool) -> float:
    """The seconds from fault to fault in a run of ``time_limit`` seconds; ``faults``: whether it has any."""
    interval = parse_seconds(option, text)
    if faults and (reason := too_many_faults(interval, time_limit)) is not None:
        raise SettingsError(reason)
    return interval


def parse_nodes(text: str) -> tuple[int, tuple[str, ...]]:
    """Nodes of each role, and those that have another number: ``3``, ``server=5,sentinel=3``, ``5,sentinel=3``.

    Where no number stands alone the first one named holds for all that are not named.
    """
    alone: list[int] = []
    named: dict[str, int] = {}
    for part in text.split(","):
        role, sign, number = part.strip().rpartition("=")
        if not sign:
            alone.append(parse_count("--nodes", number))
        elif not role or role in named:
            raise SettingsError(f"--nodes={text!r}: {part!r} is not ROLE=NUMBER, once per role")
        else:
            named[role] = parse_count(f"--nodes={role}", number)
    if len(alone) > 1:
        raise SettingsError(f"--nodes={text!r} has more than one number without a role")
    nodes = alone[0] if alone else next(iter(named.values()))
    return nodes, tuple(f"{role}={number}" for role, number in named.items())


def parse_rate(text: str | None) -> float | None:
    """Operations per second, or None for a closed loop."""
    if text is None or text == NONE:
        return None
    value = _read(float, text, f"--rate={text!r} is not a number of operations per second, nor {NONE!r}")
    return limited("--rate", text, value, COUNT)


def parse_count(option: str, text: str) -> int:
    value = _read(int, text, f"{option}={text!r} is not a whole number")
    return limited(option, text, value, COUNT)


def parse_concurrency(text: str, nodes: int) -> int:
    """Workers: a number (``6``), or a multiple of the nodes (``2n``)."""
    digits, multiple = (text[:-1], nodes) if text.endswith("n") else (text, 1)
    wrong = f"--concurrency={text!r} is neither a number of workers (6) nor per node (2n)"
    value = _read(int, digits or "1", wrong) * multiple
    return limited("--concurrency", text, value, COUNT)


def parse_seed(text: str) -> int:
    value = _read(lambda digits: int(digits, 0), text, f"--seed={text!r} is not a whole number")
    if not 0 <= value < SEED_LIMIT:
        raise SettingsError(f"--seed={text} must be between 0 and {SEED_LIMIT - 1}")
    return value


def parse_engine(text: str, spark_master: str | None) -> str:
    """A Spark master rules the others out."""
    engine = parse_choice("--engine", text, ENGINES)
    if engine in ("sqlite", "duckdb") and spark_master is not None:
        raise SettingsError(f"--spark-master={spark_master} goes with --engine=spark or auto, not with {engine}")
    return engine


def parse_path(option: str, text: str) -> str:
    """A path that is not empty: an empty one would mean the folder that pytest was started in."""
    if not text:
        raise SettingsError(f"{option}= is empty; give a path (is a variable of the shell not set?)")
    return text


def parse_setting(option: str, text: str) -> str:
    """``name=value``, as it was."""
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise SettingsError(f"{option}={text!r} is not NAME=VALUE")
    return text


def parse_budget(option: str, text: str) -> Budget:
    """A number of examples (``500``), or a time (``600s``, ``10min``, ``1h``)."""
    for unit, seconds in (("min", 60.0), ("h", 3600.0), ("s", 1.0)):
        if text.endswith(unit):
            return Budget(seconds=parse_seconds(option, text.removesuffix(unit), unit=seconds))
    return Budget(examples=parse_count(option, text))


def parse_choice(option: str, text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise SettingsError(f"{option}={text!r} is not one of {', '.join(choices)}")
    return text
