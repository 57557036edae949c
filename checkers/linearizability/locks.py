"""Models of locks and semaphores, with ``acquire`` and ``release``.

The *owner* of a lock is the client that acquired it. Some tools name the client in the value of an operation, as
``{:client "n1", :fence 5}``. All other operations belong to the client of their process. As soon as some operation of a
key names a client, a process stands for a client only if its operations name exactly one. Otherwise the client of its
other operations is unknown. The client of an operation without a process is unknown, too. An unknown client may be any
client, so the models accept each operation that is legal for one of them.

An action is ``(f, x, y)`` (``model.Action``). Here ``f`` is the place of the verb in ``VERBS``. ``x`` is the owner in
the models that have one, and ``y`` has what the verb needs, such as the highest number of permits.

An ``acquire`` or ``release`` that ended ok with the result false was refused, which proves nothing.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from assay.checkers.linearizability.model import Action, Call, Model, ModelError, Values

ACQUIRE, RELEASE, RENEW = range(3)
VERBS: Final = ("acquire", "release", "renew")

MOST_PERMITS: Final = 2**63 - 1
"""Maximum number of permits of a ``Semaphore``, whose compiled step holds 64-bit integers."""
ANYONE: Final = -1
"""Owner of an operation whose client is unknown. Clients have numbers from 0, and process n has the number -2 - n."""


class Mutex(Model):
    """Mutex with ``acquire`` and ``release``; any process may release."""

    name = "mutex"

    def encode(self, call: Call) -> Action | None:
        verb = find_verb(self, call, VERBS[:2])
        return None if is_refused(call) else Action(verb)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        return state == f, 1 - state

    def describe(self, state: int, values: Values) -> str:
        return "held" if state else "free"


class _ClaimedOwner(NamedTuple):
    """The process of an operation, and the number of the client that its value names."""

    process: int | None
    client: int | None


class OwnedModel(Model):
    """Base class of models in which only the owner may release."""

    compiled = False

    def claim_owner(self, call: Call) -> _ClaimedOwner:
        """Returns the ``x`` of an action. Before the search, ``foresee`` replaces it by the number of the owner."""
        client = read_field("client", call.argument, call.result)
        return _ClaimedOwner(call.process, None if client is None else call.number(client))

    def foresee(self, actions: Sequence[Action], call: Sequence[int], ret: Sequence[int | None]) -> Sequence[Action]:
        """Replaces each claimed owner by a number, which depends on the clients that all actions of the key name."""
        clients: defaultdict[int | None, set[int]] = defaultdict(set)
        for action in actions:
            if isinstance(action.x, _ClaimedOwner) and action.x.client is not None:
                clients[action.x.process].add(action.x.client)
        return [
            action._replace(x=_find_owner(action.x, clients)) if isinstance(action.x, _ClaimedOwner) else action
            for action in actions
        ]


def _find_owner(claimed: _ClaimedOwner, clients: Mapping[int | None, set[int]]) -> int:
    if claimed.client is not None:
        return claimed.client
    if claimed.process is None:
        return ANYONE
    if not clients:
        return -2 - claimed.process
    of_process = clients.get(claimed.process, set())
    return next(iter(of_process)) if len(of_process) == 1 else ANYONE


class LockState(NamedTuple):
    """State of an owned lock: its owner, and how often the owner holds it."""

    owner: int | None = None
    """None if the lock is free."""
    holds: int = 0
    """How often the owner has acquired the lock."""
    fence: int | None = None
    """The lowest possible value of the latest fence; None if there was none."""
    exact: bool = False
    """Whether the owner's fence is known, and is ``fence``."""


class Terms(NamedTuple):
    """The ``y`` of an acquire: what the lock allows, and the fence that this acquire got."""

    most: float
    """How often the owner may acquire the lock before it must release it."""
    fenced: bool
    """Whether the lock gives fences: numbers that rise with each new owner."""
    fence: int | None
    """The fence that the lock returned, if it is known."""


class OwnerMutex(OwnedModel):
    """Mutex that only its owner may release, and that its owner cannot acquire again."""

    name = "owner-mutex"
    initial: ClassVar[LockState] = LockState()
    most: float = 1
    fenced: ClassVar[bool] = False

    def encode(self, call: Call) -> Action | None:
        verb = find_verb(self, call, VERBS[:2])
        if is_refused(call):
            return None
        fence = read_fence(call) if self.fenced and verb == ACQUIRE else None
        return Action(verb, self.claim_owner(call), Terms(self.most, self.fenced, fence))

    @staticmethod
    def step(state: LockState, f: int, x: int, y: Terms) -> tuple[bool, LockState]:
        if f == RELEASE:
            if not is_owner(state.owner, x):
                return False, state
            if state.holds == 1:
                return True, LockState(fence=state.fence)
            return True, state._replace(owner=_pick_known_owner(state.owner, x), holds=state.holds - 1)
        if state.owner is None:
            return _acquire_free(state, x, y)
        if not is_owner(state.owner, x) or state.holds >= y.most:
            return False, state
        again = state._replace(owner=_pick_known_owner(state.owner, x), holds=state.holds + 1)
        if y.fence is None:
            return True, again
        fits = y.fence == state.fence if state.exact else state.fence is None or y.fence >= state.fence
        return fits, again._replace(fence=y.fence, exact=True)

    def describe(self, state: LockState, values: Values) -> str:
        last = "" if state.fence is None else f", fence {'' if state.exact else 'at least '}{state.fence}"
        if state.owner is None:
            return "free" if state.fence is None else f"free, the latest fence at least {state.fence}"
        return f"held{'' if state.holds == 1 else f' {state.holds} times'} by {name_owner(state.owner, values)}{last}"


