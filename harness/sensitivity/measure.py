"""Measures the sensitivity of a run that passed, by planting violations into copies of its history.

A claim is an assertion that the history makes. It is exposed if a later observation could contradict it (``plant``).
For each anomaly that the contract forbids, ``plants`` claims are drawn from the exposed ones, and as many from all
claims. Each violation is planted into a copy of its own, with the rows of one object. All copies are judged in one pass
(``packing``). A violation counts as caught if its copy fails. A violation whose edit changes nothing counts as missed,
and its copy is not judged.

To limit the cost, objects are drawn until they have ``MOST_ROWS`` effects, and copies are made until they have
``COPIED_ROWS`` effects per anomaly.

Copies for the contract's model have all operations of one key. The model's search judges each of them separately.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.sensitivity import NotPlanted, PlantedShare, Sensitivity
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.linearizability import Model
from assay.checkers.linearizability.encode import describe_key
from assay.checkers.linearizability.key_result import NONLINEARIZABLE
from assay.checkers.transactions.cycles import CYCLE_ANOMALIES
from assay.harness.sensitivity.group_plants import GROUP_PLANTS
from assay.harness.sensitivity.log_plants import LOG_PLANTS
from assay.harness.sensitivity.model_plants import find_model_plant, to_operation_row
from assay.harness.sensitivity.object_plants import OBJECT_PLANTS
from assay.harness.sensitivity.packing import find_violated, pack
from assay.harness.sensitivity.plant import Claim, ObjectRows, Plant, Row, Rows, get_row_id
from assay.harness.sensitivity.register_plants import REGISTER_PLANTS
from assay.harness.sensitivity.transaction_plants import TRANSACTION_PLANTS

if TYPE_CHECKING:
    from assay.checkers.check import Family
    from assay.checkers.engine import Engine, Engines
    from assay.harness.core.history import HistoryReader

PLANTS: Final[tuple[Plant, ...]] = (
    *LOG_PLANTS,
    *REGISTER_PLANTS,
    *OBJECT_PLANTS,
    *GROUP_PLANTS,
    *TRANSACTION_PLANTS,
)

# Reasons why an anomaly has no plant.
DEADLINE: Final = "it is about a deadline"
SERVERS: Final = "it is about servers' event logs, disks and answers at rest, not about what clients saw"
WHOLE_RUN: Final = "it is about the whole run, not about an object"
LEVEL: Final = "the isolation level allows it in some histories"
OWN_CHECK: Final = "it is found by a check of your own"
OWN_MODEL: Final = "it is found by a model for which there is no plant"
TOPICS: Final = "it depends on the settings or former lives of a topic, which a copy of one object lacks"

MANY: Final = 30
"""Number of plants per anomaly, both from exposed claims and from all claims."""
MOST_ROWS: Final = 100_000
"""Maximum number of effects of the objects that are read."""
LARGEST: Final = 400_000
"""Maximum number of effects of an object that is read. They take some 3 GB of memory."""
COPIED_ROWS: Final = 60_000
"""Maximum number of effects of all copies for one anomaly."""
MOST_ESCAPED: Final = 5
"""Maximum number of exposed claims of an anomaly that are listed as missed."""
_SILENT: Final = """
    select o."index" as op, o.process, o.call from ops o left join (select op from effects group by op) e
    on o."index" = e.op where o.outcome = 'info' and e.op is null
    """
"""SQL of the operations of unknown outcome without effects."""


def explain_unplanted(anomaly: str, families: Iterable[Family], built_in: Iterable[Family]) -> str:
    """Returns why an anomaly without a plant has none."""
    if anomaly == NONLINEARIZABLE:
        return OWN_MODEL
    known = {check.anomaly for family in built_in for check in family.checks}
    for family in families:
        for check in family.checks:
            if check.anomaly == anomaly:
                if anomaly not in known:
                    return OWN_CHECK
                reads_effects = "effect" in family.applies and not family.about_servers
                has_deadline = check.needs_end or check.standstill is not None
                return DEADLINE if has_deadline else TOPICS if reads_effects else SERVERS
    return WHOLE_RUN


ProgressCallback = Callable[[str, int, int], None]
K = TypeVar("K", str, str | None)


@dataclass(frozen=True)
class DrawnObjects:
    """Rows of some objects of a run."""

    effects: Mapping[str, Rows]
    """By key."""
    ops: Mapping[int, Row]
    """The operations of these effects, by number."""
    silent: Mapping[int, list[Row]]
    """Operations of unknown outcome without effects, by process."""
    faults: list[list[Any]]
    """The columns of the data set ``faults``."""
    last_fault_end: int
    """The time at which the last fault healed (``exposure_bound``)."""
    left_out: str | None = None
    """A sentence about the objects that were not drawn, if any."""


@dataclass(frozen=True)
class PlantedCopy:
    """A copy with a violation. ``rows``: the edited rows; None if the edit changed nothing."""

    plant: Plant
    object: str
    selected: Rows
    """The selected rows of the object before the edit."""
    claim: Claim
    rows: Rows | None
    from_exposed: bool
    """Whether the claim was drawn from the exposed ones."""


def measure(
    history: HistoryReader,
    contract: Contract,
    judgement: Judgement,
    engines: Engines,
    *,
    families: Sequence[Family] = FAMILIES,
    model: Model | None = None,
    plants: int = MANY,
    seed: int = 0,
    anomalies: Collection[str] | None = None,
    watch: ProgressCallback = lambda what, done, total: None,
) -> Sensitivity:
    """Measures the sensitivity of a run. Raises ``ValueError`` unless its judgement is a pass.

    - ``model``: the model of its contract
    - ``anomalies``: the anomalies to measure; None: all that the contract forbids
    - ``watch``: called with a step, the work done and the total
    """
    if judgement.verdict != "pass":
        raise ValueError(f"the verdict is {judgement.verdict}; sensitivity is measured for a run that passed")
    begun = time.perf_counter()
    wanted = [name for name in judgement.forbidden if anomalies is None or name in anomalies]
    with engines.open(history) as engine:
        drawn = _draw_objects(engine, history, contract, seed)
    shares: list[PlantedShare] = []
    copies: list[PlantedCopy] = []
    found: dict[Plant, tuple[int, int]] = {}  # the numbers of claims and of exposed claims
    gathered = {gather: gather(drawn.effects) for gather in dict.fromkeys(plant.gather for plant in PLANTS)}
    by_model = None if model is None else find_model_plant(model)
    all_plants = PLANTS if by_model is None else (*PLANTS, by_model)
    for plant in all_plants:
        if plant.anomaly in wanted and plant.requires(contract):
            objects = _draw_operations(history, seed) if plant.of_model else gathered[plant.gather]
            claims = [
                (name, claim)
                for name, rows in objects.items()
                if plant.kinds.intersection(row["kind"] for row in rows)
                for claim in plant.find_claims(rows, drawn.last_fault_end)
            ]
            if claims:
                found[plant] = (len(claims), sum(claim.exposed for _, claim in claims))
                copies += _plant(plant, claims, objects, plants, random.Random(f"{seed}/{plant.anomaly}"))
    watch("judging copies", 0, 1)
    found_in: dict[int, frozenset[str] | None] = {
        **_judge_copies(copies, drawn, contract, engines, families, judgement.forbidden)
    }
    if model is not None:
        found_in |= _search_copies(copies, history, model)
    for plant in all_plants:
        if plant in found:
            own_copies = [
                (copy, anomalies_found)
                for number, copy in enumerate(copies)
                if copy.plant is plant and (anomalies_found := found_in[number]) is not None
            ]
            shares.append(_count(plant, found[plant], own_copies))
    allowed = set() if contract.transaction_level is None else _find_allowed_cycles(contract)
    return Sensitivity(
        shares=tuple(shares),
        not_planted=tuple(
            NotPlanted(name, LEVEL if name in allowed else explain_unplanted(name, families, FAMILIES))
            for name in wanted
            if name in allowed or name not in {plant.anomaly for plant in all_plants}
        ),
        seed=seed,
        seconds=round(time.perf_counter() - begun, 3),
        judging_seconds=round(judgement.seconds, 3),
        copies=sum(copy.rows is not None for copy in copies),
        left_out=drawn.left_out,
    )


def _draw_objects(engine: Engine, history: HistoryReader, contract: Contract, seed: int) -> DrawnObjects:
    """Reads objects in random order until they have ``MOST_ROWS`` effects.

    Compacted logs are left out, and reads of failed and unknown transactions that the contract does not judge.
    """
    import pyarrow as pa

    from assay.checkers.exposure import EXPOSURE_BOUND
    from assay.checkers.judging.history_views import register_data_sets
    from assay.harness.core.history.schema import EFFECTS

    register_data_sets(engine, history)
    sizes = {
        row["key"]: int(row["many"]) for row in engine.rows("select key, count(*) as many from effects group by key")
    }
    sizes = {key: many for key, many in sizes.items() if key not in contract.compacted}
    drawn = _draw_keys(sizes, seed)
    effects: defaultdict[str, list[Row]] = defaultdict(list)
    engine.load("drawn_objects", pa.table({"key": pa.array(drawn, pa.string())}))
    judged = "" if contract.transaction_all_reads else "where e.kind <> 'txn-read' or e.outcome = 'ok'"
    drawn_rows = engine.arrow(f"select e.* from effects e join drawn_objects d on d.key = e.key {judged}")
    for row in drawn_rows.select(EFFECTS.names).cast(EFFECTS).to_pylist():  # SQLite has no truth values
        effects[row["key"]].append(row)
    silent: defaultdict[int, list[Row]] = defaultdict(list)
    for row in engine.rows(_SILENT):
        silent[row["process"]].append(row)
    numbers = {row["op"] for rows in (*effects.values(), *silent.values()) for row in rows}
    ops = {row["index"]: row for row in history.table("ops").to_pylist() if row["index"] in numbers}
    (bound,) = engine.rows(EXPOSURE_BOUND)
    faults = history.table("faults")
    clients_killed = any(row["on_clients"] and row["ends_process"] is not False for row in faults.to_pylist())
    return DrawnObjects(
        {
            key: ObjectRows(
                sorted(rows, key=get_row_id),
                (op for process in sorted({row["process"] for row in rows}) for op in silent.get(process, ())),
                clients_killed=clients_killed,
            )
            for key, rows in sorted(effects.items())
        },
        ops,
        silent,
        [column.to_pylist() for column in faults.columns],
        int(bound["since"]),
        _describe_left_out(sizes, drawn),
    )


def _draw_keys(sizes: Mapping[K, int], seed: int) -> list[K]:
    """Returns keys in random order until they have ``MOST_ROWS`` rows. The first may have up to ``LARGEST`` rows."""
    keys = sorted((key for key, size in sizes.items() if size <= LARGEST), key=str)
    random.Random(seed).shuffle(keys)
    drawn: list[K] = []
    total = 0
    for key in keys:
        if not drawn or total + sizes[key] <= MOST_ROWS:
            drawn.append(key)
            total += sizes[key]
    return drawn


def _describe_left_out(sizes: Mapping[str, int], drawn: Sequence[str]) -> str | None:
    if len(drawn) == len(sizes):
        return None
    large = sum(size > LARGEST for size in sizes.values())
    too_large = f"; {large:,} with more than {LARGEST:,} effects were not" if large else ""
    return f"of {len(sizes):,} objects, {len(drawn):,} were looked at{too_large}"


def _draw_operations(history: HistoryReader, seed: int) -> dict[str, Rows]:
    """Returns the operations of random objects, by the object's name. Together they have at most ``MOST_ROWS``."""
    by_key: defaultdict[str | None, list[Row]] = defaultdict(list)
    for row in history.table("ops").to_pylist():
        by_key[row["key"]].append(to_operation_row(row))
    drawn = _draw_keys({key: len(rows) for key, rows in by_key.items()}, seed)
    return {describe_key(key): sorted(by_key[key], key=get_row_id) for key in drawn}


