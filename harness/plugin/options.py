"""The command line options, and their conversion to the settings of each run.

Every pytest session of an environment with the plugin loads this module, so it imports only the standard library,
pytest and other light modules.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from assay.harness.run import command_line
from assay.harness.run import settings as run_settings
from assay.harness.run.settings import (
    AUTO,
    CLIENT_PLACES,
    CLUSTERS,
    COVERAGE_CHOICES,
    DEFAULT_HOSTS,
    ENGINES,
    HISTORY_CHOICES,
    INVARIANT_CHOICES,
    KEEP_CHOICES,
    ON_HOSTS,
    ONCE,
    REPORT_CHOICES,
    Budget,
    Settings,
    SettingsError,
    seed_of_repetition,
)


class ResetAction(argparse.Action):
    """Sets other options back to their defaults; see ``command_line.make_reset``."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        for option in str(values).split(","):
            name = option.removeprefix("--").replace("-", "_")
            setattr(namespace, name, parser.get_default(name))


def add_options(parser: pytest.Parser) -> None:
    """Adds the option group ``assay``. :func:`read_options` parses and validates the values."""
    group = parser.getgroup(
        "assay",
        "assay: tests of distributed systems under faults. A conftest.py adds faults, checks, models and systems "
        "by the hooks pytest_assay_nemeses, pytest_assay_checks, pytest_assay_models and pytest_assay_systems "
        "(docs/cookbook/extending.md)",
    )
    add = group.addoption
    add(command_line.RESET, action=ResetAction, help=argparse.SUPPRESS)
    add("--nemesis", action="append", default=[], metavar="FAULT[,FAULT]",
        help="inject these faults; faults with a comma between them are injected in one run; if the "
             "option is repeated, each "
             "makes tests of its own; 'none' (default), 'all' (tests for each fault), 'mix' "
             "(overlapping faults of all kinds; "
             "docs/guide/faults.md)")  # fmt: skip
    add("--nemesis-interval", default=None, metavar="S",
        help="seconds between injections (default: 10, with --nemesis=mix 5); a fault is healed "
             "after half of this time")  # fmt: skip
    add("--nemesis-target", default=None, metavar="WHO",
        help="the nodes that faults hit: one, minority, half, majority, all, leader[:KEY], "
             "follower[:KEY], controller, coordinator[:GROUP], "
        "consumer, consumers, zookeeper, zookeepers, origin, or names: n2, n1+n3 (docs/guide/faults.md)")  # fmt: skip
    add("--replay", default=None, metavar="FILE",
        help="play the schedule in this file (a run's schedule.json, or one written by hand)")  # fmt: skip
    add(
        "--nemesis-trigger",
        default=command_line.DEFAULT_TRIGGER,
        metavar="WHEN",
        help="when a fault is injected: 'every' interval (default), 'after:N' acknowledged "
        "operations, soon after an event "
        "('event:NAME' or 'event:NAME:KEY'), or exactly at it ('hold:NAME' or 'hold:NAME:KEY'); --nemesis-list lists "
        "some events",
    )
    add("--nemesis-list", action="store_true", help="list the faults and exit")
    add("--workload-mix", action="append", default=[], metavar="MIX[,MIX]",
        help="add operations, settings and client options to the workload; mixes with a comma between them are used in "
        "one run; if the option is repeated, each makes tests of its own; 'none' (default), 'all' "
        "(a test for each mix that a workload supports), "
        "'random' (drawn from the seed; docs/cookbook/mixes.md)")  # fmt: skip
    add("--workload-mix-list", action="store_true", help="list the mixes of the collected tests and exit")
    add(
        "--time-limit", default=None, metavar="S", help="seconds of the main phase (default: 30, with --nemesis=mix 20)"
    )
    add("--rate", default=None, metavar="OPS",
        help="operations per second that are called even if earlier ones are pending (open loop). "
             "Default: each worker calls "
        "the next operation after an answer (closed loop); with --nemesis=mix 80 per second")  # fmt: skip
    add("--operation-timeout", default=None, metavar="S",
        help="seconds after which an operation's outcome counts as unknown (default: 5, with "
             "--nemesis=mix 2)")  # fmt: skip
    add("--drain-limit", default=None, metavar="S",
        help="seconds that a drain, or another phase after the last heal, may go on without reading a new record "
        "(default: the longest deadline plus three operation timeouts); after that the verdict is unknown")  # fmt: skip
    add(
        "--concurrency",
        default=None,
        metavar="N",
        help="number of workers, such as 6, or 2n for two per node (default: 2n, with --nemesis=mix 6n)",
    )
    add("--nodes", default=None, metavar="N",
        help="number of nodes of each role, or by role: server=3,sentinel=5 (default: as the system or the experiment "
        "declares, else 3)")  # fmt: skip
    add(
        "--zookeepers",
        default=command_line.DEFAULT_ZOOKEEPERS,
        metavar="N",
        help="number of ZooKeeper nodes (default: 1)",
    )
    add("--workers", default=None, metavar="N",
        help="number of client nodes, for tests that use them (default: as many as --nodes, at most 3)")  # fmt: skip
    add("--clients", default=run_settings.AUTO, metavar="|".join(CLIENT_PLACES),
        help="where the clients of --cluster=docker run: in this process ('here'), or in a "
        "container on the network of the nodes ('container'); 'auto': here if this machine reaches it")  # fmt: skip
    add(
        "--seed",
        default=None,
        metavar="N",
        help="seed of all randomness; the same seed repeats a run, in the simulation exactly (default: a drawn seed)",
    )
    add("--repeat", default="1", metavar="N|S",
        help="run each test N times, with seeds derived from the seed (default: 1); or repeat all "
             "tests until this time is "
        "over (600s, 10min): a test that has begun by then is completed")  # fmt: skip
    add("--cluster", default=None, metavar="|".join(CLUSTERS),
        help="where to run: containers, the simulation, machines of your own by SSH, or a cluster that runs already, "
             "without faults (default: docker if an engine answers, else sim)")  # fmt: skip
    add("--hosts", default=None, metavar="FILE",
        help=f"file with the machines of --cluster=ssh or attach (default: {DEFAULT_HOSTS}); for attach also "
        "compose:PROJECT")  # fmt: skip
    add("--stop-at-unknown", action="store_true",
        help="let -x and --maxfail count unknown verdicts, too; by default they count only violations")  # fmt: skip
    add(
        "--store",
        default="store",
        metavar="DIR",
        help="folder of the runs, relative to pytest's rootdir (default: store)",
    )
    add("--trust-run", action="store_true",
        help="collect tests among stored runs that the command line names, which executes their Python files "
        "(docs/help/security.md)")  # fmt: skip
    add("--reports", default=None, metavar="|".join(REPORT_CHOICES),
        help="which runs get an HTML page (default: all, with --repeat those that fail)")  # fmt: skip
    add("--keep-history", default=HISTORY_CHOICES[0], metavar="|".join(HISTORY_CHOICES),
        help="which runs keep their histories (default: all); with 'failures' the history of a run "
             "is removed once it has "
        "passed and its page is written")  # fmt: skip
    add(
        "--keep-cluster",
        default="never",
        metavar="|".join(KEEP_CHOICES),
        help="whether containers keep running after a run (default: never)",
    )
    add("--watch", action="store_true",
        help="judge the history during the run and report findings at once (real clusters only; a simulated run takes "
        "seconds); assay watch does the same from outside")  # fmt: skip
    add("--fail-fast", action="store_true", help="like --watch, and end the run at the first forbidden anomaly")
    add("--engine", default=ENGINES[0], metavar="|".join(ENGINES),
        help="engine that judges the history (default: sqlite for a small history, duckdb if it fits on this "
        "machine, else spark)")  # fmt: skip
    add(
        "--spark-master",
        default=None,
        metavar="URL",
        help="the Spark that judges the history: local[4], spark://..., yarn, k8s://...",
    )
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help="a setting of the system for its nodes, such as flush.messages=1 (repeatable)")  # fmt: skip
    add("--explore", default=None, metavar="N|S",
        help="search in the simulation for schedules, topologies and workloads that fail: N examples "
             "(default: 500), or as many as fit into a time (600s, 10min); failing examples are shrunk "
             "and kept")  # fmt: skip
    add("--code-coverage", default=None, metavar="|".join(COVERAGE_CHOICES),
        help="in a search, measure line and branch coverage of the system, and keep examples that reach new code. "
             "It costs about 10 percent of the processor time of the first examples, later 3 or less (default: auto, "
             "if the system has Python source; never outside a search)")  # fmt: skip
    add("--defect", default=None, metavar="NAME", help="switch on a built-in defect of the system under test")
    add("--invariants", default=AUTO, metavar="|".join(INVARIANT_CHOICES),
        help="in the simulation: end a run at once if one of the system's own invariants is broken (default: "
             "auto, in runs without --defect and in every search)")  # fmt: skip


