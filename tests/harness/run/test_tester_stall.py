"""A tester that its machine does not let go on knows for how long."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from assay.harness.run.observers import StallMeter

TICKING = """
import asyncio, time
from assay.harness.run.observers import StallMeter

async def main():
    still = StallMeter(0.05)
    loop = asyncio.get_running_loop()
    for number in range(30):
        still.record_sleep(loop.time(), time.process_time())
        if number == 1:
            print("begun", flush=True)
        await asyncio.sleep(0.05)
    print(still.total)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("took", "computed", "total"),
    [
        (0.1, 0.0, 0.0),
        (0.3, 0.0, 0.0),  # late by less than counts
        (1.1, 0.0, 1.0),
        (1.1, 1.0, 0.0),  # it computed, and a machine gave it what it wanted
        (3.1, 1.0, 2.0),
        (0.1, 0.5, 0.0),  # simulated time
    ],
)
def test_what_a_sleep_took_too_long_counts_less_what_was_computed(took: float, computed: float, total: float) -> None:
    still = StallMeter(0.1)
    still.record_sleep(50.0, 7.0)
    still.record_sleep(50.0 + took, 7.0 + computed)
    assert still.total == pytest.approx(total)


def test_the_sleep_of_the_machine_counts_although_the_clock_stood_still() -> None:
    still = StallMeter(0.1)
    still.record_sleep(50.0, 7.0, 1000.0)
    still.record_sleep(50.1, 7.0, 1030.0)
    still.record_sleep(50.2, 7.0, 1030.0)
    assert still.total == pytest.approx(30.0)


def test_it_adds_up() -> None:
    still, now = StallMeter(0.1), 0.0
    for took in (0.0, 0.6, 0.1, 0.3, 1.1):
        now += took
        still.record_sleep(now, 0.0)
    assert still.total == pytest.approx(1.5)


def test_a_process_that_was_stopped_knows_it_afterwards() -> None:
    with subprocess.Popen([sys.executable, "-c", TICKING], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        child.send_signal(signal.SIGCONT)
        assert float(child.stdout.read()) > 0.9
