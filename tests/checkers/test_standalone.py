"""A standalone cluster of Spark on loopback, a master and two workers: it says what one process says, and both work.

The cluster's processes come from the JARs of the pyspark package, which are all that a machine needs for it. What the
cluster says of itself (executors' memory, an event log) is in ``spark-defaults.conf``, as on any cluster.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep

import msgspec
import pytest
from linearizability_histories import history, stored, table

from checkers.contract import Contract
from checkers.engine import Engines
from checkers.judge import judge
from checkers.linearizability import MODELS, Limits
from checkers.verdict import Judgement, Verdict
from harness.app.generate import generate
from harness.app.recheck import rejudge, stored_operations
from harness.app.synthetic.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
PLANTED = ("queue-lost", "queue-duplicate")
START_SECONDS = 120.0
"""A machine under load takes a fourth of it."""

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""Machine code in a hurry: nothing here runs often enough for better."""

DEFAULTS = """\
spark.executor.memory 512m
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.rolling.enabled false
spark.eventLog.dir {events}
"""


@contextmanager
def process(folder: Path, name: str, *argv: str) -> Iterator[Path]:
    """A JVM of Spark's until the block ends; gives its log."""
    jars = _jars()
    log = folder / f"{name}.log"
    # A worker asks for the version of Scala before it starts an executor; a distribution tells it by its folders.
    env = {
        **os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(jars.parent), "SPARK_SCALA_VERSION": "2.13",
        "SPARK_CONF_DIR": str(folder), "JAVA_TOOL_OPTIONS": QUICK, "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    with log.open("wb") as output:
        running = subprocess.Popen(
            ["java", "-Xmx128m", f"-Djava.io.tmpdir={folder}", "-Dspark.master.rest.enabled=false", "-cp", f"{jars}/*",
             *argv, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"],
            stdout=output, stderr=subprocess.STDOUT, env=env, cwd=folder, start_new_session=True,
        )  # fmt: skip
    try:
        yield log
    finally:
        running.terminate()  # a worker ends its executors
        try:
            running.wait(timeout=30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def said(log: Path, pattern: str) -> str:
    """Waits until it is in the log."""
    deadline = monotonic() + START_SECONDS
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert monotonic() < deadline, f"no {pattern} in {log}:\n{log.read_text(errors='replace')[-2000:]}"
        sleep(0.1)
    return found.group()


@dataclass(frozen=True)
class Cluster:
    """What a standalone cluster can be asked by."""

    url: str
    settings: Path
    events: Path

    def check(self, history: Path, *argv: str) -> tuple[int, Judgement, Counter[str]]:
        """``assay check`` on it: the exit code, the judgement, and how many tasks each executor has done."""
        former = set(self.events.iterdir())
        # A process of its own: pyspark has one Spark in a process, and other tests keep theirs.
        done = subprocess.run(
            [sys.executable, "-m", "harness.app.command", "check", str(history), *argv, "--json",
             f"--spark-master={self.url}"],
            cwd=self.settings, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(self.settings),
                 "PYSPARK_PYTHON": sys.executable, "JAVA_TOOL_OPTIONS": QUICK},
        )  # fmt: skip
        assert done.stderr == ""
        (own,) = set(self.events.iterdir()) - former
        return done.returncode, msgspec.json.decode(done.stdout, type=Judgement), tasks(own)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One master and ``WORKERS`` workers of one core each."""
    folder, events = tmp_path_factory.mktemp("conf"), tmp_path_factory.mktemp("events")
    (folder / "spark-defaults.conf").write_text(DEFAULTS.format(events=events.as_uri()))
    package = "org.apache.spark.deploy"
    with process(folder, "master", f"{package}.master.Master") as log:
        url = said(log, r"spark://127\.0\.0\.1:\d+")
        worker = (f"{package}.worker.Worker", url, "--cores", "1", "--memory", "512m")
        with (
            process(folder, "one", *worker, "--work-dir", str(folder / "work-one")) as one,
            process(folder, "other", *worker, "--work-dir", str(folder / "work-other")) as other,
        ):
            for log in (one, other):
                said(log, "Successfully registered with master")
            yield Cluster(url, folder, events)


def _jars() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "jars"


def tasks(events: Path) -> Counter[str]:
    """How many tasks each executor has done, by its id, as the application's event log has it."""
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    ended = [line for line in lines if line["Event"] == "SparkListenerTaskEnd"]
    return Counter(line["Task Info"]["Executor ID"] for line in ended if line["Task End Reason"]["Reason"] == "Success")


def plain(judgement: Judgement) -> Judgement:
    """Apart from the engine's name and times."""
    examined = tuple(msgspec.structs.replace(each, seconds=0.0) for each in judgement.examined)
    return msgspec.structs.replace(judgement, engine="", seconds=0.0, examined=examined)


@pytest.mark.spark
@pytest.mark.long
def test_a_standalone_cluster_judges_as_duckdb_does_on_all_its_workers(tmp_path: Path, cluster: Cluster) -> None:
    folder = tmp_path / "made"
    made = generate("queue", Plan(operations=150_000, clients=20, keys=8, seed=3, plant=PLANTED), folder)
    assert made.effects > 140_000
    code, judgement, done = cluster.check(folder, "--family=queue")
    assert (code, judgement.engine, judgement.verdict) == (1, "spark", Verdict.FAIL)
    assert set(PLANTED) <= set(judgement.anomalies)
    assert plain(judgement) == plain(judge(folder / "history", Contract(family="queue")))
    assert len(done) == WORKERS, done


@pytest.mark.spark
@pytest.mark.long
def test_a_standalone_cluster_searches_as_one_process_does_on_all_its_workers(tmp_path: Path, cluster: Cluster) -> None:
    rng = random.Random("standalone")
    folder = stored(tmp_path / "history", table((str(number), history("kv", rng)) for number in range(200)))
    code, judgement, done = cluster.check(folder, "--model=kv")
    with Engines("duckdb") as engines:
        here = rejudge(stored_operations(folder), MODELS["kv"], engines, lambda *step: None, Limits())
    assert (code, judgement.verdict) == (1, Verdict.FAIL)
    assert judgement.anomalies["nonlinearizable"] > 20
    assert plain(judgement) == plain(here)
    assert len(done) == WORKERS, done