def _search_copies(
    copies: Sequence[PlantedCopy], history: HistoryReader, model: Model
) -> dict[int, frozenset[str] | None]:
    """Searches the copies for the model. Returns the anomalies found in each of them, by the copy's number.

    They are None if a limit ended the search. Such a copy does not count, because its violation was not missed.
    """
    import pyarrow as pa

    from assay.checkers.linearizability.search import search

    schema = history.table("ops").schema
    judgements = {
        number: search(pa.Table.from_pylist(list(copy.rows), schema=schema), model)
        for number, copy in enumerate(copies)
        if copy.plant.of_model and copy.rows is not None
    }
    return {
        number: None if judgement.verdict is Verdict.UNKNOWN else frozenset(judgement.anomalies)
        for number, judgement in judgements.items()
    }


def _plant(
    plant: Plant,
    claims: Sequence[tuple[str, Claim]],
    objects: Mapping[str, Rows],
    plants: int,
    draw: random.Random,
) -> list[PlantedCopy]:
    """Plants violations into claims drawn from the exposed ones, and into claims drawn from all."""
    copies: list[PlantedCopy] = []
    exposed = [one for one in claims if one[1].exposed]
    for from_exposed, pool in ((True, exposed), (False, claims)):
        size = 0
        for name, claim in draw.sample(pool, min(plants, len(pool))):
            selected = plant.select(objects[name], claim)
            if size and size + len(selected) > COPIED_ROWS // 2:
                break
            edited = plant.edit(selected, claim)
            changed = list(edited) != list(selected)
            size += len(edited) if changed else 0
            copies.append(PlantedCopy(plant, name, selected, claim, edited if changed else None, from_exposed))
    return copies


