"""Tests what a run says that repeats it: its options where they differ from what they are when they are not given."""

from dataclasses import replace

import pytest

from assay.harness.run.command_line import DEFAULTS, DEFAULTS_OF_MIX, MIX, make_repeat_command, select_defaults
from assay.harness.run.settings import Settings
from assay.nemesis.schedule import catalogue

USUAL = Settings(seed=7, cluster="sim")
MIXED = replace(
    USUAL,
    nemesis=("mix",),
    nemesis_interval=5.0,
    time_limit=20.0,
    rate=80.0,
    operation_timeout=2.0,
    concurrency=18,
)


def test_the_mix_is_the_nemesis_that_is_called_so() -> None:
    assert MIX == catalogue.MIX
    assert select_defaults(["mix"]) is DEFAULTS_OF_MIX
    assert select_defaults([]) is select_defaults(["kill"]) is select_defaults(["mix", "kill"]) is DEFAULTS


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (USUAL, ""),
        (MIXED, "--nemesis=mix "),
        (replace(USUAL, nemesis=("kill",), rate=80.0), "--nemesis=kill --rate=80 "),
        (replace(MIXED, nemesis=("kill",)), "--nemesis=kill --nemesis-interval=5 --time-limit=20 --rate=80 "
         "--operation-timeout=2 --concurrency=18 "),
        (replace(USUAL, nemesis=("mix",), rate=20.0), "--nemesis=mix --nemesis-interval=10 --time-limit=30 --rate=20 "
         "--operation-timeout=5 --concurrency=6 "),
        (replace(MIXED, rate=None), "--nemesis=mix --rate=none "),
        (replace(USUAL, rate=1234567.0, time_limit=36000.25), "--time-limit=36000.25 --rate=1234567.0 "),
        (replace(USUAL, rate=0.1, time_limit=1e6), "--time-limit=1e+06 --rate=0.1 "),
        (replace(MIXED, nodes=5, concurrency=30), "--nemesis=mix --nodes=5 "),
        (replace(MIXED, nodes=2, role_nodes=("s=3",), concurrency=12), "--nemesis=mix --nodes=2,s=3 "),
    ],
)  # fmt: skip
def test_options_are_named_where_they_are_not_what_they_would_be(settings: Settings, options: str) -> None:
    assert make_repeat_command("t.py", settings, 0.0) == f"pytest t.py --cluster=sim {options}--seed=7"


def test_a_watched_run_is_watched_again() -> None:
    watched = replace(USUAL, cluster="docker", watch=True)
    assert make_repeat_command("t.py", watched, 0.0) == "pytest t.py --cluster=docker --seed=7 --watch"
    assert make_repeat_command("t.py", replace(watched, fail_fast=True)).endswith("--seed=7 --fail-fast")
