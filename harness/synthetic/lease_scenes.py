"""One scene for each anomaly of leases. The first token of a scene is the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from assay.harness.core.operation import Effect
from assay.harness.synthetic.scene import Opening, Scene, SceneStep


def _step(f: str, lease: str, token: int | None, owner: str, begin: int) -> SceneStep:
    """Without a token, under a lease that has none."""
    effect = Effect(f, lease, epoch=token, owner=f"scene-{owner}", assignment=token or 1)
    process = ord(owner) - ord("a")
    return SceneStep(f, begin, begin + 1, (effect,), process=process, argument=None if f == "acquire" else token)


def _fencing_violation(at: Opening) -> Scene:
    """What is done under a token is accepted, after a newer one was given."""
    old, new = at.count + 1, at.count + 2
    steps = (
        _step("acquire", at.key, old, "a", 0),
        _step("guarded", at.key, old, "a", 2),
        _step("acquire", at.key, new, "b", 4),
        _step("guarded", at.key, old, "a", 6),
    )
    return Scene(key=at.key, steps=steps, value=new, takes=2)


def _double_ownership(at: Opening) -> Scene:
    """Two owners are given one token; or, in every second slot, two hold at once a lease that has none."""
    if at.slot % 2:
        lease = f"{at.key}-lock"
        steps = tuple(
            _step(f, lease, None, owner, 2 * turn)
            for turn, (f, owner) in enumerate((("acquire", "a"), ("acquire", "b"), ("renew", "a"), ("renew", "b")))
        )
        return Scene(key=lease, steps=steps)
    token = at.count + 1
    steps = (_step("acquire", at.key, token, "a", 0), _step("acquire", at.key, token, "b", 2))
    return Scene(key=at.key, steps=steps, value=token, takes=1)


LEASE_SCENES: Final[Mapping[str, Callable[[Opening], Scene]]] = {
    "fencing-violation": _fencing_violation,
    "double-ownership": _double_ownership,
}
"""Anomaly -> its scene."""
