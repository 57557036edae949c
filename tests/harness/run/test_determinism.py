"""A seed gives the same history, byte for byte, in any process, under any hash seed, and whatever ran before."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent
PROGRAM = """
import os, sys, tempfile
from datetime import UTC, datetime
from pathlib import Path
import assay.workloads.test_log
from assay.harness.run import store
from assay.harness.run.environments import close_loop
from assay.harness.run.experiment import find_experiment
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.progress import SilentProgress
from assay.harness.run.resource_recorder import ResourceRecorder
from assay.harness.run.settings import Settings
from assay.harness.run.trial import Trial
from assay.harness.run.environments import open_world
from assay.nemesis.schedule.catalogue import FaultCatalogue

found = find_experiment(assay.workloads.test_log.test_log)
faults = ("clock", "hold", "kill", "partition", "power-loss", "stop")
for seed in map(int, sys.argv[1:]):
    nemesis = faults[seed % len(faults):][:2]
    settings = Settings(seed=seed, nemesis=nemesis, nemesis_interval=1.5, time_limit=3.5, rate=30.0)
    with tempfile.TemporaryDirectory() as folder:
        world = open_world(found.system, settings, run_id="determinism")
        kept = store.create_run_folder(Path(folder), "determinism", datetime.now(UTC))
        trial = Trial(found, found.system, settings, world, kept, FaultCatalogue.standard(), Interrupt(),
                      SilentProgress())
        if os.environ["PYTHONHASHSEED"] == "2":
            trial.resources = ResourceRecorder(kept.path, found.system)
        complete = world.loop.run_until_complete
        complete(trial.set_up())
        ended = complete(trial.run())
        complete(trial.tear_down(keep=False))
        close_loop(world.loop)
    print(seed, ended.digest)
"""


def digests(seeds: list[int], hash_seed: int) -> dict[str, str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", PROGRAM, *map(str, seeds)]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(0, 6, 2), pytest.param(range(100), marks=pytest.mark.long)], ids=len)
def test_every_seed_twice_in_separate_processes(seeds: range) -> None:
    """The second process plays them in the other order, so that no run can lean on what the one before it left. It
    also samples its memory and its disks, which must not change a run.
    Three seeds are enough for each fault to come once.
    """
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(digests, list(seeds), 1)
        second = pool.submit(digests, list(reversed(seeds)), 2)
    assert first.result() == second.result()
    assert len(first.result()) == len(seeds)
    assert len(set(first.result().values())) == len(seeds), "different seeds differ"
    assert "None" not in first.result().values()
