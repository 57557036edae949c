"""A standalone cluster of Spark on loopback: a master and two workers.

Its processes come from the JARs of the pyspark package, which are all that a machine needs for it. The cluster's own
settings (executors' memory, an event log) are in ``spark-defaults.conf``, as on any cluster.
"""

from __future__ import annotations

import json
import os
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

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
START_SECONDS = 120.0
"""A machine under load takes a fourth of it."""

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""Machine code in a hurry: nothing here runs often enough for better."""

DEFAULTS = """\
spark.executor.memory {memory}
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.rolling.enabled false
spark.eventLog.dir {events}
{settings}"""


@contextmanager
def process(folder: Path, name: str, *argv: str, java: str = QUICK) -> Iterator[Path]:
    """Runs a JVM of Spark until the block ends, and yields its log. ``java``: options of it and of its executors."""
    jars = _jars()
    log = folder / f"{name}.log"
    # A worker asks for the version of Scala before it starts an executor; a distribution tells it by its folders.
    env = {
        **os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(jars.parent), "SPARK_SCALA_VERSION": "2.13",
        "SPARK_CONF_DIR": str(folder), "JAVA_TOOL_OPTIONS": java, "PYTHONPATH": str(ROOT / "src"),
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
    """Address, settings and event logs of a standalone cluster."""

    url: str
    settings: Path
    events: Path

    def asked(self, *argv: str) -> tuple[int, str, Counter[str]]:
        """Runs ``assay`` with it as Spark. Returns exit code, output, and the number of tasks by executor."""
        former = set(self.events.iterdir())
        # A process of its own: pyspark has one Spark in a process, and other tests keep theirs.
        done = subprocess.run(
            [sys.executable, "-m", "assay.harness.cli.main", *argv, "--json", f"--spark-master={self.url}"],
            cwd=self.settings, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_CONF_DIR": str(self.settings),
                 "PYSPARK_PYTHON": sys.executable, "JAVA_TOOL_OPTIONS": QUICK},
        )  # fmt: skip
        assert done.stderr == "", done.stderr
        (own,) = set(self.events.iterdir()) - former
        return done.returncode, done.stdout, tasks(own)


@contextmanager
def standalone_cluster(
    folder: Path, events: Path, *, memory: str = "512m", java: str = QUICK, settings: str = ""
) -> Iterator[Cluster]:
    """Yields a master and ``WORKERS`` workers of one core each, their files in ``folder``.

    ``memory`` is an executor's; ``settings`` are further lines of ``spark-defaults.conf``.
    """
    defaults = DEFAULTS.format(memory=memory, events=events.as_uri(), settings=settings)
    (folder / "spark-defaults.conf").write_text(defaults)
    package = "org.apache.spark.deploy"
    with process(folder, "master", f"{package}.master.Master") as log:
        url = said(log, r"spark://127\.0\.0\.1:\d+")
        worker = (f"{package}.worker.Worker", url, "--cores", "1", "--memory", memory)
        with (
            process(folder, "one", *worker, "--work-dir", str(folder / "work-one"), java=java) as one,
            process(folder, "other", *worker, "--work-dir", str(folder / "work-other"), java=java) as other,
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
