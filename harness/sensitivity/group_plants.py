"""Plants for groups of consumers, their offsets, and leases."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from assay.harness.sensitivity.plant import (
    Claim,
    Plant,
    Row,
    Rows,
    append_to,
    is_ok,
    position_of,
    replace_in,
    returned,
    select_two,
)


def gather_groups(effects: Mapping[str, Rows]) -> dict[str, Rows]:
    """Returns the rows of each group: holds and commits, whatever their keys."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for rows in effects.values():
        for row in rows:
            if row["group"] is not None and row["kind"] in ("acquire", "commit", "fetched"):
                found[row["group"]].append(row)
    return {group: sorted(rows, key=position_of) for group, rows in found.items()}


def _find_late_commits(rows: Rows, bound: int) -> list[Claim]:
    """Lists accepted commits of members, each with the latest generation that was known before its call."""
    acquired = [row for row in rows if is_ok(row, "acquire") and row["generation"] is not None]
    claims = []
    for row in rows:
        if is_ok(row, "commit") and row["generation"] is not None and row["generation"] >= 0:
            before = [one for one in acquired if returned(one) < row["call"]]
            newest = max(before, key=lambda one: one["generation"], default=None)
            claims.append(Claim(f"the commit by operation {row['op']}", newest is not None, row=row, other=newest))
    return claims


def _commit_as_zombie(rows: Rows, claim: Claim) -> Rows:
    """Lets the commit of an earlier generation be accepted."""
    if claim.row is None or claim.other is None or claim.other["generation"] < 1:
        return rows
    return replace_in(rows, claim.row, generation=claim.other["generation"] - 1)


def _term(row: Row) -> int | None:
    term = row["generation"] if row["generation"] is not None else row["token"]
    return None if term is None else int(term)


def _find_holds(rows: Rows, bound: int) -> list[Claim]:
    """Lists holds, each with a later acquire by another owner."""
    acquired = [
        row for row in rows if is_ok(row, "acquire") and row["owner"] is not None and row["key"] != row["group"]
    ]
    claims = []
    for row in acquired:
        later = [
            one
            for one in acquired
            if one["call"] > returned(row) and one["owner"] != row["owner"] and one["group"] == row["group"]
        ]
        other = min(later, key=lambda one: one["call"], default=None)
        claims.append(Claim(f"the hold of {row['owner']} from operation {row['op']} on", other is not None, row=row,
                            other=other))  # fmt: skip
    return claims


def _hold_twice(rows: Rows, claim: Claim) -> Rows:
    """Lets a second owner hold the same thing at once.

    With generations or tokens, the next owner gets the number of the first. Without them, the first one never gives up
    its hold, and uses it in the operation in which the next owner uses its own.
    """
    if claim.row is None or claim.other is None:
        return rows
    first, second = claim.row, claim.other
    if _term(first) is not None:
        return replace_in(rows, second, generation=first["generation"], token=first["token"])
    kept = [row for row in rows if not (row["kind"] in ("release", "lost") and _is_same_hold(row, first))]
    uses = [row for row in kept if _is_same_hold(row, second) and row["call"] > returned(second)]
    if not uses:
        return rows
    last = max(uses, key=lambda row: row["call"])
    return append_to(kept, last, **{name: first[name] for name in ("process", "assignment", "owner")})


def _is_same_hold(row: Row, acquire: Row) -> bool:
    return all(row[name] == acquire[name] for name in ("process", "key", "assignment", "group"))


def _find_fenced(rows: Rows, bound: int) -> list[Claim]:
    """Lists accepted guarded operations, each with the newest token that was known before its call."""
    known = [row for row in rows if is_ok(row, "guarded") and row["token"] is not None]
    claims = []
    for row in rows:
        if is_ok(row, "guarded") and row["token"] is not None:
            before = [one for one in known if returned(one) < row["call"]]
            newest = max(before, key=lambda one: one["token"], default=None)
            claims.append(Claim(f"operation {row['op']} under token {row['token']}", newest is not None, row=row,
                                other=newest))  # fmt: skip
    return claims


