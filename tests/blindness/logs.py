from assay import Operation, Phase, experiment, forbid, mix, phases, repeat, sequence, time_limit, unfold
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import Send, traffic

from helpers.toy_servers import LOG_PROMISES, Log, Toy

OTHER = "orders-1"


@experiment(system=Toy("drop"), client=Log, contract=forbid(*LOG_PROMISES))
def test_polls_of_another_partition(settings):
    """All polls, the last ones too, read another partition."""
    polls = repeat(Operation("poll", OTHER, {"start": "earliest"}))
    final = [Operation("poll", OTHER, {"start": "earliest", "seek": True}, Phase.DRAIN)] * 4
    return mix(Send.draw(["orders-0"], most_values=1), polls) | final


KEY = "orders-0"


def step(number, context):
    return Operation("send", KEY, [number]), number + 1


@experiment(system=Toy("late-drop"), client=Log, contract=forbid(*LOG_PROMISES))
def test_polls_only_early(settings):
    """Polls at the start only."""
    polls = repeat(Operation("poll", KEY, {"start": "earliest"}))
    return sequence(time_limit(1.5, mix(unfold(step, 0), polls)), unfold(step, 100000))


class RecordsAlone(Log):
    @staticmethod
    def effects(completed):
        return [one for one in Log.effects(completed) if one.kind in ("append", "observe")]


CONTRACT = forbid("lost-write", "vanished", "duplicate", "phantom", "inconsistent-offset")


@experiment(system=Toy("drop"), client=RecordsAlone, contract=CONTRACT)
def test_positions_of_polls_left_out(settings):
    """The effects do not say from where to where a poll read."""
    return traffic(["orders-0"], most_values=1) | drain(["orders-0"], seconds=30)


@experiment(system=Toy("reorder"), client=Log, contract=forbid("phantom"))
def test_contract_that_forbids_too_little(settings):
    return traffic(["orders-0"], most_values=1) | drain(["orders-0"], seconds=30)


@experiment(system=Toy("dup"), client=Log, contract=forbid(*LOG_PROMISES))
def test_rate_too_low(settings):
    return traffic(["orders-0"], most_values=1) | drain(["orders-0"], seconds=30)


@experiment(system=Toy("drop"), client=Log, contract=forbid(*LOG_PROMISES))
def test_polls_from_the_end(settings):
    """Each poll begins at the end of the log."""
    tail = {"start": "latest", "seek": True}
    return (
        mix(Send.draw([KEY], most_values=1), repeat(Operation("poll", KEY, tail)))
        | [Operation("poll", KEY, tail, Phase.DRAIN)] * 4
    )


KEYS = ["orders-0", "orders-1"]


@experiment(system=Toy(), client=Log, contract=forbid(*LOG_PROMISES, may_stall=["kill"]))
def test_right_under_kill(settings):
    return traffic(KEYS, most_values=1) | drain(KEYS, seconds=30)


@experiment(system=Toy(), client=Log, contract=forbid(*LOG_PROMISES, may_stall=["power-loss"]))
def test_right_under_power_loss(settings):
    return traffic(KEYS, most_values=1) | drain(KEYS, seconds=30)


CONTRACT_3s = forbid("lost-write", "vanished", "duplicate", "phantom", "inconsistent-offset", "real-time-order")


def step_3s(number, context):
    if context.random_below(2, salt=1):
        return Operation("poll", KEY, {"start": "earliest"}), number
    return Operation("send", KEY, [number]), number + 1


@experiment(system=Toy(), client=Log, contract=CONTRACT_3s)
def test_right_with_polls_by_hand(settings):
    """The test sends a last record and then reads everything by hand."""
    sentinel = Operation("send", KEY, [-1], Phase.SENTINEL)
    last = [Operation("poll", KEY, {"start": "earliest"}, Phase.DRAIN)] * 20
    return unfold(step_3s, 0) | phases(sentinel, last)


@experiment(system=Toy("memory"), client=Log, contract=forbid(*LOG_PROMISES, may_stall=["kill"]))
def test_memory(settings):
    return traffic(KEYS, most_values=1) | drain(KEYS, seconds=30)


@experiment(system=Toy("reorder"), client=Log, contract=forbid(*LOG_PROMISES))
def test_swapped_records(settings):
    return traffic(["orders-0"], most_values=1) | drain(["orders-0"], seconds=30)


@experiment(system=Toy("dup"), client=Log, contract=forbid(*LOG_PROMISES))
def test_duplicates(settings):
    return traffic(["orders-0"], most_values=1) | drain(["orders-0"], seconds=30)
