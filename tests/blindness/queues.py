from assay import QUEUE_ANOMALIES, Completion, Operation, Outcome, Phase, experiment, forbid, repeat, unfold
from assay.workloads.generic import queues

from helpers.toy_servers import Queue, Toy


def step(number, context):
    f = context.choose(["enqueue", "enqueue", "dequeue"], salt=1)
    return Operation(f, "jobs", number if f == "enqueue" else None), number + 1


@experiment(system=Toy("memory"), client=Queue, contract=forbid(*QUEUE_ANOMALIES, may_stall=["kill"]))
def test_no_drain(settings):
    return unfold(step, 0) | [Operation("dequeue", "jobs", phase=Phase.DRAIN)] * 3


class Impatient(Queue):
    """Takes the empty answer at the end of a drain for a timeout."""

    async def invoke(self, operation):
        done = await super().invoke(operation)
        if operation.f == queues.DRAIN:
            return Completion(Outcome.INFO, done.result, error="timeout")
        return done


@experiment(system=Toy("drop"), client=Impatient, contract=forbid(*QUEUE_ANOMALIES))
def test_drain_that_never_ends_ok(settings):
    return queues.traffic("jobs")


@experiment(system=Toy("dup"), client=Queue, contract=queues.build_contract())
def test_contract_that_tolerates_duplicates(settings):
    """The queue promises to deliver once, but the contract of the workload tolerates duplicates."""
    return queues.traffic("jobs")


class FireAndForget(Queue):
    survives_info = True

    async def invoke(self, operation):
        done = await super().invoke(operation)
        if operation.f == queues.ENQUEUE:
            return Completion(Outcome.INFO, error="not confirmed")
        return done


@experiment(system=Toy("drop"), client=FireAndForget, contract=forbid(*QUEUE_ANOMALIES))
def test_enqueues_of_unknown_outcome(settings):
    return queues.traffic("jobs")


class Silent(Queue):
    @staticmethod
    def effects(completed):
        return []


@experiment(system=Toy("memory"), client=Silent, contract=forbid(*QUEUE_ANOMALIES, may_stall=["kill"]))
def test_effects_left_out(settings):
    return queues.traffic("jobs")


@experiment(system=Toy("drop"), client=Queue, contract=forbid(*QUEUE_ANOMALIES))
def test_no_enqueue(settings):
    return repeat(Operation("dequeue", "jobs")) | [Operation("drain", "jobs", phase=Phase.DRAIN)] * 3


@experiment(system=Toy(), client=Queue, contract=queues.build_contract(may_stall=["kill"]))
def test_right_under_kill(settings):
    return queues.traffic("jobs")


@experiment(system=Toy(), client=Queue, contract=forbid(*QUEUE_ANOMALIES))
def test_right(settings):
    return unfold(step, 0) | [Operation("drain", "jobs", phase=Phase.DRAIN)] * 3


@experiment(system=Toy(), client=Queue, contract=forbid(*QUEUE_ANOMALIES, may_stall=["power-loss"]))
def test_right_under_power_loss(settings):
    return queues.traffic("jobs")


@experiment(system=Toy("memory"), client=Queue, contract=queues.build_contract(may_stall=["kill"]))
def test_memory(settings):
    return unfold(step, 0) | [Operation("drain", "jobs", phase=Phase.DRAIN)] * 3


@experiment(system=Toy("dup"), client=Queue, contract=forbid(*QUEUE_ANOMALIES))
def test_duplicates(settings):
    return queues.traffic("jobs")


@experiment(system=Toy("drop"), client=Queue, contract=forbid(*QUEUE_ANOMALIES))
def test_dropped_changes(settings):
    return queues.traffic("jobs")
