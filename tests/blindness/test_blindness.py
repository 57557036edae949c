"""Runs tests of toy servers whose author made a mistake, and sound tests beside them.

Each blind test has a server with a bug and a mistake that hides it, such as a forgotten drain. None of them may pass if
its history shows the mistake. A sound test passes with a right server and fails with a wrong one; it is never unknown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PROGRAMS = Path(__file__).parent
HELPERS = PROGRAMS.parent
SETTINGS = ("--cluster=sim", "--time-limit=10", "--seed=1", "--reports=never", "-p", "no:cacheprovider")

BLIND = (
    ("sets", "no_read_at_all", "--nemesis=kill"),
    ("sets", "reads_only_early", "--nemesis=kill"),
    ("sets", "contract_that_forbids_nothing", "--nemesis=kill"),
    ("sets", "elements_added_again_and_again", "--nemesis=kill"),
    ("sets", "generator_ends_before_the_fault", "--nemesis=kill"),
    ("queues", "no_drain", "--nemesis=kill"),
    ("queues", "drain_that_never_ends_ok", ""),
    ("queues", "enqueues_of_unknown_outcome", ""),
    ("queues", "effects_left_out", "--nemesis=kill"),
    ("queues", "no_enqueue", ""),
    ("registers", "reads_of_another_key", "--nemesis=kill"),
    ("registers", "errors_reported_as_fail", "--nemesis=kill"),
    ("registers", "no_operation_of_the_forbidden_anomaly", ""),
    ("registers", "wrong_port", ""),
    ("registers", "each_write_of_one_value", ""),
    ("locks", "lock_never_released", ""),
    ("locks", "effects_of_acquires_left_out", ""),
    ("locks", "old_protocol", ""),
    ("locks", "acquires_only_early", "--nemesis=kill"),
    ("locks", "one_client", "--concurrency=1"),
    ("logs", "polls_of_another_partition", ""),
    ("logs", "polls_only_early", ""),
    ("logs", "positions_of_polls_left_out", ""),
    ("logs", "contract_that_forbids_too_little", ""),
    ("logs", "rate_too_low", "--rate=0.5"),
    ("logs", "polls_from_the_end", ""),
)
"""File, test and options."""
HIDDEN = (
    (
        "sets",
        "reads_from_the_clients_memory",
        "",
        "the client makes up the right answers: every recorded read is right",
    ),
    (
        "queues",
        "contract_that_tolerates_duplicates",
        "",
        "the contract says explicitly that duplicates are allowed; only the author knows the promise",
    ),
    (
        "registers",
        "reads_from_a_cache_of_the_client",
        "--nemesis=kill",
        "the client makes up the right answers: every recorded read is right",
    ),
    (
        "locks",
        "lock_among_the_clients",
        "",
        "the client makes up refusals that look like the right answer of the system",
    ),
)
"""Mistakes that no history can show, with the reason. ``What a pass does not prove`` in the documentation has them."""
SOUND = (
    ("sets", "right_under_kill", "--nemesis=kill", "pass"),
    ("sets", "right_under_power_loss", "--nemesis=power-loss", "pass"),
    ("sets", "right_of_two_sets", "--nemesis=stop", "pass"),
    ("sets", "memory", "--nemesis=kill", "fail"),
    ("sets", "no_fsync", "--nemesis=power-loss", "fail"),
    ("sets", "stale_reads", "", "fail"),
    ("queues", "right_under_kill", "--nemesis=kill", "pass"),
    ("queues", "right", "", "pass"),
    ("queues", "right_under_power_loss", "--nemesis=power-loss", "pass"),
    ("queues", "memory", "--nemesis=kill", "fail"),
    ("queues", "duplicates", "", "fail"),
    ("queues", "dropped_changes", "", "fail"),
    ("registers", "right_under_kill", "--nemesis=kill", "pass"),
    ("registers", "right_with_compare_and_set", "--nemesis=power-loss", "pass"),
    ("registers", "right_by_a_model", "--nemesis=stop", "pass"),
    ("registers", "stale_reads", "", "fail"),
    ("registers", "race", "--rate=500", "fail"),
    ("registers", "memory_by_a_model", "--nemesis=kill", "fail"),
    ("locks", "right_leases", "--nemesis=kill --concurrency=4", "pass"),
    ("locks", "right_mutex", "--concurrency=4", "pass"),
    ("locks", "right_locked_set", "--concurrency=4 --rate=20", "pass"),
    ("locks", "leases_given_twice", "--concurrency=4", "pass"),
    ("locks", "tokens_given_again", "--nemesis=kill --concurrency=4", "fail"),
    ("locks", "locked_set_given_twice", "--rate=100 --concurrency=4", "fail"),
    ("logs", "right_under_kill", "--nemesis=kill", "pass"),
    ("logs", "right_under_power_loss", "--nemesis=power-loss", "pass"),
    ("logs", "right_with_polls_by_hand", "", "pass"),
    ("logs", "memory", "--nemesis=kill", "fail"),
    ("logs", "swapped_records", "", "fail"),
    ("logs", "duplicates", "", "fail"),
)
"""With the verdict. Another owner of a later token is legal, so leases that are given twice pass."""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """Returns the verdict of each test, by file and name."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "pytest.ini").write_text("[pytest]\n")
    for path in PROGRAMS.glob("*.py"):
        if path.name != Path(__file__).name:
            (folder / path.name).write_bytes(path.read_bytes())
    sessions = defaultdict(list)
    for file, name, options, *_ in (*BLIND, *HIDDEN, *SOUND):
        sessions[file, options].append(name)
    found = {}
    for number, ((file, options), names) in enumerate(sessions.items()):
        store = folder / f"store{number}"
        rate = [] if "--rate" in options else ["--rate=100"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *(f"{file}.py::test_{name}" for name in names), *SETTINGS,
             f"--store={store}", *rate, *options.split()],
            cwd=folder, env=os.environ | {"PYTHONPATH": str(HELPERS)}, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        for path in store.glob("*/2*/run.json"):
            run = json.loads(path.read_text())
            found[file, run["test"].partition("::test_")[2].partition("[")[0]] = run["verdict"]
    return found


@pytest.mark.parametrize(("file", "name"), [row[:2] for row in BLIND])
def test_a_mistake_that_a_history_shows_never_passes(
    verdicts: dict[tuple[str, str], str], file: str, name: str
) -> None:
    assert verdicts[file, name] in ("unknown", "fail")


@pytest.mark.parametrize(("file", "name"), [row[:2] for row in HIDDEN])
def test_a_mistake_that_no_history_shows_is_known_to_pass(
    verdicts: dict[tuple[str, str], str], file: str, name: str
) -> None:
    """If it fails, detection has become better: move the row."""
    assert verdicts[file, name] == "pass"


@pytest.mark.parametrize(("file", "name", "verdict"), [(file, name, verdict) for file, name, _, verdict in SOUND])
def test_a_sound_test_has_its_verdict(verdicts: dict[tuple[str, str], str], file: str, name: str, verdict: str) -> None:
    assert verdicts[file, name] == verdict