Text = TypeVar("Text", str, str | None)


@dataclass(frozen=True)
class Options:
    """The session's validated options. ``cluster`` None: the default; ``seed`` None: it will be drawn."""

    settings: Settings
    """Settings that all runs of the session share."""
    nemesis: tuple[str, ...]
    """The values as given; each is one combination."""
    workload_mix: tuple[str, ...]
    seed: int | None
    repeat: Budget
    cluster: str | None
    engine: str
    spark_master: str | None
    explore: Budget | None
    code_coverage: str
    """For a search: a value of ``COVERAGE_CHOICES``."""
    reports: str
    """A value of ``REPORT_CHOICES``."""
    history: str
    """A value of ``HISTORY_CHOICES``."""
    timeout_given: bool
    """Whether ``--operation-timeout`` was given."""
    nodes: str | None = None
    """``--nodes`` as given; None if it was not."""
    concurrency: str = command_line.DEFAULTS.concurrency
    """The effective ``--concurrency``: a number, or a multiple of the number of nodes of a test."""


def read_options(config: pytest.Config) -> Options:
    """Reads the options. Raises :class:`~assay.harness.run.settings.SettingsError` for an invalid value."""

    def text(name: str) -> str:
        return str(config.getoption(name))

    def optional(name: str) -> str | None:
        value = config.getoption(name)
        return None if value is None else str(value)

    def get_or_default(name: str, default: Text) -> str | Text:
        value = optional(name)
        return default if value is None else value

    defaults = command_line.select_defaults(config.getoption("--nemesis"))
    cluster, seed = optional("--cluster"), optional("--seed")
    hosts = optional("--hosts")
    if hosts is not None and cluster not in ON_HOSTS:
        raise SettingsError(f"--hosts={hosts} needs --cluster=ssh or --cluster=attach")
    asked = optional("--nodes")
    nodes, role_nodes = run_settings.parse_nodes(command_line.DEFAULT_NODES if asked is None else asked)
    concurrency = get_or_default("--concurrency", defaults.concurrency)
    explore, workers, replay = optional("--explore"), optional("--workers"), optional("--replay")
    code_coverage = optional("--code-coverage")
    if code_coverage is not None and explore is None:
        raise SettingsError(
            f"--code-coverage={code_coverage} needs --explore: coverage can be measured only in the simulated runs "
            "of a search"
        )
    repeat = run_settings.parse_budget("--repeat", text("--repeat"))
    reports = get_or_default("--reports", REPORT_CHOICES[0] if repeat == ONCE else REPORT_CHOICES[1])
    time_limit = run_settings.parse_seconds("--time-limit", get_or_default("--time-limit", defaults.time_limit))
    interval, drain_limit = get_or_default("--nemesis-interval", defaults.nemesis_interval), optional("--drain-limit")
    settings = Settings(
        seed=0,
        nemesis_interval=run_settings.parse_interval(
            "--nemesis-interval", interval, time_limit, faults=bool(config.getoption("--nemesis"))
        ),
        nemesis_target=optional("--nemesis-target"),
        time_limit=time_limit,
        drain_limit=None if drain_limit is None else run_settings.parse_seconds("--drain-limit", drain_limit),
        rate=run_settings.parse_rate(get_or_default("--rate", defaults.rate)),
        operation_timeout=run_settings.parse_seconds(
            "--operation-timeout", get_or_default("--operation-timeout", defaults.operation_timeout)
        ),
        concurrency=run_settings.parse_concurrency(concurrency, nodes),
        nodes=nodes,
        role_nodes=role_nodes,
        zookeepers=run_settings.parse_count("--zookeepers", text("--zookeepers")),
        hosts=_resolve_hosts(config, hosts or DEFAULT_HOSTS) if cluster in ON_HOSTS else None,
        store=config.rootpath / run_settings.parse_path("--store", text("--store")),
        keep_cluster=run_settings.parse_choice("--keep-cluster", text("--keep-cluster"), KEEP_CHOICES),
        defect=optional("--defect"),
        invariants=run_settings.parse_choice("--invariants", text("--invariants"), INVARIANT_CHOICES),
        replay=None if replay is None else config.invocation_params.dir / run_settings.parse_path("--replay", replay),
        nemesis_trigger=text("--nemesis-trigger"),
        configuration=tuple(run_settings.parse_setting("--set", word) for word in config.getoption("--set")),
        watch=config.getoption("--watch") or config.getoption("--fail-fast"),
        fail_fast=config.getoption("--fail-fast"),
        clients=run_settings.parse_choice("--clients", text("--clients"), CLIENT_PLACES),
        client_nodes=None if workers is None else run_settings.parse_count("--workers", workers),
    )
    return Options(
        settings=settings,
        nemesis=tuple(config.getoption("--nemesis")),
        workload_mix=tuple(config.getoption("--workload-mix")),
        seed=None if seed is None else run_settings.parse_seed(seed),
        repeat=repeat,
        cluster=None if cluster is None else run_settings.parse_choice("--cluster", cluster, CLUSTERS),
        engine=run_settings.parse_engine(text("--engine"), optional("--spark-master")),
        spark_master=optional("--spark-master"),
        explore=None if explore is None else run_settings.parse_budget("--explore", explore),
        code_coverage=run_settings.parse_choice("--code-coverage", code_coverage or AUTO, COVERAGE_CHOICES),
        reports=run_settings.parse_choice("--reports", reports, REPORT_CHOICES),
        history=run_settings.parse_choice("--keep-history", text("--keep-history"), HISTORY_CHOICES),
        timeout_given=optional("--operation-timeout") is not None,
        nodes=asked,
        concurrency=concurrency,
    )


