"""A run as a pytest command: the defaults of its options, and what to type to do it again."""

import shlex
from typing import Final

from assay.harness.run.settings import Settings

DEFAULT_INTERVAL: Final = "10"
DEFAULT_TRIGGER: Final = "every"
DEFAULT_TIME_LIMIT: Final = "30"
DEFAULT_TIMEOUT: Final = "5"
DEFAULT_CONCURRENCY: Final = "2n"
DEFAULT_NODES: Final = "3"
DEFAULT_ZOOKEEPERS: Final = "1"


def repeat_command(test: str, settings: Settings) -> str:
    """What to type to do exactly this run again; options at their default are left out."""
    options: list[tuple[str, str | None, str | None]] = [
        ("--cluster", settings.cluster, None),
        ("--replay", None if settings.replay is None else str(settings.replay), None),
        ("--nemesis", None if settings.replay is not None else ",".join(settings.nemesis) or None, None),
        ("--nemesis-interval", f"{settings.nemesis_interval:g}", DEFAULT_INTERVAL),
        ("--nemesis-target", settings.nemesis_target, None),
        ("--nemesis-trigger", settings.nemesis_trigger, DEFAULT_TRIGGER),
        ("--workload-mix", ",".join(settings.workload_mix) or None, None),
        ("--time-limit", f"{settings.time_limit:g}", DEFAULT_TIME_LIMIT),
        ("--rate", None if settings.rate is None else f"{settings.rate:g}", None),
        ("--operation-timeout", f"{settings.operation_timeout:g}", DEFAULT_TIMEOUT),
        ("--nodes", str(settings.nodes), DEFAULT_NODES),
        ("--zookeepers", str(settings.zookeepers), DEFAULT_ZOOKEEPERS),
        ("--concurrency", str(settings.concurrency), str(2 * settings.nodes)),
        ("--workers", None if settings.client_nodes is None else str(settings.client_nodes), None),
        ("--defect", settings.defect, None),
        ("--seed", str(settings.seed), None),
    ]
    options += [("--set", setting, None) for setting in settings.configuration]
    given = [f"{name}={value}" for name, value, default in options if value is not None and value != default]
    return shlex.join(["pytest", test, *given])
