"""Stands in for pytest where a test is about how a process ends. Its words are acts, done in turn; options are not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from assay.cluster.owner import Owner, current_owner

STORE = Path(next(word.partition("=")[2] for word in sys.argv if word.startswith("--store=")))
OWNER = current_owner()
JUDGED = {
    "tolerated": [], "findings": [], "examined": [], "unknown": [], "operations": 1, "effects": 1, "seconds": 0.1,
    "engine": "duckdb",
}  # fmt: skip


def run_folder(verdict: str | None, *anomalies: str, owner: Owner = OWNER, parent: Owner | None = None) -> None:
    folder = STORE / "test_fake" / f"{time.time_ns()}"
    folder.mkdir(parents=True)
    info = {
        "test": "t", "status": "finished", "started": datetime.now(UTC).isoformat(), "owner": str(owner),
        "parent": str(parent or ""),
        "seed": 1, "cluster": "sim", "nemesis": "none", "command": "pytest", "verdict": verdict,
    }  # fmt: skip
    (folder / "schedule.json").write_text('{"type": "run", "schedule": {"steps": []}}')
    (folder / "run.json").write_text(json.dumps(info))
    found = {"verdict": verdict, "anomalies": dict.fromkeys(anomalies, 1), "forbidden": anomalies}
    (folder / "verdict.json").write_text(json.dumps(JUDGED | found))


def until_interrupted(named: str) -> None:
    try:
        (STORE / "waits").write_text(str(os.getpid()))
        time.sleep(600)
    except KeyboardInterrupt:
        (STORE / named).touch()
        sys.exit(2)


def fill() -> None:
    with (STORE / "large").open("wb") as file:
        while True:
            file.write(bytes(65536))
            file.flush()


for word in sys.argv[1:]:
    act, _, argument = word.partition("=")
    match act:
        case "pass" | "unknown" | "none":
            run_folder(None if act == "none" else act)
        case "fail":
            run_folder("fail", argument or "lost-write")
        case "stranger":  # a process with the same id in another container
            run_folder("fail", "lost-write", owner=replace(OWNER, namespace="1"))
        case "worker":  # as a worker of pytest-xdist
            run_folder("fail", "lost-write", owner=replace(OWNER, pid=1), parent=OWNER)
        case "say":
            print(argument, flush=True)
        case "exit":
            sys.exit(int(argument))
        case "signal":
            os.kill(os.getpid(), int(argument))
        case "sleep":
            time.sleep(float(argument))
        case "wait":
            until_interrupted("healed")
        case "deaf":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGABRT, signal.SIG_IGN)
            time.sleep(600)
        case "once":  # as the act that follows says, but not in the attempts after this one
            if (STORE / "marker").exists():
                run_folder("pass")
                break
            (STORE / "marker").touch()
        case "leave":
            left = subprocess.Popen(["sleep", "600"])
            (STORE / "left").write_text(str(left.pid))
        case "fill":
            fill()