def _use_stale_token(rows: Rows, claim: Claim) -> Rows:
    if claim.row is None or claim.other is None or claim.other["token"] < 1:
        return rows
    return replace_in(rows, claim.row, token=claim.other["token"] - 1)


def _select_hold(rows: Rows, claim: Claim) -> Rows:
    """Keeps the holds of the thing, without the records that were read under them."""
    if claim.row is not None and _term(claim.row) is not None:
        return select_two(rows, claim)
    return [row for row in rows if row["kind"] not in ("append", "end", "observe", "observe-end")]


def _select_commit(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return [row for row in rows if row["kind"] in ("commit", "fetched") and row["value"] == claim.row["value"]]


def _find_fetched(rows: Rows, bound: int) -> list[Claim]:
    numbers = {row["value"] for row in rows if row["kind"] == "commit" and row["position"] is not None}
    return [
        Claim(f"the offset that operation {row['op']} fetched", row["value"] in numbers, row=row)
        for row in rows
        if is_ok(row, "fetched") and row["value"] is not None and row["position"] is not None
    ]


def _fetch_other(rows: Rows, claim: Claim) -> Rows:
    if claim.row is None or not claim.exposed:
        return rows
    return replace_in(rows, claim.row, position=claim.row["position"] + 1)


def _find_advances(rows: Rows, bound: int) -> list[Claim]:
    """Lists accepted commits of offsets that only grow, each with the first time that an offset was read later."""
    steps = [row for row in rows if is_ok(row, "advance", "resume") and row["position"] is not None]
    claims = []
    for row in steps:
        if row["kind"] == "advance":
            since = max(returned(row), bound)
            later = [one for one in steps if one["kind"] == "resume" and one["call"] > since]
            other = min(later, key=lambda one: one["call"], default=None)
            claims.append(Claim(f"the commit of {row['position']} by operation {row['op']}", other is not None, since,
                                row=row, other=other))  # fmt: skip
    return claims


def _resume_below(rows: Rows, claim: Claim) -> Rows:
    """Lets the next owner begin one below the offset that was committed."""
    if claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.other, position=claim.row["position"] - 1)


def _find_kept(rows: Rows, bound: int) -> list[Claim]:
    return [
        Claim(f"the commit {row['value']} that operation {row['op']} found", row=row)
        for row in rows
        if is_ok(row, "kept") and row["value"] is not None
    ]


def _forget_commit(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return replace_in(rows, claim.row, value=None)


GROUP_PLANTS: Final = (
    Plant(
        anomaly="double-ownership",
        meaning="two owners hold one thing at once",
        kinds=frozenset({"acquire"}),
        find_claims=_find_holds,
        edit=_hold_twice,
        select=_select_hold,
        missed="no other owner followed",
    ),
    Plant(
        anomaly="zombie-commit",
        meaning="a commit of an earlier generation is accepted",
        kinds=frozenset({"commit"}),
        gather=gather_groups,
        find_claims=_find_late_commits,
        edit=_commit_as_zombie,
        select=select_two,
        missed="no later generation was known before its call",
    ),
    Plant(
        anomaly="commit-mismatch",
        meaning="an offset is fetched that was not committed",
        kinds=frozenset({"fetched"}),
        find_claims=_find_fetched,
        edit=_fetch_other,
        select=_select_commit,
        missed="the offset of the commit is not known",
    ),
    Plant(
        anomaly="offset-regression",
        meaning="after the last fault, the next owner begins below an offset that had been committed",
        kinds=frozenset({"advance"}),
        find_claims=_find_advances,
        edit=_resume_below,
        missed="no owner began after it and after the heal of the last fault",
    ),
    Plant(
        anomaly="early-expiry",
        meaning="an offset is gone before its time is over",
        kinds=frozenset({"kept"}),
        find_claims=_find_kept,
        edit=_forget_commit,
    ),
    Plant(
        anomaly="fencing-violation",
        meaning="an operation is accepted under a token that has been superseded",
        kinds=frozenset({"guarded"}),
        find_claims=_find_fenced,
        edit=_use_stale_token,
        select=select_two,
        missed="no token was known before its call",
    ),
)
