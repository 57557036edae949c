"""Time limits of pytest-timeout hold in a run; no plugin makes a failed run a pass; unknown is no reason to stop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[3]
SIM = ("--cluster=sim", "--seed=7", "--time-limit=2", "--rate=100", "--nodes=1", "--reports=never")
ALARM = "signal.raise_signal(signal.SIGALRM)"
PLACES = {
    "a task of the harness": (
        "    async def invoke(self, operation: Operation) -> Completion:\n",
        f"        {ALARM}\n",
    ),
    "a task of the system": ('        log = self.logs.setdefault(request["key"], [])\n', f"        {ALARM}\n"),
    "a callback": (
        '        log = self.logs.setdefault(request["key"], [])\n',
        "        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGALRM)\n",
    ),
    "code that swallows everything": (
        '        log = self.logs.setdefault(request["key"], [])\n',
        f"        try:\n            {ALARM}\n        except BaseException:\n            pass\n",
    ),
    "the start of the cluster": ("    async def set_up(self, cluster: Cluster) -> None: ...\n", ""),
    "the removal of the cluster": ("", ""),
}


@pytest.mark.alone
@pytest.mark.parametrize("place", PLACES)
def test_a_time_limit_holds_wherever_a_run_stands(toy_project: pytest.Pytester, place: str) -> None:
    """The alarm comes at an exact place, instead of after some time."""
    pytest.importorskip("pytest_timeout")
    toy = toy_project.path / "toy_log.py"
    sys.modules.pop("toy_log", None)  # another test of this process may have left its own
    text = toy.read_text().replace("import asyncio\n", "import asyncio\nimport signal\n", 1)
    line, more = PLACES[place]
    if place == "the start of the cluster":
        text = text.replace(line, f"{line.removesuffix(' ...' + chr(10))}\n        {ALARM}\n")
    elif line:
        assert line in text
        text = text.replace(line, line + more)
    else:
        toy_project.makeconftest(
            "import signal\nfrom assay.harness.run.trial import Trial\nwhole = Trial.tear_down\n\n"
            "async def tear_down(self, **given):\n    signal.raise_signal(signal.SIGALRM)\n"
            "    await whole(self, **given)\n    print('TAKEN AWAY')\n\n"
            "Trial.tear_down = tear_down\n"
        )
    toy.write_text(text)
    result = toy_project.runpytest_subprocess("-p", "no:asyncio", *SIM, "--timeout=600", "-s")
    expected = {"the start of the cluster": {"errors": 1}, "the removal of the cluster": {"passed": 1, "errors": 1}}
    result.assert_outcomes(**expected.get(place, {"failed": 1}))
    result.stdout.fnmatch_lines(["*Timeout (>600.0s) from pytest-timeout*"])
    assert ("TAKEN AWAY" in result.stdout.str()) == (place == "the removal of the cluster")
    if place.startswith("a "):
        info = json.loads((toy_project.path / "store/latest/run.json").read_text())
        assert (info["status"], info["verdict"]) == ("error", None)


def test_pytest_asyncio_does_not_keep_this_checkout_from_being_collected() -> None:
    pytest.importorskip("pytest_asyncio")
    command = [sys.executable, "-m", "pytest", "workloads/test_log.py", "--cluster=sim", "--collect-only", "-q"]
    done = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_log[none]" in done.stdout


@pytest.mark.parametrize("option", ["--reruns=2", "--force-reruns=1"])
def test_running_failures_again_is_refused(toy_project: pytest.Pytester, option: str) -> None:
    pytest.importorskip("pytest_rerunfailures")
    refused(toy_project.runpytest_inprocess(*SIM, option), option.partition("=")[0])


def test_so_it_is_by_a_mark_or_a_configuration_file(toy_project: pytest.Pytester) -> None:
    pytest.importorskip("pytest_rerunfailures")
    file = toy_project.path / "test_file.py"
    plain = file.read_text()
    toy_project.makeini("[pytest]\npythonpath = .\nreruns = 2\n")
    refused(toy_project.runpytest_inprocess(*SIM), "reruns in the configuration file")
    spared = "import pytest\n" + plain.replace("@experiment(", "@pytest.mark.flaky(reruns=0)\n@experiment(")
    file.write_text(spared)
    toy_project.runpytest_inprocess(*SIM, "--defect=forgetful").assert_outcomes(failed=1)
    for mark in ("flaky", "flaky(reruns=3)", "flaky(2)", "flaky(max_runs=2)"):
        file.write_text(spared.replace("flaky(reruns=0)", mark))
        refused(
            toy_project.runpytest_inprocess(*SIM, "-p", "no:rerunfailures", "--override-ini=reruns=0"), "the mark flaky"
        )


def refused(result: pytest.RunResult, name: str) -> None:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = "\n".join([*result.outlines, *result.errlines])
    assert f"{name} would run test_toy[none] again after a failure" in text


def test_other_tests_may_be_run_again(pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest_rerunfailures")
    pytester.makepyfile("def test_one(): pass")
    pytester.runpytest_inprocess("--reruns=2").assert_outcomes(passed=1)


PROVES_NOTHING = ("--cluster=sim", "--seed=7", "--time-limit=0.02", "--rate=100", "--nodes=1", "--reports=never")


def test_an_unknown_verdict_is_a_failure_and_does_not_stop_a_session(toy_project: pytest.Pytester) -> None:
    for option in ("-x", "--maxfail=1"):
        result = toy_project.runpytest_inprocess(*PROVES_NOTHING, "--repeat=3", option, "--junitxml=junit.xml")
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.assert_outcomes(failed=3)
        assert 'failures="3"' in (toy_project.path / "junit.xml").read_text()
    stopped = toy_project.runpytest_inprocess(*PROVES_NOTHING, "--repeat=3", "-x", "--stop-at-unknown")
    stopped.assert_outcomes(failed=1)


@pytest.mark.parametrize("defect", [(), ("--defect=forgetful",)], ids=["passed", "failed"])
def test_junit_says_how_many_operations_of_each_kind_were_ok(toy_project: pytest.Pytester, defect: tuple[str]) -> None:
    toy_project.runpytest_inprocess(*SIM, *defect, "--junitxml=junit.xml")
    (case,) = ET.parse(toy_project.path / "junit.xml").findall(".//testcase")
    said = {str(one.get("name")): str(one.get("value")) for one in case.findall("properties/property")}
    (path,) = (toy_project.path / "store").glob("test_*/2*/verdict.json")
    kinds = json.loads(path.read_text())["kinds"]
    assert kinds
    for name, count in kinds.items():
        assert said[f"operations.{name}"].startswith(f"{count['ok']:,} ok"), said
    assert said["operations"].startswith(f"{sum(count['ok'] for count in kinds.values()):,} ok")


def test_what_was_found_stops_a_session(toy_project: pytest.Pytester) -> None:
    result = toy_project.runpytest_inprocess(*SIM, "--repeat=3", "-x", "--defect=forgetful")
    result.assert_outcomes(failed=1)


def test_workers_of_xdist_count_as_one_process_does(toy_project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    result = toy_project.runpytest_subprocess(*PROVES_NOTHING, "--repeat=3", "-x", "-n1")
    result.assert_outcomes(failed=3)
