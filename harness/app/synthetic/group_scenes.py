"""One scene for each anomaly of groups and leases. Each begins the next generation and ends with a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.app.synthetic.register_scenes import LAST
from harness.app.synthetic.scene import Scene, Step
from harness.app.synthetic.values import offset_of
from harness.core.operation import Effect


@dataclass(frozen=True)
class Place:
    """A group with one partition, and the generation that the scene begins."""

    group: str
    partition: str
    generation: int

    def enter(self, owner: str, begin: int) -> Step:
        effect = Effect("acquire", self.partition, epoch=self.generation, owner=owner, group=self.group)
        return Step("enter", begin, begin + 1, (effect,))

    def commit(self, generation: int, begin: int) -> Step:
        """Of what the group has committed after every scene."""
        key = f"{self.group}/{self.partition}"
        effect = Effect("commit", key, position=offset_of(LAST), value=LAST, epoch=generation, group=self.group)
        return Step("commit", begin, begin + 1, (effect,))


def _zombie_commit(at: Place) -> Scene:
    steps = (at.enter("scene-a", 0), at.commit(at.generation - 1, 2))
    return Scene(key=at.group, steps=steps, value=at.generation, takes=1)


def _double_ownership(at: Place) -> Scene:
    steps = (at.enter("scene-a", 0), at.enter("scene-b", 2), at.commit(at.generation, 4))
    return Scene(key=at.partition, about=at.group, steps=steps, value=at.generation, takes=1)


def _fencing_violation(at: Place) -> Scene:
    lease = f"{at.partition}-lock"
    steps = (
        at.enter("scene-a", 0),
        Step("acquire", 2, 3, (Effect("acquire", lease, epoch=41, owner="scene-b"),)),
        Step("guarded", 4, 5, (Effect("guarded", lease, epoch=41, owner="scene-b"),)),
        Step("acquire", 6, 7, (Effect("acquire", lease, epoch=42, owner="scene-c"),)),
        Step("guarded", 8, 9, (Effect("guarded", lease, epoch=41, owner="scene-b"),)),
        at.commit(at.generation, 10),
    )
    return Scene(key=lease, about=at.group, steps=steps, value=42, takes=1)


GROUP_SCENES: Final[Mapping[str, Callable[[Place], Scene]]] = {
    "zombie-commit": _zombie_commit,
    "double-ownership": _double_ownership,
    "fencing-violation": _fencing_violation,
}
"""Anomaly -> its scene."""
