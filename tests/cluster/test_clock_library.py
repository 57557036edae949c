"""The library that shifts a process's wall clock, on this machine: what it notes is what the main process was shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.cluster.docker import preload
from assay.cluster.sidecars import Sidecar
from assay.cluster.ssh import preloaded
from assay.cluster.ssh.node_processes import Program, add_sidecars

pytestmark = pytest.mark.skipif(shutil.which(preload.COMPILER) is None, reason="needs a C compiler")
HOUR = 3600.0


def shown(library: Path, file: Path, environment: dict[str, str]) -> tuple[float, tuple[float, int]]:
    """How far the clock of a process with this environment is ahead, and what was noted of it."""
    run = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"],
        env={**os.environ, **environment, "LD_PRELOAD": str(library)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    words = subprocess.run(
        ["sh", "-c", preloaded.read_words_command(str(file))], capture_output=True, text=True, check=True
    )
    return float(run.stdout) - time.time(), preloaded.parse_shown(words.stdout)


def test_a_process_beside_the_main_one_has_the_same_clock_and_is_no_proof_of_that_ones(tmp_path: Path) -> None:
    library, file = tmp_path / "shift.so", tmp_path / "shift"
    library.write_bytes(preload.compile_here(replace(preload.CLOCK, file=str(file))))
    file.write_bytes(round(HOUR * preloaded.NANOSECONDS).to_bytes(8, "little") + bytes(16))
    main = add_sidecars(Program(["server"], "/", {}), {"agent": Sidecar(["agent"])})
    ahead, noted = shown(library, file, dict(main.sidecars["agent"].environment))
    assert ahead == pytest.approx(HOUR, abs=60)
    assert noted == (0.0, 0)
    ahead, noted = shown(library, file, dict(main.environment))
    assert ahead == pytest.approx(HOUR, abs=60)
    assert noted[0] == HOUR
    assert noted[1] > 0
