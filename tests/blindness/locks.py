from assay import (
    SET_ANOMALIES,
    Completion,
    Operation,
    Outcome,
    Phase,
    experiment,
    forbid,
    linearizable,
    mix,
    repeat,
    sequence,
    time_limit,
    unfold,
)
from assay.workloads.generic import locks, sets

from helpers.toy_servers import Connection, Lock, LockedSet, Mutex, Toy, info


def step(number, context):
    f = context.choose(["acquire", "guarded", "guarded", "guarded"], salt=1)
    return Operation(f, "lock", number if f == "guarded" else None), number + 1


@experiment(system=Toy("twice"), client=Lock, contract=forbid("fencing-violation", "double-ownership"))
def test_lock_never_released(settings):
    """No one ever releases the lock."""
    return unfold(step, 0) | [Operation("guarded", "lock", -1, phase=Phase.DRAIN)] * 6


class OnlyGuarded(Lock):
    @staticmethod
    def effects(completed):
        return [one for one in locks.Leases.effects(completed) if one.kind == "guarded"]


@experiment(system=Toy("twice"), client=OnlyGuarded, contract=forbid("fencing-violation", "double-ownership"))
def test_effects_of_acquires_left_out(settings):
    return locks.traffic("lock")


class Polite(Lock):
    """Only asks for the lock if no client of this process has it."""

    owner = [None]  # noqa: RUF012

    async def invoke(self, operation):
        if operation.f == locks.ACQUIRE and self.owner[0] not in (None, self):
            return Completion(Outcome.FAIL, error=locks.HELD)
        if operation.f == locks.ACQUIRE:
            self.owner[0] = self
        done = await super().invoke(operation)
        if self.owner[0] is self and self.token is None:
            self.owner[0] = None
        return done


@experiment(system=Toy("twice"), client=Polite, contract=locks.build_contract())
def test_lock_among_the_clients(settings):
    return locks.traffic("lock")


class OldProtocol(Connection):
    async def invoke(self, operation):
        try:
            answer = await self.ask(operation.f.upper(), operation.key)
        except OSError as error:
            return info(error)
        return Completion(Outcome.OK if answer == "ok" else Outcome.FAIL, error=answer)


def step_4b(number, context):
    return Operation(context.choose(["acquire", "release"], salt=1), "lock"), number + 1


@experiment(system=Toy("twice"), client=OldProtocol, contract=linearizable("mutex"))
def test_old_protocol(settings):
    return unfold(step_4b, 0) | [Operation("acquire", "lock", phase=Phase.DRAIN)] * 4


ACQUIRE, GUARDED, RELEASE = (Operation(f, "lock") for f in ("acquire", "guarded", "release"))


@experiment(
    system=Toy("memory"), client=Lock, contract=forbid("fencing-violation", "double-ownership", may_stall=["kill"])
)
def test_acquires_only_early(settings):
    """The lock is only taken at the start; later its holder works."""
    early = time_limit(1.5, mix(repeat(ACQUIRE), repeat(GUARDED), repeat(RELEASE)))
    return sequence(early, repeat(GUARDED)) | [Operation("guarded", "lock", phase=Phase.DRAIN)] * 6


@experiment(system=Toy("twice"), client=Lock, contract=forbid("double-ownership"))
def test_one_client(settings):
    return locks.traffic("lock")


@experiment(system=Toy(), client=Lock, contract=locks.build_contract(may_stall=["kill"]))
def test_right_leases(settings):
    return locks.traffic("lock")


def step_2s(number, context):
    return Operation(context.choose(["acquire", "release"], salt=1), "lock"), number + 1


@experiment(system=Toy(), client=Mutex, contract=linearizable("mutex"))
def test_right_mutex(settings):
    return unfold(step_2s, 0) | [Operation(f, "lock", phase=Phase.DRAIN) for f in ("release", "acquire")] * 10


@experiment(system=Toy(), client=LockedSet, contract=forbid(*SET_ANOMALIES))
def test_right_locked_set(settings):
    return sets.traffic()


@experiment(system=Toy("twice"), client=Lock, contract=locks.build_contract())
def test_leases_given_twice(settings):
    return locks.traffic("lock")


@experiment(system=Toy("memory"), client=Lock, contract=locks.build_contract(may_stall=["kill"]))
def test_tokens_given_again(settings):
    return locks.traffic("lock")


@experiment(system=Toy("twice"), client=LockedSet, contract=forbid(*SET_ANOMALIES))
def test_locked_set_given_twice(settings):
    return sets.traffic()
