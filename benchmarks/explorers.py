"""Searches for the benchmarks, with the package ``assay`` of this checkout or of an older one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


@contextmanager
def open_explorer(workload: str, seed: int, defect: str | None = None, **budget: float) -> Iterator[tuple[Any, Any]]:
    """Yields an explorer, and a function that returns the processor seconds of the explorer and its processes. Budgets
    count the same seconds. With a defect, invariants are asserted if the code has any.
    """
    from assay.checkers.engine import Engines
    from assay.harness.run.experiment import find_experiment
    from assay.harness.run.registry import Registry
    from assay.harness.run.settings import Budget, Settings
    from assay.harness.search.exploration import make_search_space
    from assay.harness.search.explore import Explorer
    from assay.harness.search.player import Player

    experiment = find_experiment(getattr(import_module(f"assay.workloads.{workload}"), workload))
    assert experiment is not None
    registry = Registry.standard()
    with tempfile.TemporaryDirectory() as folder:
        base = Settings(seed, time_limit=10.0, store=Path(folder), defect=defect)
        if defect is not None and hasattr(base, "invariants"):
            base = replace(base, invariants="on")
        plain_player: Any = Player(experiment, base, base.store / "schedules", Engines(threads=1), registry)
        player, child_seconds = plain_player, lambda: 0.0
        try:
            fork_player = import_module("assay.harness.search.fork_player")
        except ImportError:
            pass
        else:
            player = fork_player.ForkPlayer(plain_player)
            child_seconds = lambda: player.cpu_seconds  # noqa: E731 - of the process that plays
        began = time.process_time()

        def spent() -> float:
            return time.process_time() - began + child_seconds()

        space = make_search_space(experiment.deployed_system(), base, registry.faults)
        limit: Any = budget
        try:
            yield Explorer(player, space, Budget(**limit), clock=spent), spent
        finally:
            if player is not plain_player:
                player.close()


@contextmanager
def open_checkout(reference: str) -> Iterator[Path]:
    """Yields a checkout: the folder ``reference``, or else a temporary worktree of the commit ``reference``."""
    if Path(reference).is_dir():
        yield Path(reference).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="assay-checkout-") as folder:
        checkout = Path(folder) / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(checkout), reference], check=True)
        try:
            yield checkout
        finally:
            subprocess.run([*git, "remove", "--force", str(checkout)], check=True)


def run_in_checkout(script: str, checkout: Path, arguments: Sequence[object]) -> str:
    """Runs a script with the code of a checkout, and returns the last line that it prints.

    The checkout's own copy of the script is run, because functions have other names in older commits.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    own = checkout / "benchmarks" / Path(script).name
    command = [sys.executable, str(own if own.exists() else script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()[-1]
