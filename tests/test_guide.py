"""The code of the first chapters and of the job queue runs: each server fails or passes as the pages say."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

GUIDE = Path(__file__).parent.parent / "docs" / "guide"
STORE = re.compile(r"class Store:.*?(?=\n\n\nasync def serve)", re.DOTALL)

pytestmark = pytest.mark.slow


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (GUIDE / page).read_text(), re.DOTALL)


def methods(block: str) -> str:
    """Functions of a page as methods of a class."""
    return textwrap.indent(re.sub(r"\n{3}", "\n\n", block), "    ")


SERVER, TEST, WITH_FILE, DURABLE, _PEERS = blocks("key_value_server.md")
CAS, COMMAND, CLIENT, EFFECTS, LOCKED, *_ = blocks("effects_and_contracts.md")
(TIMEOUT,) = blocks("outcomes.md")


def replaced(text: str, pattern: str, new: str) -> str:
    """The text with the one place that matches replaced."""
    result, count = re.subn(pattern, lambda _: new, text, flags=re.DOTALL)
    assert count == 1, pattern
    return result


def server(store: str) -> str:
    """The server with another class ``Store``."""
    return replaced(SERVER, STORE.pattern, store.rstrip())


def run(pytester: pytest.Pytester, servers: dict[str, str], test: str, *options: str) -> pytest.RunResult:
    """Runs the test once for each of these servers; a test module is named after its server."""
    for name, code in servers.items():
        renamed = test.replace("import kv", f"import kv_{name} as kv")
        pytester.makepyfile(**{f"kv_{name}": code, f"test_{name}": renamed})
    fixed = ("--cluster=sim", "--seed=7", "-p", "no:xdist", "-p", "no:randomly", "--reports=never", "-rA")
    return pytester.runpytest_subprocess(*fixed, *options)


def verdicts(result: pytest.RunResult) -> dict[str, str]:
    """Test to ``PASSED`` or ``FAILED``."""
    found = re.findall(r"^(PASSED|FAILED) test_([^\s:]+\.py::\S+)", result.stdout.str(), re.MULTILINE)
    return {name: word for word, name in found}


def test_the_server_has_about_forty_lines() -> None:
    assert len(SERVER.splitlines()) <= 45


def test_the_server_of_the_first_chapter_fails_and_passes_as_the_page_says(pytester: pytest.Pytester) -> None:
    servers = {"memory": SERVER, "file": server(WITH_FILE), "durable": server(DURABLE)}
    options = ("--nemesis=kill", "--nemesis=power-loss", "--rate=50", "--time-limit=10")
    result = run(pytester, servers, TEST, *options)
    assert verdicts(result) == {
        "memory.py::test_kv[kill]": "FAILED",
        "memory.py::test_kv[power-loss]": "FAILED",
        "file.py::test_kv[kill]": "PASSED",
        "file.py::test_kv[power-loss]": "FAILED",
        "durable.py::test_kv[kill]": "PASSED",
        "durable.py::test_kv[power-loss]": "PASSED",
    }
    result.stdout.fnmatch_lines(["FAIL stale-read (* times): *"])


@pytest.mark.long
def test_a_false_fail_accuses_the_durable_server(pytester: pytest.Pytester) -> None:
    wrong = replaced(TEST, r"    async def open.*?(?=    async def close)", methods(TIMEOUT) + "\n")
    options = ("--nemesis=stop", "--rate=50", "--time-limit=10")
    result = run(pytester, {"durable": server(DURABLE)}, wrong, *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAIL missing-writer: *"])


@pytest.mark.long
def test_the_compare_and_set_of_the_third_chapter_races_without_the_lock(pytester: pytest.Pytester) -> None:
    test = replaced(TEST, r"    async def invoke.*?(?=    async def close)", methods(CLIENT) + "\n")
    test = replaced(test, r"    @staticmethod.*?(?=\n\ndef step)", methods(EFFECTS))
    test = test.replace('["read", "write"]', '["read", "write", "cas"]')
    test = test.replace('value if f == "write" else None', 'None if f == "read" else value')
    racy = server(DURABLE + "\n" + methods(CAS)).replace("            else:\n", COMMAND + "            else:\n")
    store = racy[racy.index("    async def set") : racy.index("\n\n\nasync def serve")]
    get = store[store.index("    def get") : store.index("    async def cas")]
    locked = racy.replace(store, get + methods(LOCKED).rstrip())
    locked = locked.replace("disk, {}", "disk, {}\n        self.lock = asyncio.Lock()")
    result = run(pytester, {"racy": racy, "locked": locked}, test, "--rate=500", "--time-limit=3")
    assert verdicts(result) == {"racy.py::test_kv[none]": "FAILED", "locked.py::test_kv[none]": "PASSED"}


@pytest.mark.long
def test_the_job_queue_of_the_ready_made_workload_loses_jobs_in_a_kill_alone(pytester: pytest.Pytester) -> None:
    page = (GUIDE.parent / "concepts" / "workloads.md").read_text()
    (test,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (command,) = re.findall(r"```sh\npytest test_jobs.py (.*?)\n```", page, re.DOTALL)
    pytester.makepyfile(test_jobs=test)
    fixed = ("--nemesis=none", "-p", "no:xdist", "-p", "no:randomly", "--reports=never", "-rA")
    result = pytester.runpytest_subprocess(*command.split(), *fixed)
    assert verdicts(result) == {"jobs.py::test_jobs[kill]": "FAILED", "jobs.py::test_jobs[none]": "PASSED"}
    claims = re.findall(r"^FAIL queue-lost .*: .*$", page, re.MULTILINE)
    assert claims
    result.stdout.fnmatch_lines([claims[0].replace("[", "[[]")])
