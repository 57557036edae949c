"""Scenes of the group anomalies. Each uses up two generations and ends with a commit.

The first generation has members of the scene only. Members that join afterwards find the second one.
"""

from dataclasses import dataclass
from typing import Final

from assay.harness.core.operation import Effect
from assay.harness.synthetic.anomaly_template import Scene, SceneEvent, SceneStep
from assay.harness.synthetic.register_scenes import LAST
from assay.harness.synthetic.timeline import SCENE_SLOTS
from assay.harness.synthetic.values import compute_offset_of

GENERATIONS: Final = 2
"""Generations that a scene uses up."""

LONG: Final = 48_000_000_000
"""Nanoseconds that the scene of an orphan lasts: well beyond the default deadline for rebalances in contracts."""


@dataclass(frozen=True, kw_only=True)
class GroupScene(Scene):
    """A scene of a group. ``partitions``: further partitions, which only the scene uses and which are empty."""

    partitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupSceneBuilder:
    """A group, one of its partitions, and the generation that the scene begins."""

    group: str
    partition: str
    generation: int

    def enter(self, owner: str, begin: int) -> SceneStep:
        effect = Effect("acquire", self.partition, generation=self.generation, owner=owner, group=self.group)
        return SceneStep("enter", begin, begin + 1, (effect,))

    def commit(self, generation: int, begin: int) -> SceneStep:
        """Commits ``LAST``, which is the committed value after every scene."""
        key = f"{self.group}/{self.partition}"
        effect = Effect(
            "commit", key, position=compute_offset_of(LAST), value=LAST, generation=generation, group=self.group
        )
        return SceneStep("commit", begin, begin + 1, (effect,))


def build_group_scene(anomaly: str, at: GroupSceneBuilder) -> GroupScene:
    if anomaly == "orphaned-partition":
        return _build_orphaned_partition(at)
    lease, enter = f"{at.partition}-lock", at.enter("scene-a", 0)
    key, steps, value = {
        "zombie-commit": (at.group, (enter, at.commit(at.generation - 1, 2)), at.generation),
        "double-ownership": (
            at.partition, (enter, at.enter("scene-b", 2), at.commit(at.generation, 4)), at.generation
        ),
        "fencing-violation": (
            lease,
            (
                enter,
                SceneStep("acquire", 2, 3, (Effect("acquire", lease, token=41, owner="scene-b"),)),
                SceneStep("guarded", 4, 5, (Effect("guarded", lease, token=41, owner="scene-b"),)),
                SceneStep("acquire", 6, 7, (Effect("acquire", lease, token=42, owner="scene-c"),)),
                SceneStep("guarded", 8, 9, (Effect("guarded", lease, token=41, owner="scene-b"),)),
                at.commit(at.generation, 10),
            ),
            42,
        ),
        "generation-reuse": (at.group, (at.enter("scene-a", 1), at.commit(at.generation, 4)), at.generation),
    }[anomaly]  # fmt: skip
    # Two coordinators store the same generation, each for different members.
    events = tuple(
        SceneEvent("group-generation", begin, node, key=at.group, epoch=at.generation)
        for begin, node in ((0, "n1"), (3, "n2"))
        if anomaly == "generation-reuse"
    )
    return GroupScene(key=key, about=at.group, steps=steps, events=events, value=value, takes=GENERATIONS)


def _build_orphaned_partition(at: GroupSceneBuilder) -> GroupScene:
    """Returns a scene with a separate group of two members and two partitions. A partition is never reassigned."""
    group, topic = f"{at.group}-audit", f"{at.partition}-audit"
    orphan, other = f"{topic}-0", f"{topic}-1"

    def hold(kind: str, key: str, member: int) -> Effect:
        return Effect(kind, key, generation=1, owner=f"scene-{'ab'[member]}", group=group, assignment=1)

    def poll(begin: int) -> SceneStep:
        effects = tuple(
            Effect(kind, other, position=0, group=group, assignment=1) for kind in ("observe-begin", "observe-end")
        )
        return SceneStep("poll", begin, begin + 1, effects, process=1)

    last = SCENE_SLOTS - 4
    steps = (
        SceneStep("enter", 0, 1, (hold("acquire", orphan, 0),), process=0),
        SceneStep("enter", 2, 3, (hold("acquire", other, 1),), process=1),
        SceneStep("poll", 4, 5, (hold("release", orphan, 0),), process=0),
        *(poll(begin) for begin in range(6, last, 4)),
        SceneStep("poll", last, last + 1, (Effect("idle", group, group=group),), process=0),
        at.commit(at.generation, last + 2),
    )
    return GroupScene(
        key=orphan, about=group, steps=steps, takes=GENERATIONS, lasts=LONG, quiet=True, partitions=(orphan, other)
    )
