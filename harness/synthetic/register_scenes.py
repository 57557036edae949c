"""Scenes of the register anomalies. Each begins and ends with a plain write, so that no other traffic matters.

A scene is about a register or about a group's committed offset, which ``commit`` writes and ``fetch`` reads.
"""

from dataclasses import dataclass
from typing import Final

from assay.harness.core.operation import Effect
from assay.harness.synthetic.anomaly_template import Scene, SceneStep
from assay.harness.synthetic.values import compute_offset_of

OWN_VALUES: Final = 1 << 40
"""First of the values in scenes; ordinary values are below."""

A, B, C, D = (OWN_VALUES + number for number in range(4))
LAST: Final = D
"""Value of the register after every scene."""


@dataclass(frozen=True)
class Register:
    key: str

    def write(self, value: int, begin: int) -> SceneStep:
        return SceneStep("write", begin, begin + 1, (Effect("register-write", self.key, value=value),), argument=value)

    def read(self, value: int, begin: int) -> SceneStep:
        return SceneStep("read", begin, begin + 1, (Effect("register-read", self.key, value=value),), result=value)

    def cas(self, expected: int, value: int, begin: int, end: int) -> SceneStep:
        effect = Effect("register-cas", self.key, value=value, expected=expected)
        return SceneStep("cas", begin, end, (effect,), argument=(expected, value))


@dataclass(frozen=True)
class CommittedOffset(Register):
    """The committed offset of a group in a partition. It is a function of the commit's number."""

    group: str

    def write(self, value: int, begin: int) -> SceneStep:
        effect = Effect("commit", self.key, position=compute_offset_of(value), value=value, group=self.group)
        return SceneStep("commit", begin, begin + 1, (effect,), argument=value)

    def read(self, value: int, begin: int) -> SceneStep:
        effect = Effect("fetched", self.key, position=compute_offset_of(value), value=value, group=self.group)
        return SceneStep("fetch", begin, begin + 1, (effect,), result=value)


def build_register_scene(anomaly: str, on: Register) -> Scene:
    """Returns the scene of an anomaly. ``lost-update`` needs CAS operations, so groups do not have it."""
    steps, value = {
        "missing-writer": ((on.write(A, 0), on.read(B, 2), on.write(D, 4)), B),
        "future-read": ((on.write(A, 0), on.read(D, 2), on.write(D, 4)), D),
        "stale-read": ((on.write(A, 0), on.write(D, 2), on.read(A, 4)), A),
        "lost-update": ((on.write(A, 0), on.cas(A, B, 2, 4), on.cas(A, C, 3, 5), on.write(D, 6)), A),
    }[anomaly]
    return Scene(key=on.key, steps=steps, value=value)