def _judge_copies(
    copies: Sequence[PlantedCopy],
    drawn: DrawnObjects,
    contract: Contract,
    engines: Engines,
    families: Sequence[Family],
    forbidden: Collection[str],
) -> dict[int, frozenset[str]]:
    """Returns the forbidden anomalies found in each copy, by its number.

    A copy lacks all other objects and a part of its own object. So a check may find anomalies that were not planted.
    Anomalies that are also found in the selected rows before the edit do not count.
    """
    about_clients = [family for family in families if not family.about_servers]
    found_in = dict.fromkeys(range(len(copies)), frozenset[str]())
    for separate_times in (False, True):
        by_checks = (n for n, copy in enumerate(copies) if copy.rows is not None and not copy.plant.of_model)
        to_judge = [number for number in by_checks if copies[number].plant.separate_times == separate_times]
        if not to_judge:
            continue
        plain = {id(copies[number].selected): copies[number].selected for number in to_judge}
        objects = [*plain.values(), *(copies[number].rows or () for number in to_judge)]
        silent = {process: [op["op"] for op in ops] for process, ops in drawn.silent.items()}
        packed = pack(objects, drawn.ops, drawn.faults, separate_times=separate_times, silent=silent)
        found = find_violated(packed, contract, engines, about_clients)
        without_plant = {name: found.get(index, frozenset()) for index, name in enumerate(plain)}
        for index, number in enumerate(to_judge, len(plain)):
            planted = found.get(index, frozenset()) - without_plant[id(copies[number].selected)]
            found_in[number] = planted.intersection(forbidden)
    return found_in