def _acquire_free(state: LockState, owner: int, terms: Terms) -> tuple[bool, LockState]:
    if not terms.fenced:
        return True, LockState(owner, 1)
    if terms.fence is None:  # the smallest fence that is possible allows the most later fences
        return True, LockState(owner, 1, None if state.fence is None else state.fence + 1)
    return state.fence is None or terms.fence > state.fence, LockState(owner, 1, terms.fence, exact=True)


class ReentrantMutex(OwnerMutex):
    """Mutex that its owner may acquire again, and must release as often. ``most``: how often; None: without limit."""

    name = "reentrant-mutex"

    def __init__(self, most: int | None = None) -> None:
        self.most = math.inf if most is None else require_count(self.name, most)


class FencedMutex(OwnerMutex):
    """Owner mutex whose ``acquire`` returns a fence, which is higher than every fence before."""

    name = "fenced-mutex"
    fenced = True


class FencedReentrantMutex(ReentrantMutex):
    """Reentrant mutex with fences. The fence stays the same until the owner has released the lock completely."""

    name = "fenced-reentrant-mutex"
    fenced = True


class Semaphore(Model):
    """Semaphore of ``permits`` permits; any process may release. The argument of an operation is their number, or nil
    for one permit."""

    name = "semaphore"
    needs_arguments = "2"  # an example, for the error of a name without arguments: semaphore(2)

    def __init__(self, permits: int = 1) -> None:
        self.permits = require_count(self.name, permits, MOST_PERMITS)

    def encode(self, call: Call) -> Action | None:
        verb = find_verb(self, call, VERBS[:2])
        return None if is_refused(call) else Action(verb, read_permits(self.name, call, self.permits), self.permits)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 0:
            return (True, state + x) if x <= y - state else (False, state)
        return state >= x, state - x

    def describe(self, state: int, values: Values) -> str:
        return f"{state} of {self.permits} held"


Holders = tuple[tuple[int, int], ...]
"""Owners with the numbers of their permits, sorted by owner."""


class OwnerSemaphore(OwnedModel):
    """Semaphore of ``permits`` permits; an owner can release only permits that it has acquired."""

    name = "owner-semaphore"
    needs_arguments = "2"
    initial: ClassVar[Holders] = ()

    def __init__(self, permits: int = 1) -> None:
        self.permits = require_count(self.name, permits)

    def encode(self, call: Call) -> Action | None:
        verb = find_verb(self, call, VERBS[:2])
        if is_refused(call):
            return None
        return Action(verb, self.claim_owner(call), (read_permits(self.name, call, self.permits), self.permits))

    @staticmethod
    def step(state: Holders, f: int, x: int, y: tuple[int, int]) -> tuple[bool, Holders] | set[Holders]:
        asked, permits = y
        held = dict(state)
        if f == ACQUIRE:
            return sum(held.values()) + asked <= permits, _apply_changes(held, {x: asked})
        if x == ANYONE:
            return _release_anyones(held, asked)
        own = min(asked, held.get(x, 0))  # an unknown owner's permits stay for later, because anyone can release them
        fits = own + held.get(ANYONE, 0) >= asked
        return fits, _apply_changes(held, {x: -own, ANYONE: own - asked}) if fits else state

    def describe(self, state: Holders, values: Values) -> str:
        held = ", ".join(f"{count} by {name_owner(owner, values)}" for owner, count in state)
        return f"{sum(count for _, count in state)} of {self.permits} held{f': {held}' if held else ''}"


def _apply_changes(held: dict[int, int], changes: dict[int, int]) -> Holders:
    changed = {owner: held.get(owner, 0) + changes.get(owner, 0) for owner in (*held, *changes)}
    return tuple(sorted((owner, count) for owner, count in changed.items() if count))


def _release_anyones(held: dict[int, int], asked: int) -> set[Holders]:
    """Returns the states after an unknown owner released permits: it may be any one of the owners."""
    unknown = held.get(ANYONE, 0)
    owners = [owner for owner, count in held.items() if owner != ANYONE and count + unknown >= asked]
    states = {
        _apply_changes(held, {one: -min(asked, held[one]), ANYONE: min(asked, held[one]) - asked}) for one in owners
    }
    return states | ({_apply_changes(held, {ANYONE: -asked})} if unknown >= asked else set())


