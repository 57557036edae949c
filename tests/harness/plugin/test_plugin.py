"""The plugin as a user meets it: options, ids, header, outcomes."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cluster.node import NodeError
from assay.harness.run.attempt import Attempt

pytestmark = pytest.mark.slow

SIM = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--cluster=sim", "--nodes=1")
NO_PAGE = "--reports=never"


def collected(project: pytest.Pytester, *options: str) -> list[str]:
    result = project.runpytest_inprocess(*SIM, "--collect-only", "-q", *options)
    return [line for line in result.outlines if line.startswith("test_file.py::")]


def test_ids_are_sorted_stable_and_say_the_faults(toy_project: pytest.Pytester) -> None:
    options = ("--nemesis=stop", "--nemesis=partition,kill", "--nemesis=none", "--nemesis=kill,partition", "--nodes=3")
    expected = [f"test_file.py::test_toy[{name}]" for name in ("kill+partition", "none", "stop")]
    assert collected(toy_project, *options) == expected
    assert collected(toy_project, *reversed(options)) == expected


def test_repetitions_are_numbered_and_hold_no_seed(toy_project: pytest.Pytester) -> None:
    assert collected(toy_project, "--nemesis=stop", "--repeat=3", "--seed=9") == [
        f"test_file.py::test_toy[stop-{number}]" for number in (1, 2, 3)
    ]


def test_mixes_stand_behind_the_faults_in_an_id_and_a_list_of_them_runs_nothing(toy_project: pytest.Pytester) -> None:
    file = toy_project.path / "test_file.py"
    mixes = "mixes=[WorkloadMix(name, 'more of ' + name) for name in ('sends', 'polls')]"
    text = file.read_text().replace("(*LOG_ANOMALIES))", f"(*LOG_ANOMALIES), {mixes})")
    file.write_text("from assay import WorkloadMix\n" + text)
    options = ("--nemesis=kill", "--workload-mix=all", "--workload-mix=none", "--workload-mix=sends,polls")
    assert collected(toy_project, *options, "--repeat=2") == [
        f"test_file.py::test_toy[{name}-{number}]"
        for name in ("kill", "kill+polls", "kill+polls+sends", "kill+sends")
        for number in (1, 2)
    ]
    listed = toy_project.runpytest_inprocess(*SIM, "--workload-mix-list")
    listed.stdout.fnmatch_lines(["polls  more of polls", "       test_toy", "sends  more of sends"])
    listed.assert_outcomes()
    assert listed.ret == 0


def test_without_an_engine_a_docker_cluster_is_refused_before_anything_is_built(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    result = toy_project.runpytest_inprocess(*SIM, "--cluster=docker")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --cluster=docker: no Docker engine answers: *unset DOCKER_HOST*--cluster=sim"])
    assert collected(toy_project, "--cluster=docker") == ["test_file.py::test_toy[none]"]


def test_a_chosen_engine_that_does_not_answer_is_not_replaced_by_the_simulation(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its green run would be taken for one in Docker."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    result = toy_project.runpytest_inprocess(*(word for word in SIM if not word.startswith("--cluster")))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: no Docker engine answers: *nonexistent*DOCKER_HOST*give --cluster=sim for the simulation"]
    )


def test_a_terminal_shows_a_live_line_during_a_run(toy_project: pytest.Pytester) -> None:
    """The line bypasses pytest's capturing, although output is captured when the console is made."""
    own_end, terminal = pty.openpty()
    session = subprocess.Popen(
        [sys.executable, "-m", "pytest", *SIM, NO_PAGE, "--time-limit=2"],
        cwd=toy_project.path,
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    with session, os.fdopen(own_end, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # EIO at the end
        while data := screen.read(4096):
            shown += data
    assert session.returncode == 0, shown.decode()
    assert re.search(rb"\r\x1b\[2Kmain +\d\.\d s  ok \d+ ", shown), shown.decode()


def test_without_options_there_is_one_test_without_faults(toy_project: pytest.Pytester) -> None:
    assert collected(toy_project) == ["test_file.py::test_toy[none]"]


@pytest.mark.parametrize(
    ("option", "recorded"),
    [
        ("--nemesis=kil", "no fault 'kil'; did you mean kill?"),
        ("--nemesis=none,kill", "none cannot be combined"),
        ("--nemesis-target=no one", "unknown target 'no one'"),
        ("--store=", "--store= is empty; give a path"),
        ("--replay=", "--replay= is empty; give a path"),
        ("--time-limit=x", "--time-limit='x' is not a number of seconds"),
        ("--cluster=moon", "--cluster='moon' is not one of docker, sim, ssh, attach"),
        ("--cluster=ssh", "hosts.toml: write it (docs/guide/hosts.md), or name another with --hosts"),
        ("--hosts=mine.toml", "--hosts=mine.toml needs --cluster=ssh or --cluster=attach"),
        ("--cluster=attach", "--cluster=attach: there is no "),
        ("--concurrency=lots", "--concurrency='lots'"),
        ("--seed=1.5", "--seed='1.5' is not a whole number"),
        ("--defect=rust", "toy has no such defect; its defects are: forgetful"),
        ("--workload-mix=x", "test_toy does not take the mix 'x'; it takes: none"),
        ("--set=a=b", "--set=a=b: toy has no settings"),
        ("--watch", "--watch and --fail-fast are not for the simulation"),
        ("--fail-fast", "--watch and --fail-fast are not for the simulation"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_names_it(
    toy_project: pytest.Pytester, option: str, recorded: str
) -> None:
    result = toy_project.runpytest_inprocess(*SIM, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert recorded in "\n".join([*result.outlines, *result.errlines])


def test_a_fault_for_which_the_system_lacks_the_role_is_skipped_unless_no_test_remains(
    toy_project: pytest.Pytester,
) -> None:
    alone = toy_project.runpytest_inprocess(*SIM, "--nemesis=partition-from-zookeeper")
    assert alone.ret == pytest.ExitCode.USAGE_ERROR
    assert "needs a node of role zookeeper, which toy lacks" in "\n".join([*alone.outlines, *alone.errlines])
    both = toy_project.runpytest_inprocess(
        *SIM, "--nemesis=partition-from-zookeeper", "--nemesis=none", "--time-limit=0.5", NO_PAGE, "-rs"
    )
    both.assert_outcomes(passed=1, skipped=1)
    both.stdout.fnmatch_lines(["*needs a node of role zookeeper*"])


def test_a_system_that_declares_one_node_needs_no_option_and_refuses_others(toy_project: pytest.Pytester) -> None:
    file, sim = toy_project.path / "test_file.py", SIM[:-1]
    file.write_text(file.read_text().replace("SYSTEM = ToySystem()", "SYSTEM = ToySystem()\nCOUNTS = {'broker': 1}"))
    file.write_text(file.read_text().replace("@experiment(", "@experiment(node_counts=COUNTS, "))
    options = ("--seed=6", "--time-limit=0.5", NO_PAGE, "--concurrency=3n")
    toy_project.runpytest_inprocess(*sim, *options).assert_outcomes(passed=1)
    described = json.loads((toy_project.path / "store/latest/settings.json").read_text())
    assert described["nodes"] == {"n1": "broker"}
    assert described["settings"]["concurrency"] == 3
    refused = toy_project.runpytest_inprocess(*sim, *options, "--nodes=3")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    said = "\n".join([*refused.outlines, *refused.errlines])
    assert "--nodes=3: toy can have 1 node of the role broker; leave --nodes out" in said
    file.write_text(file.read_text().replace("{'broker': 1}", "{'broker': 0}"))
    wrong = toy_project.runpytest_inprocess(*sim, *options)
    assert "node_counts of the experiment has 0 for broker" in "\n".join(wrong.outlines)


def test_a_time_limit_into_which_no_fault_fits_is_a_usage_error(toy_project: pytest.Pytester) -> None:
    result = toy_project.runpytest_inprocess(*SIM, "--nemesis=kill", "--time-limit=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "raise --time-limit or lower --nemesis-interval" in "\n".join([*result.outlines, *result.errlines])


def test_the_header_tells_cluster_and_seed(toy_project: pytest.Pytester) -> None:
    result = toy_project.runpytest_inprocess(*SIM, "--collect-only", "--seed=77")
    result.stdout.fnmatch_lines(["assay: cluster sim, seed 77"])


def test_the_list_of_faults_is_printed_and_nothing_is_run(toy_project: pytest.Pytester) -> None:
    result = toy_project.runpytest_inprocess(*SIM, "--nemesis-list")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["none *", "kill *", "partition *"])


def test_a_pass_leaves_a_run_that_can_be_repeated_to_the_byte(toy_project: pytest.Pytester) -> None:
    for reports in ("never", "all"):
        result = toy_project.runpytest_inprocess(*SIM, "--seed=5", "--time-limit=0.5", f"--reports={reports}")
        result.assert_outcomes(passed=1)
        result.stdout.re_match_lines(
            [r"assay: a run passed, of \d+ operations \(\d+ ok\), looked at by [1-9]\d* checks: .*store/"]
        )
    runs = sorted(toy_project.path.glob("store/test_file-test_toy-none/2*"))
    infos = [json.loads((run / "run.json").read_text()) for run in runs]
    assert len(infos) == 2
    assert infos[0]["digest"] == infos[1]["digest"]
    assert [info["status"] for info in infos] == ["finished"] * 2
    assert (toy_project.path / "store" / "latest").resolve() == runs[1]
    for name in ("settings.json", "schedule.json", "verdict.json", "report.html", "history/ops"):
        assert (runs[1] / name).exists(), name
    other = toy_project.runpytest_inprocess(*SIM, "--seed=6", "--time-limit=0.5", NO_PAGE)
    other.assert_outcomes(passed=1)
    assert json.loads((toy_project.path / "store/latest/run.json").read_text())["digest"] != infos[0]["digest"]


def test_a_defect_makes_it_red_and_the_text_repeats_it(toy_project: pytest.Pytester) -> None:
    options = ("--time-limit=0.5", "--defect=forgetful", "--repeat=2", "--seed=5")
    result = toy_project.runpytest_inprocess(*SIM, *options, NO_PAGE, "--rate=100")
    result.assert_outcomes(failed=2)
    text = section(result.outlines, "test_toy[none-2]")
    assert text[0].startswith("FAIL ")
    assert len(text) <= 25
    command = next(line for line in text if line.startswith("repeat: ")).removeprefix("repeat: ").split()
    again = toy_project.runpytest_inprocess("-p", "no:cacheprovider", *command[1:])
    again.assert_outcomes(failed=1)
    digest = [line for line in text if line.startswith("seed: ")]
    assert digest == [line for line in section(again.outlines, "test_toy[none]") if line.startswith("seed: ")]


def test_a_run_that_proves_nothing_fails_as_unknown(toy_project: pytest.Pytester) -> None:
    test_file = toy_project.path / "test_file.py"
    test_file.write_text(re.sub(r"return traffic.*", "return None", test_file.read_text()))
    test_file.write_text(test_file.read_text().replace("return None", "return phases()"))
    result = toy_project.runpytest_inprocess(*SIM, "--time-limit=0.5")
    result.assert_outcomes(failed=1)
    assert section(result.outlines, "test_toy[none]")[0].startswith("UNKNOWN: the history is empty")
    assert (toy_project.path / "store/latest/report.html").exists(), "without an option"


def test_a_cluster_that_does_not_start_is_an_error_not_a_failure(toy_project: pytest.Pytester) -> None:
    test_file = toy_project.path / "test_file.py"
    test_file.write_text(test_file.read_text().replace("ToySystem()", "ToySystem(broken=True)"))
    result = toy_project.runpytest_inprocess(*SIM)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the cluster did not start: n1 (broker)*"])
    assert json.loads((toy_project.path / "store/latest/run.json").read_text())["status"] == "error"


@pytest.mark.parametrize(
    ("written", "instead", "reported"),
    [
        ("return traffic", "traffic", "test_toy returned None, not a generator: a `return` is missing"),
        (
            "forbid(*LOG_ANOMALIES)",
            "forbid('stale-raed')",
            "test_toy: there is no anomaly 'stale-raed'; did you mean stale-read?",
        ),
        ("forbid(*LOG_ANOMALIES)", "forbid().tolerate('duplicat')", "no anomaly 'duplicat'; did you mean duplicate?"),
        (
            "forbid(*LOG_ANOMALIES)",
            "forbid(), model='nix'",
            "no model 'nix'; known here: register, *pytest_assay_models*",
        ),
    ],
)
def test_what_a_test_has_wrong_is_its_own_error_before_there_is_a_cluster(
    toy_project: pytest.Pytester, written: str, instead: str, reported: str
) -> None:
    test_file = toy_project.path / "test_file.py"
    test_file.write_text(test_file.read_text().replace(written, instead))
    toy_project.makepyfile(test_other="def test_other(): ...")
    result = toy_project.runpytest_inprocess(*SIM, "--time-limit=0.5")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([f"*{reported}*"])
    result.stdout.no_fnmatch_line("*another exception*")
    assert not list(toy_project.path.glob("store/*/*/settings.json")), "no cluster was started"


def test_a_bug_in_ready_is_named_with_the_users_file_and_line(toy_project: pytest.Pytester) -> None:
    system = toy_project.path / "toy_log.py"
    system.write_text(system.read_text().replace("        if self.broken:\n", "        raise KeyError('oops')\n", 1))
    system.write_text(system.read_text().replace("            return False\n        try:", "        try:", 1))
    sys.modules.pop("toy_log", None)  # another test of this process may have left its own
    result = toy_project.runpytest_inprocess(*SIM)
    result.assert_outcomes(errors=1)
    result.stdout.re_match_lines(
        [r".*the cluster did not start: .*n1 .*ready\(\) raised KeyError: 'oops' at toy_log.py:\d+"]
    )


@pytest.mark.alone
def test_the_first_interrupt_stops_checks_and_reports_what_there_is(toy_project: pytest.Pytester) -> None:
    interrupt_at(toy_project, 200)
    result = toy_project.runpytest_inprocess(*SIM, "--repeat=2")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(failed=1)
    assert section(result.outlines, "test_toy[none-1]")[0] == "UNKNOWN: the run was interrupted"
    run = toy_project.path / "store" / "latest"
    info = json.loads((run / "run.json").read_text())
    assert (info["status"], info["verdict"]) == ("interrupted", "unknown")
    assert (run / "report.html").exists()
    assert json.loads((run / "verdict.json").read_text())["operations"] >= 200


@pytest.mark.alone
def test_an_interrupt_ends_the_session_also_where_the_cluster_cannot_be_taken_away(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(self: Attempt) -> None:
        whole(self)
        raise NodeError("the engine is gone")

    whole = Attempt.tear_down
    monkeypatch.setattr(Attempt, "tear_down", stuck)
    interrupt_at(toy_project, 200)
    result = toy_project.runpytest_inprocess(*SIM, NO_PAGE, "--repeat=3")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(failed=1, errors=1)


def interrupt_at(project: pytest.Pytester, *operations: int) -> None:
    """Ctrl-C from inside the client, once per number, when so many operations have been invoked."""
    toy = project.path / "toy_log.py"
    sys.modules.pop("toy_log", None)  # another test of this process may have left its own
    importlib.invalidate_caches()
    toy.write_text(
        toy.read_text()
        .replace("class ToyClient:", "import itertools, os, signal\nCOUNT = itertools.count(1)\n\n\nclass ToyClient:")
        .replace(
            "        assert operation.key is not None\n        try:",
            "        assert operation.key is not None\n"
            "        at = next(COUNT)\n"
            f"        for number in {operations!r}:\n"
            "            if number == at:\n"
            "                os.kill(os.getpid(), signal.SIGINT)\n"
            "        try:",
        )
    )


def section(lines: list[str], name: str) -> list[str]:
    """Returns what pytest printed below the heading of one failed test."""
    begin = next(number for number, line in enumerate(lines) if re.fullmatch(rf"_+ {re.escape(name)} _+", line))
    rest = lines[begin + 1 :]
    end = next(
        number for number, line in enumerate(rest) if re.match(r"(=+|_+) .* (=+|_+)$", line) or line.startswith("---")
    )
    return rest[:end]


def test_other_projects_pay_nothing_for_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("def test_one(): pass\n")
    code = (
        "import sys, pytest\n"
        "code = pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'no:hypothesispytest', '--rootdir=.'])\n"
        "heavy = {'docker', 'pyarrow', 'duckdb', 'numpy', 'paramiko', 'kazoo', 'bokeh', 'rich.live', 'msgspec'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)), code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "LOADED [] 0" in done.stdout, done.stdout


def test_of_the_package_only_tests_have_their_asserts_rewritten() -> None:
    """In the session that runs this. The others share what any Python compiles of them."""
    loaders = [
        type(importlib.import_module(f"assay.{name}").__loader__).__name__
        for name in ("checkers.check", "nemesis.schedule.catalogue", "workloads.test_log")
    ]
    assert loaders == ["SourceFileLoader", "SourceFileLoader", "AssertionRewritingHook"]
