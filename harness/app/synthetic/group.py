"""The history of correct groups: members enter new generations, commit in the present one, and fetch.

Each group has one partition, its own. A commit bears its operation's index + 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from harness.app.synthetic import rows
from harness.app.synthetic.group_scenes import GROUP_SCENES, Place
from harness.app.synthetic.plan import Plan
from harness.app.synthetic.register_scenes import LAST
from harness.app.synthetic.scene import Opening, Scene
from harness.app.synthetic.state import Latest, Tally
from harness.app.synthetic.traffic import Acts, Block, Traffic
from harness.app.synthetic.values import offset_of

ENTER: Final = 0
COMMIT: Final = 1
FETCH: Final = 2
EMPTY: Final = 0
"""Nothing committed, in the arrays; no commit bears it."""


class GroupTraffic(Traffic):
    model = "group"
    verbs = ("enter", "commit", "fetch")
    weights = (0.02, 0.48, 0.5)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._partitions = pa.array([f"orders-{number}" for number in range(plan.keys)], pa.string())
        self._committed = pa.array([f"group-{number}/orders-{number}" for number in range(plan.keys)], pa.string())
        self._members = [f"member-{number}" for number in range(plan.clients)]
        # In the first generation from the beginning, so that every commit is in one.
        self._generations = Tally(plan.keys, 1)
        self._commits = Latest(plan.keys, EMPTY)

    def stage(self, anomaly: str, at: Opening) -> Scene:
        return GROUP_SCENES[anomaly](Place(at.key, f"orders-{at.number}", at.count + 1))

    def act(self, block: Block) -> Acts:
        slots, verb, key = block.slots, block.verb, block.key
        value = np.where(block.opening, LAST, slots.index + 1)
        entered = (block.landed & (verb == ENTER)).astype(np.int64)
        before = self._generations.follow(key, entered + block.takes)
        generation = before + entered
        current, _ = self._commits.follow(key, (block.landed & (verb == COMMIT)) | block.opening, value)
        keep, groups = block.keep, rows.Named(key, self.names)
        enters = np.flatnonzero(keep & (verb == ENTER) & slots.ok)
        commits, fetches = np.flatnonzero(keep & (verb == COMMIT)), np.flatnonzero(keep & (verb == FETCH) & slots.ok)
        known = current[fetches] != EMPTY
        parts = [
            rows.Part("acquire", enters, rows.Named(key[enters], self._partitions), {
                "group": groups.at(enters),
                "epoch": generation[enters],
                "owner": rows.Named(slots.client[enters], self._members),
            }),
            rows.Part("commit", commits, rows.Named(key[commits], self._committed), {
                "group": groups.at(commits),
                "value": value[commits],
                "position": offset_of(value[commits]),
                "epoch": generation[commits],
            }),
            rows.Part("fetched", fetches, rows.Named(key[fetches], self._committed), {
                "group": groups.at(fetches),
                "value": rows.Known(current[fetches], known),
                "position": np.where(known, offset_of(current[fetches]), -1),
            }),
        ]  # fmt: skip
        return Acts(verb=verb, key=groups, parts=parts, count=before)