def _resolve_hosts(config: pytest.Config, text: str) -> Path:
    """Resolves a file against the folder of the session's start; a Compose project is no file."""
    return Path(text) if ":" in text else config.invocation_params.dir / text


def make_settings(
    options: Options,
    *,
    cluster: str,
    seed: int,
    nemesis: tuple[str, ...],
    workload_mix: tuple[str, ...],
    number: int = 1,
    test: str = "",
    operation_timeout: float = 0.0,
    set_counts: Callable[[Settings, str | None], Settings] | None = None,
) -> Settings:
    """Returns the settings of repetition ``number`` (from 1) of one test, with these faults and mixes.

    - ``operation_timeout``: the seconds that its operations need. It is the minimum unless the user gave a value.
    - ``set_counts``: puts declared numbers of nodes per role into the settings; it gets the settings and ``--nodes``.
    """
    shared = options.settings
    if set_counts is not None:
        shared = set_counts(shared, options.nodes)
        shared = replace(shared, concurrency=run_settings.parse_concurrency(options.concurrency, shared.nodes))
    if not options.timeout_given:
        shared = replace(shared, operation_timeout=max(shared.operation_timeout, operation_timeout))
    seed = seed_of_repetition(seed, number, test)
    return replace(shared, seed=seed, cluster=cluster, nemesis=nemesis, workload_mix=workload_mix)
