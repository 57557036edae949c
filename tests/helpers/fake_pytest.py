"""Stands in for pytest where a test is about how a process ends. Its words are acts, done in turn; options are not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

STORE = Path(next(word.partition("=")[2] for word in sys.argv if word.startswith("--store=")))
JUDGED = {
    "tolerated": [], "findings": [], "examined": [], "unknown": [], "operations": 1, "effects": 1, "seconds": 0.1,
    "engine": "duckdb",
}  # fmt: skip


def run_folder(verdict: str | None, *anomalies: str) -> None:
    folder = STORE / "test_fake" / f"{time.time_ns()}"
    folder.mkdir(parents=True)
    info = {
        "test": "t", "status": "finished", "started": datetime.now(UTC).isoformat(), "owner": f"{os.getpid()}.0.b.0",
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