class Lease(NamedTuple):
    """State of a lease."""

    owner: int | None = None
    since: int = -(2**63)
    """The earliest possible time of the latest operation, in nanoseconds."""


class Window(NamedTuple):
    """The ``y`` of an operation on a lease, in nanoseconds."""

    call: int
    ret: float
    lasts: int
    """The duration of a lease."""


class LeaseMutex(OwnedModel):
    """Mutex that its owner keeps for at least ``seconds`` after ``acquire`` and after each ``renew``.

    After that time the lock may free itself at any moment. Times are those of the history. Each operation takes effect
    at one moment between its call and its return. The model assumes the earliest possible moment, which excludes no
    order: the lock is then free the earliest, and no rule requires an operation soon after another.
    """

    name = "lease-mutex"
    needs_arguments = "10"
    needs_times = True
    initial: ClassVar[Lease] = Lease()

    def __init__(self, seconds: float = 1) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
            raise ModelError(f"a lease lasts a number of seconds, not {seconds!r}")
        self.lasts = round(seconds * 1e9)

    def encode(self, call: Call) -> Action | None:
        verb = find_verb(self, call, VERBS)
        if is_refused(call):
            return None
        ret = math.inf if call.return_time is None else call.return_time
        return Action(verb, self.claim_owner(call), Window(call.call_time, ret, self.lasts))

    @staticmethod
    def step(state: Lease, f: int, x: int, y: Window) -> tuple[bool, Lease]:
        moment = max(state.since, y.call)
        if f == ACQUIRE:
            if state.owner is not None:
                moment = max(moment, state.since + y.lasts)
            return moment <= y.ret, Lease(x, moment)
        fits = is_owner(state.owner, x) and moment <= y.ret
        return fits, Lease(None, moment) if f == RELEASE else Lease(state.owner, moment)

    def describe(self, state: Lease, values: Values) -> str:
        since = f"since {state.since / 1e9:.9g} s or later"
        return "free" if state.owner is None else f"held {since} by {name_owner(state.owner, values)}"


def find_verb(model: Model, call: Call, verbs: Sequence[str]) -> int:
    """Returns the position of the operation in ``verbs``. Raises ``ModelError`` if it is none of them."""
    if call.f not in verbs:
        raise model.unknown(call)
    return verbs.index(call.f)


def is_refused(call: Call) -> bool:
    """Returns whether the operation ended ok, but had no effect."""
    return call.known and call.result is False


def is_owner(owner: int | None, other: int) -> bool:
    """Returns whether the owner of a lock can be ``other``."""
    return owner is not None and (owner == other or ANYONE in (owner, other))


def _pick_known_owner(owner: int | None, other: int) -> int:
    """Returns the one of two possible owners that is known."""
    return other if owner is None or owner == ANYONE else owner


def name_owner(owner: int, values: Values) -> str:
    """Returns an owner in words."""
    if owner == ANYONE:
        return "an unknown client"
    return f"client {values.text(owner)}" if owner >= 0 else f"process {-2 - owner}"


def read_field(name: str, *given: Any) -> Any:
    """Returns the field of the first value that is a map with this field, in JSON or from EDN; None without any."""
    for value in given:
        if isinstance(value, dict):
            if name in value:
                return value[name]
            for key, field in value.get("map", ()) if isinstance(value.get("map"), list) else ():
                if key in (name, {"keyword": name}):
                    return field
    return None


def read_fence(call: Call) -> int | None:
    """Returns the fence that an acquire returned, as a number or in a map. Raises ``ModelError`` for other fences."""
    if not call.known:
        return None
    fence = read_field("fence", call.result) if isinstance(call.result, dict) else call.result
    if fence is True or (isinstance(fence, str) and fence == call.argument):
        return None
    if fence is not None and type(fence) is not int:
        raise ModelError(f"the fence of an acquire must be a whole number, not {fence!r}")
    return fence


def read_permits(model: str, call: Call, most: int) -> int:
    """Returns the number of permits of an operation: its argument, or the field ``permits`` of its argument, or 1."""
    asked = read_field("permits", call.argument) if isinstance(call.argument, dict) else call.argument
    if type(asked) is not int:
        return 1
    if not 0 < asked <= most:
        raise ModelError(f"{call.f} of {asked} permits: {model}({most}) has {most}")
    return asked


def require_count(model: str, count: object, most: int | None = None) -> int:
    """Returns the argument of a model, a number from 1 to ``most``. Raises ``ModelError`` for any other value."""
    if type(count) is not int or count < 1:
        raise ModelError(f"the argument of {model} is a whole number from 1 on, not {count!r}")
    if most is not None and count > most:
        raise ModelError(f"the argument of {model} is at most {most}, not {count}")
    return count
