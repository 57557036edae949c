"""The two fixpoints of the register checks, as rounds over materialised tables, because the common SQL cannot recurse.

1. ``find_kept``: a write of unknown outcome counts iff it was read, or a CAS that counts expected its value. That CAS
   may itself have an unknown outcome, so each round goes one step back. Chains of such CAS operations are short.
2. ``find_ancestors``: finds the start of the chain, and the distance to it, for each value that a CAS wrote. It uses
   pointer doubling (Wyllie 1979). Every value first points at the value that its CAS expected. In each round, it then
   points at its target's target. A chain of n takes log2(n) + 1 rounds. If a value still points at a value of a CAS
   after these rounds, its chain leads into a cycle, which has no start.

``views`` explains chains and clusters, and the tables from which the rounds begin.
"""

from typing import Final

from assay.checkers.check import UndecidedKeys, View, create_views, parse_views
from assay.checkers.engine import Engine, Row
from assay.checkers.register.views import CLUSTER_VIEWS, INITIAL, PLACE_VIEWS, SOURCE_VIEWS

_COLUMNS: Final = "key, value, op, sub, kind, expected, version, call, ret"


def make_tables(engine: Engine) -> None:
    """Creates every table that the register checks read."""
    create_views(engine, SOURCE_VIEWS)
    find_kept(engine)
    create_views(engine, CLUSTER_VIEWS)
    find_ancestors(engine)
    create_views(engine, PLACE_VIEWS)


def find_kept(engine: Engine) -> int:
    """Creates ``register_kept``: the writes and CAS operations that count. Returns the number of rounds."""
    create_views(engine, start_kept())
    frontier, rounds = "register_certain", 0
    while _count(engine, f"register_doubtful_{rounds % 2}"):
        create_views(engine, run_kept_round(rounds, frontier))
        frontier = f"register_taken_{rounds % 2}"
        rounds += 1
        if not _count(engine, frontier):
            break
    create_views(engine, end_kept(rounds))
    return rounds


def start_kept() -> tuple[View, ...]:
    """Returns views of the writes that certainly count, and of the doubtful ones."""
    return parse_views(f"""
        create view register_certain as
        select {_COLUMNS} from register_written where certain = 1

        create table register_doubtful_0 as
        select {_COLUMNS} from register_written where certain = 0

        create table register_added_0 as
        select {_COLUMNS} from register_written where 1 = 0
        """)


def run_kept_round(number: int, frontier: str) -> tuple[View, ...]:
    """Returns views that move doubtful writes to the kept ones if a CAS of ``frontier`` expected their values.

    ``frontier``: the table of the writes that the last round moved, or of those that certainly count.

    Names of tables alternate, because a table must not read an earlier table of its own name.
    """
    old, new = number % 2, (number + 1) % 2
    return parse_views(f"""
        create table register_taken_{old} as
        select d.key, d.value, d.op, d.sub, d.kind, d.expected, d.version, d.call, d.ret
        from register_doubtful_{old} d join {frontier} f on d.key = f.key and d.value = f.expected
        where f.kind = 'cas'
        group by d.key, d.value, d.op, d.sub, d.kind, d.expected, d.version, d.call, d.ret

        create table register_doubtful_{new} as
        select d.key, d.value, d.op, d.sub, d.kind, d.expected, d.version, d.call, d.ret
        from register_doubtful_{old} d left join register_taken_{old} t on d.key = t.key and d.value = t.value
        where t.key is null

        create table register_added_{new} as
        select {_COLUMNS} from register_added_{old} union all select {_COLUMNS} from register_taken_{old}
        """)


def end_kept(rounds: int) -> tuple[View, ...]:
    """Returns the view of all writes that count."""
    kept = f"select {_COLUMNS} from register_certain union all select {_COLUMNS} from register_added_{rounds % 2}"
    return (View("register_kept", kept),)


def find_ancestors(engine: Engine) -> int:
    """Creates ``register_ancestors``: (key, value, ancestor, distance, no_start) of each value that a CAS wrote.

    Returns the number of rounds.
    """
    create_views(engine, start_climb())
    row = engine.rows(
        "select coalesce(max(links), 0) as links from ("
        "select count(*) as links from register_open_0 group by key) as per_key"
    )[0]
    limit, rounds, still_open = int(row["links"]).bit_length() + 1, 0, int(row["links"]) > 0
    while still_open and rounds < limit:
        create_views(engine, run_climb_round(rounds))
        rounds += 1
        still_open = _count(engine, f"register_open_{rounds}") > 0  # cycles use all rounds up to the limit
    create_views(engine, (View("register_ancestors", _select_pointers(rounds)),))
    return rounds


def start_climb() -> tuple[View, ...]:
    """Returns a view in which each value that a CAS wrote points at the value that the CAS expected (``ancestor``).

    Keys with versions need no chains.
    """
    return parse_views("""
        create table register_open_0 as
        select c.key, c.value, c.expected as ancestor, cast(1 as bigint) as distance, 1 as no_start
        from register_clusters c left join register_versioned v on c.key = v.key
        where c.chained = 1 and v.key is null
        """)


def run_climb_round(number: int) -> tuple[View, ...]:
    """Returns views that double the distance of each pointer that has not reached the start of its chain.

    A pointer has reached the start if its target is in no row's ``value`` column.
    """
    new = number + 1
    return parse_views(f"""
        create table register_climb_{new} as
        select j.key, j.value, coalesce(u.ancestor, j.ancestor) as ancestor,
            j.distance + coalesce(u.distance, 0) as distance, coalesce(u.no_start, 0) as no_start
        from register_open_{number} j
            left join ({_select_pointers(number)}) u on j.key = u.key and j.ancestor = u.value

        create view register_resolved_{new} as
        select * from register_climb_{new} where no_start = 0

        create table register_open_{new} as
        select * from register_climb_{new} where no_start = 1
        """)


def _select_pointers(rounds: int) -> str:
    """Returns SQL: the pointer of each value after ``rounds`` rounds."""
    tables = [*(f"register_resolved_{number}" for number in range(1, rounds + 1)), f"register_open_{rounds}"]
    return " union all ".join(f"select key, value, ancestor, distance, no_start from {table}" for table in tables)


def _describe_unclear(row: Row) -> str:
    written = (
        "its initial value was written again"
        if row["value"] == INITIAL
        else f"value {row['value']} was written more than once"
    )
    return f"register {row['key']} cannot be judged: {written}, and these checks need unique values"


UNCLEAR_KEYS: Final = UndecidedKeys(
    "register_unclear", _describe_unclear, lambda more: f"nor can {more} other registers, for the same reason"
)
"""Keys that cannot be judged, because their values are not unique."""


def _count(engine: Engine, table: str) -> int:
    return int(engine.rows(f"select count(*) as examined from {table}")[0]["examined"])
