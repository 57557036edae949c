"""How logs grew is what the shell of a node prints, taken by the moments at which it is here."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from assay.cluster import log_excerpt
from assay.cluster.log_excerpt import cut_log
from assay.cluster.node import Node, NodeError
from assay.cluster.second_copy import second_log
from assay.cluster.ssh import logs
from assay.cluster.ssh.logs import OWN_LOGS, LogGrowthRecorder, LogSizes, collect, list_system_logs
from assay.cluster.ssh.stream import follow_command, size_watch_command
from assay.cluster.system import ZOOKEEPER_ROLE, System
from assay.reports.node_logs import GROWTH


def test_the_report_looks_for_what_is_written() -> None:
    assert logs.GROWTH == GROWTH


def test_sizes_are_printed_when_they_change_and_each_look_ends_with_an_empty_line(tmp_path: Path) -> None:
    log = tmp_path / "a log.log"
    command = size_watch_command([f"{tmp_path}/*.log", f"'{tmp_path}/gone.log'"], every=0.01)(0)
    shell = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None

    def comes(size: int) -> bool:
        assert shell.stdout is not None
        return any(shell.stdout.readline() == f"{size} {log}\n" for _ in range(3000))

    try:
        assert [shell.stdout.readline() for _ in range(3)] == ["\n"] * 3, "there is no log yet"
        log.write_text("one\n")
        assert comes(4)
        assert [shell.stdout.readline() for _ in range(5)] == ["\n"] * 5, "nothing has changed"
        with log.open("a") as file:
            file.write("two\n")
        assert comes(8)
    finally:
        shell.stdout.close()
        assert shell.wait(timeout=60) != 0, "it ends once no one reads"


def test_what_the_shell_prints_becomes_moments_with_sizes(monkeypatch: Any) -> None:
    sizes = LogSizes()
    log, own = "/var/log/assay/process.log", "/x/own name.log"
    printed = ["", f"4 {log}", f"9 {own}", "", "", "stat: nonsense", "", f"6 {log}", f"9 {own}", ""]
    for moment, line in enumerate(printed):
        sizes.add_line(line, float(moment))
    assert sizes.seen == {log: [(3.0, 4), (9.0, 6)], own: [(3.0, 9)]}
    monkeypatch.setattr(logs, "MAX_SIZES", 4)
    for moment in range(10, 20):
        sizes.add_line(f"{moment} /var/log/assay/process.log", 0.0)
        sizes.add_line("", float(moment))
    kept = sizes.seen[log]
    assert len(kept) <= 4
    assert kept[-1] == (19.0, 19), "the newest stays"
    assert kept == sorted(kept)


def test_the_logs_are_those_that_are_brought_home() -> None:
    class Own(System):
        name, roles = "own", ("server",)

        def logs(self, node: Node) -> Sequence[str]:
            return ["/var/log/my server.log"]

    class Named:
        def __init__(self, role: str) -> None:
            self.role = role

    assert OWN_LOGS == "/var/log/assay/*.log"
    assert list_system_logs(Own(), cast(Any, Named("server"))) == ["/var/log/my server.log"]
    assert list_system_logs(Own(), cast(Any, Named(ZOOKEEPER_ROLE))) == ()


class Talking:
    """A node that says how long its log is, and then that it cannot be reached, or nothing more."""

    role, sidecars, had_second_copy = "server", (), False
    said: Sequence[str] = ("7 /var/log/assay/process.log", "")

    def __init__(self, name: str, *, breaks: bool) -> None:
        self.name, self.breaks, self.printed = name, breaks, asyncio.Event()

    async def log_sizes(self, pattern: str, paths: Sequence[str]) -> AsyncIterator[str]:
        for line in self.said:
            yield line
        self.printed.set()
        if self.breaks:
            raise NodeError(f"{self.name} is gone")
        await asyncio.Event().wait()


def test_growth_is_kept_per_node_and_why_it_ended_early_is_said(tmp_path: Path) -> None:
    class Plain(System):
        name, roles = "plain", ("server",)

    async def body() -> tuple[list[str], list[str]]:
        nodes = [Talking("n1", breaks=False), Talking("n2", breaks=True)]
        found = LogGrowthRecorder(Plain(), cast(Any, nodes))
        found.start()
        for node in nodes:
            await node.printed.wait()
        await asyncio.sleep(0)
        said = await found.stop()
        found.save(tmp_path)
        return said, await found.stop()

    said, again = asyncio.run(body())
    assert said == ["n2: the sizes of its logs are not known to the end: n2 is gone"]
    assert again == []
    for name in ("n1", "n2"):
        ((moment, size),) = json.loads((tmp_path / GROWTH).read_text())[name]["process.log"]
        assert size == 7
        assert moment > 0


def test_the_sizes_of_a_log_of_which_an_excerpt_is_kept_are_positions_in_the_excerpt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(System):
        name, roles = "plain", ("server",)

    monkeypatch.setattr(log_excerpt, "HEAD_BYTES", 100)
    monkeypatch.setattr(log_excerpt, "MAX_LOG_BYTES", 300)
    node = Talking("n1", breaks=False)
    node.said = [line for size in (40, 100, 500, 900, 1000) for line in (f"{size} /var/log/assay/process.log", "")]
    stored = tmp_path / "n1" / "process.log"
    stored.parent.mkdir()
    stored.write_bytes(cut_log(bytes(1000)))

    async def body() -> None:
        found = LogGrowthRecorder(Plain(), cast(Any, [node]))
        found.start()
        await node.printed.wait()
        await asyncio.sleep(0)
        await found.stop()
        found.save(tmp_path)

    asyncio.run(body())
    sizes = [size for _, size in json.loads((tmp_path / GROWTH).read_text())["n1"]["process.log"]]
    end = stored.stat().st_size
    assert sizes == [40, 100, end - 100, end]


EVENTS = "/var/log/assay/events.jsonl"


class TwoOfOneName(System):
    name, roles = "two", ("server",)

    def logs(self, node: Node) -> Sequence[str]:
        return ["/var/log/one/error.log", "/var/log/other/error.log"]


class WithFiles(Talking):
    """Each file of it has its own path in it."""

    said = ("1 /var/log/one/error.log", "2 /var/log/other/error.log", "")
    changes: Sequence[str] = ()

    async def copy_log(self, path: str, local: Path) -> None:
        local.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(local.write_text, path)


def test_logs_of_one_name_are_both_kept_each_with_its_own_sizes(tmp_path: Path) -> None:
    async def body() -> list[str]:
        nodes = cast(Any, [WithFiles("n1", breaks=False)])
        found = LogGrowthRecorder(TwoOfOneName(), nodes)
        found.start()
        await nodes[0].printed.wait()
        await asyncio.sleep(0)
        await found.stop()
        found.save(tmp_path)
        return await collect(TwoOfOneName(), nodes, tmp_path)

    assert asyncio.run(body()) == []
    texts = {path.name: path.read_text() for path in (tmp_path / "n1").iterdir()}
    assert texts == {
        "process.log": "/var/log/assay/process.log",
        "error.log": "/var/log/one/error.log",
        "var-log-other-error.log": "/var/log/other/error.log",
    }
    grown = json.loads((tmp_path / GROWTH).read_text())["n1"]
    assert {name: size for name, ((_, size),) in grown.items()} == {"error.log": 1, "var-log-other-error.log": 2}


def test_an_event_log_is_followed_after_what_was_delivered() -> None:
    assert (
        follow_command("/var/my log/events")(3)
        == "mkdir -p '/var/my log'; exec tail -n +4 -F '/var/my log/events' 2>/dev/null"
    )


class SecondRefused(WithFiles):
    """A second copy of its process was refused at its start, so it made no event log."""

    had_second_copy = True

    async def copy_log(self, path: str, local: Path) -> None:
        if path == second_log(EVENTS):
            raise FileNotFoundError(path)
        await super().copy_log(path, local)


class WithEvents(TwoOfOneName):
    def event_log(self, node: Node) -> str:
        return EVENTS


def test_a_refused_second_copy_has_no_event_log_to_miss(tmp_path: Path) -> None:
    nodes = cast(Any, [SecondRefused("n1", breaks=False)])
    assert asyncio.run(collect(WithEvents(), nodes, tmp_path)) == []
    assert {path.name for path in (tmp_path / "n1").iterdir()} >= {"events.jsonl", "second.log", "process.log"}
