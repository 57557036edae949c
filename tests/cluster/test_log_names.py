"""Each saved log has a name of its own, and keeps its file name if that is free."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.naming import choose_log_names
from assay.harness.run.environments import SimWorld

PATHS = ("/var/log/one/error.log", "/var/log/other/error.log", "/var/log/process.log")
PARTS = st.sampled_from(["a", "A", "b", "a-b", "2-a-b"])


def test_a_name_that_is_taken_becomes_the_whole_path() -> None:
    assert choose_log_names(PATHS, ["process.log"]) == {
        PATHS[0]: "error.log", PATHS[1]: "var-log-other-error.log", PATHS[2]: "var-log-process.log"
    }  # fmt: skip


@given(st.lists(st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))), st.sets(PARTS))
def test_names_are_different_and_lie_in_the_folder_itself(paths: list[str], taken: set[str]) -> None:
    names = choose_log_names(paths, taken)
    assert set(names) == set(paths)
    used = {name.casefold() for name in taken}  # some file systems ignore case
    assert len({name.casefold() for name in names.values()} | used) == len(names) + len(used)
    assert not any("/" in name for name in names.values())


class Node:
    """A simulated node each of whose files has its path in it."""

    name, role = "n1", "server"

    async def read_file(self, path: str) -> bytes:
        return path.encode()


def test_the_simulation_saves_each_log_beside_what_the_process_printed(tmp_path: Path) -> None:
    system: Any = SimpleNamespace(logs=lambda node: [*PATHS, "/events"], event_log=lambda node: "/events")
    world: Any = object.__new__(SimWorld)
    world._system, world._cluster = system, SimpleNamespace(nodes=[Node()], spares=[])

    def save_printed(folder: Path) -> None:
        (folder / "n1").mkdir()
        (folder / "n1" / "process.log").write_text("printed")

    world._logs = SimpleNamespace(save=save_printed)
    assert asyncio.run(world.save_logs(tmp_path)) == []
    texts = {path.name: path.read_text() for path in (tmp_path / "n1").iterdir()}
    assert texts == {
        "process.log": "printed", "error.log": PATHS[0], "var-log-other-error.log": PATHS[1],
        "var-log-process.log": PATHS[2],
    }  # fmt: skip
