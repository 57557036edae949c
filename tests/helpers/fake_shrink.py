"""Stands in for `assay shrink` in a night: its first word says how it ends."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

act, run, own, *rest = sys.argv[1:]
assert [word.partition("=")[0] for word in rest] == ["--budget", "--replays"]
run_folder, store = Path(run), Path(own.partition("=")[2])
assert run_folder.is_dir()
(store / "test_fake" / "1").mkdir(parents=True)
(store / "test_fake" / "1" / "run.json").write_text("{}")
with (run_folder.parents[1] / "shrinks").open("a") as file:
    file.write(f"{run_folder.name}\n")
if act == "none":
    sys.exit("assay: the original run fails 0 of 4 times\nassay: none of 4 replays failed with lost-write")
if act == "wait":
    (run_folder.parents[1] / "waits").touch()
    time.sleep(600)
found = store / "found" / f"{run_folder.name}-lost-write.json"
found.parent.mkdir()
found.write_text(json.dumps({"type": "schedule", "seed": 1, "steps": [{"fault": "stop"}]}))
(store / "report.html").write_text("<!doctype html><title>small</title>")
print(f"lost-write: from 9 steps to 1\nreplay: pytest t --replay={found}\nreport: {store / 'report.html'}")
