"""The samples of a run's memory and disk space: true, bounded, and without effect on the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.cluster.node import NodeError
from assay.cluster.operating_system import read_own_memory
from assay.cluster.ssh.node import SshNode
from assay.harness.core.files import read_json
from assay.harness.core.resources import FILE, FIRST_INTERVAL, HARNESS, MOST_SAMPLES, RUN, Resources, SampleSeries
from assay.harness.run import resource_recorder as module
from assay.harness.run.resource_recorder import ResourceRecorder, measure_folder

MB = 1_000_000


def nodeless(kind: str = "ssh", *nodes: Any) -> Any:
    return SimpleNamespace(kind=kind, nodes=nodes, spares=())


def recorder(folder: Path) -> ResourceRecorder:
    return ResourceRecorder(folder, cast(Any, SimpleNamespace()))


def record(recording: ResourceRecorder, cluster: Any, times: Sequence[float], end: float | None) -> None:
    """Plays a run that ticks at these times; without ``end`` it is killed after them."""

    async def play() -> None:
        recording.start(cluster, asyncio.get_running_loop().time() - 50)
        for now in times:
            recording.sample(now)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        if end is not None:
            await recording.stop(end)

    asyncio.run(play())


def read(folder: Path) -> Resources:
    return read_json(folder / FILE, Resources)


def test_the_memory_of_the_harness_is_that_of_this_process() -> None:
    before = read_own_memory()
    held = bytearray(b"x" * 80 * MB)
    assert 70 * MB < read_own_memory() - before < 100 * MB
    del held


def test_a_folder_has_the_size_of_its_files(tmp_path: Path) -> None:
    assert measure_folder(tmp_path / "none") == 0
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "a").write_bytes(b"x" * 1000)
    (tmp_path / "b").write_bytes(b"x" * 10)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert 1010 <= measure_folder(tmp_path) < 1200


def test_samples_stay_few_and_evenly_spaced_however_long_a_run_is() -> None:
    series = SampleSeries()
    for tick in range(8 * 36_000):
        if series.is_due(tick / 10):
            series.add(tick / 10, tick)
    times = [time for time, _ in series.samples]
    assert MOST_SAMPLES / 2 <= len(times) <= MOST_SAMPLES
    gaps = {round(after - before) for before, after in pairwise(times)}
    assert gaps == {round(series.interval)}
    assert times[0] == 0
    assert times[-1] > 8 * 3600 - series.interval - 1


def test_a_run_has_samples_from_its_begin_to_its_end(tmp_path: Path) -> None:
    record(recorder(tmp_path), nodeless(), [tick / 10 for tick in range(101)], 10.5)
    memory, disk = read(tmp_path).memory, read(tmp_path).disk
    assert [time for time, _ in memory[HARNESS]] == pytest.approx([0, 2, 4, 6, 8, 10, 10.5])
    assert all(value > 10 * MB for _, value in memory[HARNESS])
    assert set(disk) == {RUN}


def test_a_run_that_is_killed_leaves_its_samples_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_INTERVAL", 0.0)
    record(recorder(tmp_path), nodeless(), [0.0], None)
    assert len(read(tmp_path).memory[HARNESS]) == 1


def test_a_full_disk_costs_the_file_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_atomically", refuse)
    record(recorder(tmp_path), nodeless(), [0.0], 1.0)
    assert not (tmp_path / FILE).exists()


def test_simulated_disks_are_measured(tmp_path: Path) -> None:
    node = SimpleNamespace(name="n1", disk=SimpleNamespace(used=77))
    record(recorder(tmp_path), nodeless("sim", node), [0.0], 1.0)
    assert read(tmp_path).disk["n1"] == [(0.0, 77), (1.0, 77)]


class Printing(SshNode):
    """A node whose shell prints these lines, and whose connection breaks then."""

    def __init__(self, name: str, role: str, lines: list[str]) -> None:
        self.name, self.role, self.lines = name, role, lines
        self.asked: list[tuple[str | None, float, int]] = []

    async def usage(self, folder: str | None, every: float, rounds: int) -> AsyncIterator[str]:
        self.asked.append((folder, every, rounds))
        for number, line in enumerate(self.lines):
            if number == 1:
                await asyncio.sleep(0.3)  # the harness is busy, and the next lines come late and together
            yield line
        raise NodeError("the connection broke")


def test_nodes_report_themselves_and_late_lines_keep_their_times(tmp_path: Path) -> None:
    lines = ["100.00 1000 20", "nonsense", "100.10 - 20", "100.20 3000 -"]
    nodes = [Printing("zk1", "zookeeper", lines), Printing("c1", "client", lines), Printing("n1", "broker", lines)]
    record(recorder(tmp_path), nodeless("docker", *nodes), [50.0], 51.0)
    for name in ("zk1", "c1", "n1"):
        memory, disk = read(tmp_path).memory[name], read(tmp_path).disk[name]
        assert [value for _, value in memory] == [1_024_000, 3_072_000]
        assert memory[1][0] - memory[0][0] == pytest.approx(0.2, abs=0.01), "by the node's clock, not by the arrival"
        assert [value for _, value in disk] == [20_480, 20_480]
    assert [node.asked for node in nodes] == [
        [("/var/lib/zookeeper", FIRST_INTERVAL, MOST_SAMPLES)],
        [(None, FIRST_INTERVAL, MOST_SAMPLES)],
        [(None, FIRST_INTERVAL, MOST_SAMPLES)],
    ]
