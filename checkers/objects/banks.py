"""Banks: money moves between accounts, and the total stays constant (Jepsen's bank test, with a check per account).

A workload records itself in ``effects`` as follows (``key`` is the bank's name, ``owner`` an account, ``value`` an
amount):

- ``bank-open``: ``owner`` begins with ``value``, before anything else happens. If only the sum of all accounts is
  known, one row without an owner has it, and the other rows have no ``value``.
- ``bank-withdraw`` and ``bank-deposit``: one of each for a transfer; outcomes ok, fail or info.
- ``bank-read``: one row per account that a read returned, with its balance; a null ``value`` is no balance. A read
  that returned no account has one row with neither ``owner`` nor ``value``. Only ok reads count.

*Totals.* The balances of a read add up to the sum of the opening balances. Only reads called after all accounts had
been opened are judged.

*Balances.* A read takes effect at some moment between its call and its return. An account then holds its opening
balance, plus deposits and minus withdrawals before that moment. These include at least everything acknowledged before
the read's call, and at most everything called before its return that did not fail. So the balance lies between two
bounds:

- the opening balance, plus the certain deposits, minus all possible withdrawals;
- the opening balance, plus all possible deposits, minus the certain withdrawals.

The bounds are sound. They find anomalies that totals miss: a transfer with both halves lost, or a read of an old state.
A system that does not promise real-time order may return an old state.

A system that counts wrongly may show any number, so sums have more than 64 bits.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import Engine, EngineUnavailable, SQLite
from assay.checkers.exposure import Exposure
from assay.checkers.objects.kinds import declare_family
from assay.checkers.sql_idioms import LARGE, RETURNED, cast_large, select_first, sum_so_far, total_of
from assay.harness.core.printable import to_printable

SQLITE_LIMIT: Final = 9.2e18
"""Just below 2^63. If the sum of all absolute amounts is below this limit, all sums of a bank fit into 64 bits."""

BANK_VIEWS: Final = parse_views(f"""
    -- `doubtful`: it is unknown whether the account was opened, so its bank is not judged.
    create table bank_opened as
    select e.key, e.owner, max(e.value) as value, max({RETURNED}) as ready,
        max(case when e.outcome = 'ok' then 0 else 1 end) as doubtful
    from effects e where e.kind = 'bank-open' and e.outcome <> 'fail' group by e.key, e.owner

    -- The banks that can be judged. `ready`: the time at which all accounts were open.
    create table bank_banks as
    select key, total, accounts, ready from (
        select key, coalesce(max(case when owner is null then {cast_large("value")} end),
                cast(sum({cast_large("value")}) as {LARGE})) as total,
            count(owner) as accounts, count(*) as opened, count(value) as valued,
            max(case when owner is null then 1 else 0 end) as has_sum, max(ready) as ready, max(doubtful) as doubtful
        from bank_opened group by key) as banks
    where doubtful = 0 and (has_sum = 1 or opened = valued)

    -- Balances shown by reads that were called after all accounts were opened. A null value is no balance.
    create table bank_shown as
    select e.op, e.key, e.owner, e.value, e.call, e.ret
    from effects e join bank_banks b on e.key = b.key
    where e.kind = 'bank-read' and e.outcome = 'ok' and e.ret is not null and e.call > b.ready

    -- The shown balances of accounts whose opening balance is known.
    create view bank_known as
    select s.key, s.owner, s.op, s.value, o.value as opened
    from bank_shown s join bank_opened o on s.key = o.key and s.owner = o.owner
    where o.value is not null and s.value is not null
    """)

# The beginning of each claim.
_READ: Final = "{key}: the read by {reader_op}, called at {reader_op:called}, shows {value} in "


BANK_TOTAL: Final = Check(
    anomaly="bank-total",
    meaning="a read of all accounts shows more or less money than there is",
    views=parse_views(f"""
        -- The sum of the balances that each read shows, and the number of accounts that it shows.
        create view bank_totals as
        select s.key, s.op, cast(coalesce(sum({cast_large("s.value")}), 0) as {LARGE}) as value,
            count(s.value) as shown, min(b.total) as total, min(b.accounts) as accounts
        from bank_shown s join bank_banks b on s.key = b.key group by s.key, s.op
        """),
    violations="select * from bank_totals where value <> total or shown <> accounts",
    evidence=select_first("found_bank_total", "key, op", also="op as reader_op"),
    examined="select count(*) as examined from bank_totals",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim=_READ + "[shown={accounts}?|{shown} of ]{accounts} accounts, and {total} had been opened.",
    about=("read {reader_op:number}",),  # subjects of a finding
    needs_close=True,  # proves nothing about a run that was cut short
)
"""A read may lack rows if the history was not closed, so this check sets ``needs_close``."""


BANK_NEGATIVE: Final = Check(
    anomaly="bank-negative",
    meaning="an account has a negative balance",
    violations="select * from bank_shown where value < 0",
    evidence=select_first("found_bank_negative", "key, op, owner", also="op as reader_op"),
    examined="select count(value) as examined from bank_shown",
    claim=_READ + "account {owner}.",
    about=("read {reader_op:number}",),  # subjects of a finding
)


def _select_sums(*, certain: bool) -> str:
    """Returns SQL: the sums deposited and withdrawn before each read of an account.

    ``certain``: amounts that took effect certainly before the read's call; otherwise possibly before its return. A
    deposit of a negative amount counts as a withdrawal, and the reverse.

    The column ``side`` orders changes and reads of one moment. A change that returns when a read is called may come
    after the read. A change that is called when a read returns may come before it.
    """
    amount = f"case when e.kind = 'bank-deposit' then {cast_large('e.value')} else 0 - {cast_large('e.value')} end"
    if certain:
        which, moment, change_side, read, read_side = "e.outcome = 'ok' and e.ret is not null", "e.ret", 1, "call", 0
    else:
        which, moment, change_side, read, read_side = "e.outcome <> 'fail'", "e.call", 0, "ret", 1
    deposited, withdrawn = (
        sum_so_far(one, by="key, owner", order="moment, side", kind=LARGE) for one in ("deposited", "withdrawn")
    )
    return f"""
        select key, owner, op, deposited, withdrawn from (
            select key, owner, op, {deposited} as deposited, {withdrawn} as withdrawn from (
                select e.key, e.owner, {moment} as moment, {change_side} as side, cast(-1 as bigint) as op,
                    greatest({amount}, 0) as deposited, greatest(0 - {amount}, 0) as withdrawn
                from effects e join bank_banks b on e.key = b.key
                where e.kind in ('bank-deposit', 'bank-withdraw') and {which}
                union all
                select key, owner, {read}, {read_side}, op, 0, 0 from bank_shown) as moments) as summed
        where op >= 0
        """


BANK_UNACCOUNTED: Final = Check(
    anomaly="bank-unaccounted",
    meaning="an account has a balance that no order of its deposits and withdrawals explains",
    views=parse_views(f"""
        -- Sums of the transfers that certainly happened before a read took effect.
        create view bank_certain as
        {_select_sums(certain=True)}

        -- Sums of the transfers that may have happened before a read took effect.
        create view bank_possible as
        {_select_sums(certain=False)}
        """),
    violations="""
        select s.key, s.owner, s.op, s.value, s.opened + c.deposited - p.withdrawn as least,
            s.opened + p.deposited - c.withdrawn as most
        from bank_known s
            join bank_certain c on s.key = c.key and s.owner = c.owner and s.op = c.op
            join bank_possible p on s.key = p.key and s.owner = p.owner and s.op = p.op
        where s.value < s.opened + c.deposited - p.withdrawn or s.value > s.opened + p.deposited - c.withdrawn
        """,
    evidence=select_first("found_bank_unaccounted", "key, op, owner", also="op as reader_op"),
    examined="select count(*) as examined from bank_known",
    exposure=Exposure(
        # `x.since`: the last heal of a fault after which earlier reads prove nothing (`exposure`)
        rows=f"""
            select t.key, count(*) as claims,
                {total_of("case when r.last > greatest(t.ret, x.since) then 1 else 0 end")} as exposed
            from (select e.key, e.op, max({RETURNED}) as ret from effects e join bank_banks b on e.key = b.key
                    where e.kind in ('bank-withdraw', 'bank-deposit') and e.outcome = 'ok' group by e.key, e.op) t
                cross join exposure_bound x
                left join (select key, max(call) as last from bank_shown where value is not null group by key) r
                    on t.key = r.key
            group by t.key
            """,
        nouns="transfers",
        asserted="acknowledged",
        observed="followed by a read of the accounts",
        no_claims="no transfer was acknowledged",
        remedy="read all accounts at the end",
    ),
    claim=_READ + "account {owner}; by what was acknowledged before, and what may have been done by then, it held "
    "[least={most}?{least}|{least} to {most}].",
    about=("read {reader_op:number}",),  # subjects of a finding
    lacks="no account that was read has a known opening balance",
    explained_by=("bank-total", "bank-negative"),
)

_OVERSIZED: Final = f"""
    select key from effects where kind like 'bank-%' and outcome <> 'fail'
    group by key having sum(abs(cast(value as double))) >= {SQLITE_LIMIT} order by key limit 1
    """
"""SQL: a bank with sums that may not fit into 64 bits."""


def _require_small_sums(engine: Engine) -> None:
    """Raises ``EngineUnavailable`` if the sums of a bank may not fit into SQLite's 64 bits."""
    if isinstance(engine, SQLite):
        for row in engine.rows(_OVERSIZED):
            raise EngineUnavailable(
                f"the bank {to_printable(str(row['key']))} has amounts whose sum may leave 64 bits, and SQLite has no "
                "more; use --engine=duckdb"
            )


BANK: Final = declare_family(
    "bank", (BANK_TOTAL, BANK_NEGATIVE, BANK_UNACCOUNTED), BANK_VIEWS, require=_require_small_sums
)

BANK_ANOMALIES: Final = BANK.anomalies
