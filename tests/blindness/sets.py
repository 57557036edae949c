from assay import (
    SET_ANOMALIES,
    Completion,
    Operation,
    Outcome,
    experiment,
    forbid,
    limit,
    mix,
    repeat,
    sequence,
    time_limit,
    unfold,
)
from assay.workloads.generic import sets

from helpers.toy_servers import Set, Toy


@experiment(system=Toy("memory"), client=Set, contract=forbid(*SET_ANOMALIES, may_stall=["kill"]))
def test_no_read_at_all(settings):
    return unfold(sets.step, 0)


@experiment(system=Toy("memory"), client=Set, contract=forbid(*SET_ANOMALIES, may_stall=["kill"]))
def test_reads_only_early(settings):
    early = time_limit(1.5, mix(unfold(sets.step, 0), repeat(Operation("read", sets.KEY))))
    return sequence(early, unfold(sets.step, 100000))


class Remembering(Set):
    """A client with a local copy that all clients share, and that reads are answered from."""

    known = []  # noqa: RUF012

    async def invoke(self, operation):
        if operation.f == sets.READ:
            return Completion(Outcome.OK, list(self.known))
        done = await super().invoke(operation)
        if done.outcome is Outcome.OK:
            self.known.append(operation.argument)
        return done


@experiment(system=Toy("drop"), client=Remembering, contract=forbid(*SET_ANOMALIES))
def test_reads_from_the_clients_memory(settings):
    return sets.traffic()


@experiment(system=Toy("memory"), client=Set, contract=forbid(may_stall=["kill"]))
def test_contract_that_forbids_nothing(settings):
    return sets.traffic()


def step(number, context):
    return Operation("add", sets.KEY, number % 20), number + 1


@experiment(system=Toy("memory"), client=Set, contract=forbid(*SET_ANOMALIES, may_stall=["kill"]))
def test_elements_added_again_and_again(settings):
    return unfold(step, 0) | sets.final_reads()


@experiment(system=Toy("memory"), client=Set, contract=forbid(*SET_ANOMALIES, may_stall=["kill"]))
def test_generator_ends_before_the_fault(settings):
    return limit(80, unfold(sets.step, 0)) | sets.final_reads()


@experiment(system=Toy(), client=Set, contract=forbid(*SET_ANOMALIES, may_stall=["kill"]))
def test_right_under_kill(settings):
    return sets.traffic()


@experiment(system=Toy(), client=Set, contract=forbid(*SET_ANOMALIES, may_stall=["power-loss"]))
def test_right_under_power_loss(settings):
    return sets.traffic()


@experiment(system=Toy(), client=Set, contract=forbid(*SET_ANOMALIES, may_stall=["stop"]))
def test_right_of_two_sets(settings):
    return sets.traffic(["left", "right"])


@experiment(system=Toy("memory"), client=Set, contract=forbid(*SET_ANOMALIES, may_stall=["kill"]))
def test_memory(settings):
    return sets.traffic()


@experiment(system=Toy("nosync"), client=Set, contract=forbid(*SET_ANOMALIES, may_stall=["power-loss"]))
def test_no_fsync(settings):
    return sets.traffic()


@experiment(system=Toy("stale"), client=Set, contract=forbid(*SET_ANOMALIES))
def test_stale_reads(settings):
    return mix(unfold(sets.step, 0), repeat(Operation("read", sets.KEY))) | sets.final_reads()
