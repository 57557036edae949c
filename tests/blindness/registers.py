import asyncio

from assay import REGISTER_ANOMALIES, Completion, Operation, Outcome, experiment, forbid, linearizable, unfold
from assay.workloads.generic import registers

from helpers.toy_servers import Connection, Register, Toy, final_reads, info, traffic

KEYS = ["k0", "k1", "k2", "k3"]


def step(value, context):
    if context.random_below(2, salt=1):
        return Operation("read", "status"), value + 1
    return Operation("write", context.choose(KEYS, salt=2), value), value + 1


@experiment(system=Toy("memory"), client=Register, contract=forbid(*REGISTER_ANOMALIES, may_stall=["kill"]))
def test_reads_of_another_key(settings):
    return unfold(step, 1) | final_reads(["status"])


class Dead(Register):
    """Reports each error as fail, so that its connection is never made again."""

    async def invoke(self, operation):
        done = await super().invoke(operation)
        return Completion(Outcome.FAIL, error=done.error) if done.outcome is Outcome.INFO else done


@experiment(system=Toy("memory"), client=Dead, contract=forbid(*REGISTER_ANOMALIES, may_stall=["kill"]))
def test_errors_reported_as_fail(settings):
    return traffic(["a", "b"])


class WriteThrough(Register):
    """Keeps what was written in a cache of all clients, and answers reads from it."""

    cache = {}  # noqa: RUF012

    async def invoke(self, operation):
        done = await super().invoke(operation)
        if done.outcome is not Outcome.OK:
            return done
        if operation.f == "write":
            self.cache[operation.key] = operation.argument
            return done
        return Completion(Outcome.OK, self.cache.get(operation.key))


@experiment(system=Toy("memory"), client=WriteThrough, contract=forbid(*REGISTER_ANOMALIES, may_stall=["kill"]))
def test_reads_from_a_cache_of_the_client(settings):
    return traffic(["a", "b"])


@experiment(system=Toy("race"), client=Register, contract=forbid("lost-update"))
def test_no_operation_of_the_forbidden_anomaly(settings):
    """No update is lost."""
    return traffic(["a", "b"], ["read", "write"])


class WrongPort(Register):
    async def open(self, endpoint, runtime):
        host, port = endpoint.address.split(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port) + 1)


@experiment(system=Toy("drop"), client=WrongPort, contract=forbid(*REGISTER_ANOMALIES))
def test_wrong_port(settings):
    return traffic(["a", "b"])


def step_6b(number, context):
    f = context.choose(["read", "write"], salt=1)
    return Operation(f, "a", 1 if f == "write" else None), number + 1


@experiment(system=Toy("drop"), client=Register, contract=linearizable("register"))
def test_each_write_of_one_value(settings):
    return unfold(step_6b, 1) | final_reads(["a"])


@experiment(system=Toy(), client=Register, contract=forbid(*REGISTER_ANOMALIES, may_stall=["kill"]))
def test_right_under_kill(settings):
    return traffic(["a", "b", "c"])


@experiment(system=Toy(), client=Register, contract=forbid(*REGISTER_ANOMALIES, may_stall=["power-loss"]))
def test_right_with_compare_and_set(settings):
    return traffic(["a", "b"], ["read", "write", "cas"])


class CasRegister(Connection):
    async def invoke(self, operation):
        key, argument = operation.key, operation.argument
        try:
            if operation.f == registers.READ:
                return Completion(Outcome.OK, await self.ask("get", key))
            if operation.f == registers.CAS:
                return Completion(Outcome.OK, await self.ask("cas", key, *argument))
            await self.ask("set", key, argument)
            return Completion(Outcome.OK)
        except OSError as error:
            return info(error)


@experiment(system=Toy(), client=CasRegister, contract=linearizable("cas-register", may_stall=["stop"]))
def test_right_by_a_model(settings):
    return registers.few_values(["a", "b", "c"])


@experiment(system=Toy("stale"), client=Register, contract=forbid(*REGISTER_ANOMALIES))
def test_stale_reads(settings):
    return traffic(["a", "b"])


@experiment(system=Toy("race"), client=Register, contract=forbid(*REGISTER_ANOMALIES))
def test_race(settings):
    return traffic(["a"], ["read", "cas"])


@experiment(system=Toy("memory"), client=Register, contract=linearizable("register", may_stall=["kill"]))
def test_memory_by_a_model(settings):
    return traffic(["a", "b"])