def _find_allowed_cycles(contract: Contract) -> set[str]:
    """Returns the classes of cycles that the isolation level of the contract does not forbid in every history."""
    forbidden = {plant.anomaly for plant in TRANSACTION_PLANTS if plant.requires(contract)}
    return {name for name in CYCLE_ANOMALIES if name not in forbidden}


def _count(plant: Plant, claims: tuple[int, int], copies: Sequence[tuple[PlantedCopy, frozenset[str]]]) -> PlantedShare:
    """Counts the plants of one anomaly. ``claims``: the numbers of all claims and of exposed ones."""
    found_as: Counter[str] = Counter()
    for _, found in copies:
        found_as.update(found)
    from_all = [(copy, bool(found)) for copy, found in copies if not copy.from_exposed]
    from_exposed = [(copy, bool(found)) for copy, found in copies if copy.from_exposed]
    missed = next((copy for copy, caught in from_all if not caught), None)
    return PlantedShare(
        anomaly=plant.anomaly,
        meaning=plant.meaning,
        claims=claims[0],
        exposed=claims[1],
        planted=len(from_all),
        caught=sum(caught for _, caught in from_all),
        planted_exposed=len(from_exposed),
        caught_exposed=sum(caught for _, caught in from_exposed),
        found_as=dict(sorted(found_as.items())),
        missed=None if missed is None else _explain_miss(missed),
        escaped=tuple(f"{copy.object}: {copy.claim.words}" for copy, caught in from_exposed if not caught)[
            :MOST_ESCAPED
        ],
    )


def _explain_miss(copy: PlantedCopy) -> str:
    reason = copy.plant.missed if not copy.claim.exposed else "no check contradicts it"
    return f"{copy.claim.words} of {copy.object}: {reason}"
