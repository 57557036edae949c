"""How far a machine's clocks are ahead is known up to half of the shortest round trip."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.cluster.node import NodeError
from assay.cluster.ssh.clock_offset import CLOCKS_COMMAND, ClockOffset, measure_clock_offset


class FakeMachine:
    """A machine whose clocks are ahead. ``delays``: for each call, seconds before and after it reads its clocks."""

    def __init__(self, wall: float, monotonic: float, delays: Sequence[tuple[float, float]]) -> None:
        self.wall, self.monotonic, self.delays = wall, monotonic, list(delays)

    async def shell(self, command: str) -> str:
        before, after = self.delays.pop(0)
        await asyncio.sleep(before)
        printed = f"{time.time() + self.wall} {time.monotonic() + self.monotonic}\n"
        await asyncio.sleep(after)
        return printed


def measure(wall: float, monotonic: float, *delays: tuple[float, float]) -> ClockOffset:
    return asyncio.run(measure_clock_offset(FakeMachine(wall, monotonic, delays).shell))


@pytest.mark.parametrize("slow", [(0.0, 0.1), (0.1, 0.0), (0.05, 0.05)])
def test_the_true_offset_is_within_the_error(slow: tuple[float, float]) -> None:
    found = measure(5.0, -3000.0, slow, slow, slow)
    assert abs(found.wall_ahead - 5) <= found.error + 1e-4
    assert abs(found.monotonic_ahead + 3000) <= found.error + 1e-4
    assert 0.05 <= found.error < 1


def test_the_shortest_round_trip_counts() -> None:
    found = measure(5.0, 70.0, (0.3, 0.0), (0.0, 0.0), (0.0, 0.3))
    assert found.error < 0.14
    assert found.wall_ahead == pytest.approx(5, abs=0.14)


def test_an_offset_that_is_no_larger_than_its_error_counts_as_none() -> None:
    found = ClockOffset(wall=-0.02, monotonic=0.03, error=0.02)
    assert (found.wall_ahead, found.monotonic_ahead) == (0.0, 0.03)


@pytest.mark.parametrize(
    ("wall", "monotonic", "error", "changed"),
    [
        (5, 70, 0.01, False),
        (5.05, 70, 0.01, False),
        (5.3, 70, 0.01, True),
        (5, 69.7, 0.01, True),
        (5.3, 70, 0.3, False),
    ],
)
def test_a_change_is_larger_than_both_errors(wall: float, monotonic: float, error: float, changed: bool) -> None:
    assert ClockOffset(wall, monotonic, error).has_changed(ClockOffset(5.0, 70.0, 0.02)) == changed


def test_the_text_never_claims_a_smaller_error() -> None:
    assert str(ClockOffset(1.5024, 9.0, 0.0201)) == "+1.502 s (within 0.021 s)"


@pytest.mark.parametrize("printed", ["", "welcome", "1.0"])
def test_a_machine_that_prints_no_clocks_is_an_error(printed: str) -> None:
    async def shell(command: str) -> str:
        return printed

    with pytest.raises(NodeError, match="printed no clocks"):
        asyncio.run(measure_clock_offset(shell))


def test_a_preloaded_library_does_not_affect_the_measurement(tmp_path: Path) -> None:
    """The loader names each library of ``LD_PRELOAD`` that it cannot load, on standard error."""
    environment = {**os.environ, "LD_PRELOAD": str(tmp_path / "shifts.so")}
    done = subprocess.run(["sh", "-c", CLOCKS_COMMAND], env=environment, capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 2
    assert done.stderr.count("shifts.so") <= 1, "the shell itself may try to load it, Python must not"


def test_the_clock_of_another_time_namespace_is_really_ahead() -> None:
    """Linux shifts the monotonic clock of the processes in a time namespace, but not their wall clock."""
    unshare = ["unshare", "--time", "--monotonic=5000", "--boottime=5000", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this machine cannot make a time namespace")

    async def shell(command: str) -> str:
        process = await asyncio.create_subprocess_exec(*unshare, "sh", "-c", command, stdout=subprocess.PIPE)
        return (await process.communicate())[0].decode()

    found = asyncio.run(measure_clock_offset(shell))
    assert abs(found.monotonic_ahead - 5000) <= found.error
    assert found.wall_ahead == 0
