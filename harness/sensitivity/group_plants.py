"""Plants for groups of consumers, their offsets, and leases.

A plant writes a violation into a copy of a history. :mod:`assay.harness.sensitivity.plant` explains claims, edits,
``exposed`` and the fields of a plant. docs/reference/history.md explains the rows: kinds and columns of ``effects``.
``last_fault_end`` is the end of the last fault that may destroy data (``exposure_bound``).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.checkers.groups.expiry import SLACK
from assay.harness.sensitivity.plant import (
    NEVER,
    Claim,
    ObjectRows,
    Plant,
    Row,
    Rows,
    append_to,
    are_clients_killed,
    compute_once,
    get_return_time,
    get_row_id,
    is_ok,
    list_silent,
    replace_in,
    select_two,
)

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000


def gather_groups(effects: Mapping[str, Rows]) -> dict[str, Rows]:
    """Returns the rows by group: acquires, commits and fetched offsets of all keys."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for rows in effects.values():
        for row in rows:
            if row["group"] is not None and row["kind"] in ("acquire", "commit", "fetched"):
                found[row["group"]].append(row)
    return {group: sorted(rows, key=get_row_id) for group, rows in found.items()}


def _find_member_commits(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists accepted commits of members, each with the latest generation that was known before its call."""
    acquired = [row for row in rows if is_ok(row, "acquire") and row["generation"] is not None]
    claims = []
    for row in rows:
        if is_ok(row, "commit") and row["generation"] is not None and row["generation"] >= 0:
            before = [one for one in acquired if get_return_time(one) < row["call"]]
            newest = max(before, key=lambda one: one["generation"], default=None)
            exposed = newest is not None and newest["generation"] > 0
            claims.append(Claim(f"the commit by operation {row['op']}", exposed, row=row, other=newest))
    return claims


def _commit_as_zombie(rows: Rows, claim: Claim) -> Rows:
    """Changes the accepted commit to one of an earlier generation."""
    if claim.row is None or claim.other is None or not claim.exposed:
        return rows
    return replace_in(rows, claim.row, generation=claim.other["generation"] - 1)


_ENDS: Final = ("release", "lost")
"""Kinds of effects that end a hold."""
_USES: Final = ("renew", "guarded", "observe-begin", "seek", "reset")
"""Kinds of effects by which an owner uses its hold."""
_NOT_OF_HOLDS: Final = ("append", "end", "observe", "observe-end")


def _get_term(row: Row) -> int | None:
    """Returns the number that grows with each owner: a group's generation, or a lease's token; None if unknown."""
    term = row["generation"] if row["generation"] is not None else row["token"]
    return None if term is None else int(term)


@dataclass(frozen=True)
class HoldRows:
    """The rows of an object by hold and by process, each in order. Kinds in ``_NOT_OF_HOLDS`` are left out."""

    by_hold: Mapping[tuple[Any, ...], Rows]
    by_process: Mapping[int, Rows]
    """Only rows of operations that returned."""


def _sort_by_hold(rows: Rows) -> HoldRows:
    by_hold: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    by_process: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] not in _NOT_OF_HOLDS:
            by_hold[_get_hold(row)].append(row)
            if row["ret"] is not None:
                by_process[row["process"]].append(row)
    return HoldRows(by_hold, by_process)


def _get_hold(row: Row) -> tuple[Any, ...]:
    return (row["process"], row["key"], row["assignment"], row["group"])


def _find_holds(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists holds, each with an acquire by another owner: the next acquire, or else the previous one.

    Without generations or tokens, both owners must have made operations after the later acquire.
    """
    acquired = [
        row for row in rows if is_ok(row, "acquire") and row["owner"] is not None and row["key"] != row["group"]
    ]
    by_call = sorted(acquired, key=lambda row: int(row["call"]))
    claims = []
    for row in acquired:
        others = [one for one in by_call if one["owner"] != row["owner"] and one["group"] == row["group"]]
        pairs = [(row, one) for one in others if one["call"] > get_return_time(row)]
        pairs += [(one, row) for one in reversed(others) if get_return_time(one) < row["call"]]
        first, second = next(
            (pair for pair in pairs if _get_term(pair[0]) is not None or _find_late_work(rows, *pair) is not None),
            (row, None),
        )
        words = f"the hold of {row['owner']} from operation {row['op']} on"
        claims.append(Claim(words, second is not None, row=first, other=second))
    return claims


def _find_late_work(rows: Rows, first: Row, second: Row) -> Row | None:
    """Returns the first row of the first owner's process after the second acquire.

    Returns None if there is none, or if the check could explain why both owners seem to hold the object. The second
    owner must use or end its hold later. If faults kill clients, only a use of the hold counts.
    """
    if first["assignment"] is None or second["assignment"] is None or first["process"] == second["process"]:
        return None
    by_hold, since = compute_once(rows, _sort_by_hold), get_return_time(second)
    for hold in (first, second):
        acquires = [row for row in by_hold.by_hold[_get_hold(hold)] if row["kind"] == "acquire"]
        if sum(row["outcome"] != "fail" for row in acquires) != 1:
            return None
    later = [row for row in by_hold.by_hold[_get_hold(second)] if row["call"] > since]
    ends = () if are_clients_killed(rows) else _ENDS
    if not any(row["kind"] in ends or (row["kind"] in _USES and row["ret"] is not None) for row in later):
        return None
    return next((row for row in by_hold.by_process.get(first["process"], ()) if row["call"] > since), None)


def _hold_twice(rows: Rows, claim: Claim) -> Rows:
    """Makes two owners hold the same object at once.

    With generations or tokens, the second owner gets the number of the first. Without them, the first owner keeps its
    hold, and renews it after the second owner has acquired it.
    """
    if claim.row is None or claim.other is None or not claim.exposed:
        return rows
    first, second = claim.row, claim.other
    if _get_term(first) is not None:
        return replace_in(rows, second, generation=first["generation"], token=first["token"])
    work = _find_late_work(rows, first, second)
    if work is None:
        return rows
    held = {name: first[name] for name in ("assignment", "owner", "error", "group", "generation")} | {"kind": "renew"}
    kept = [
        {**row, **held, "outcome": "ok"} if row["kind"] in _ENDS and _get_hold(row) == _get_hold(first) else row
        for row in rows
    ]
    return append_to(kept, work, **held)


def _find_fenced(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists accepted guarded operations, each with the newest token that was known before its call."""
    known = [row for row in rows if is_ok(row, "guarded") and row["token"] is not None]
    claims = []
    for row in rows:
        if is_ok(row, "guarded") and row["token"] is not None:
            before = [one for one in known if get_return_time(one) < row["call"]]
            newest = max(before, key=lambda one: one["token"], default=None)
            exposed = newest is not None and newest["token"] > 0
            claims.append(Claim(f"operation {row['op']} under token {row['token']}", exposed, row=row, other=newest))
    return claims


def _use_stale_token(rows: Rows, claim: Claim) -> Rows:
    if claim.row is None or claim.other is None or not claim.exposed:
        return rows
    return replace_in(rows, claim.row, token=claim.other["token"] - 1)


def _select_hold(rows: Rows, claim: Claim) -> Rows:
    """Keeps the two holds without their records, and the first owner's next row after the second acquire."""
    if claim.row is None or claim.other is None or _get_term(claim.row) is not None:
        return select_two(rows, claim)
    by_hold = compute_once(rows, _sort_by_hold).by_hold
    work = _find_late_work(rows, claim.row, claim.other)
    kept = [*by_hold[_get_hold(claim.row)], *by_hold[_get_hold(claim.other)], *([] if work is None else [work])]
    named = {get_row_id(row): row for row in kept}
    return [named[place] for place in sorted(named)]


def _select_commit(rows: Rows, claim: Claim) -> Rows:
    values = [row["value"] for row in (claim.row, claim.other) if row is not None]
    return [row for row in rows if row["kind"] in ("commit", "fetched") and row["value"] in values]


def _find_fetched(rows: Rows, last_fault_end: int) -> list[Claim]:
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


def gather_offsets(effects: Mapping[str, Rows]) -> dict[str, Rows]:
    """Returns the rows by group and key of an offset that only grows: its commits and resumes, and its acquires."""
    acquires: defaultdict[str, list[Row]] = defaultdict(list)
    silent: defaultdict[str, list[Row]] = defaultdict(list)
    for key, rows in effects.items():
        for row in rows:
            if row["kind"] == "acquire" and row["group"] is not None:
                acquires[f"{row['group']}/{key}"].append(row)
                silent[f"{row['group']}/{key}"] = list_silent(rows)
    return {
        key: ObjectRows(sorted([*rows, *acquires[key]], key=get_row_id), silent[key])
        for key, rows in effects.items()
        if any(row["kind"] == "advance" for row in rows)
    }


@dataclass(frozen=True)
class UnrecordedCommit:
    """A commit that may be missing from the history, made at ``since`` or later, of offset ``minimum`` or higher."""

    since: int
    minimum: int
    process: int | None = None
    """The process of the owner that may have made it."""


def _list_unrecorded(rows: Rows) -> list[UnrecordedCommit]:
    """Lists the commits that the check considers possible: of unknown offset, or in an operation without effects.

    An owner commits no offset below the lowest one at which it began.
    """
    unrecorded = [
        UnrecordedCommit(row["call"], 0)
        for row in rows
        if row["kind"] == "advance" and row["outcome"] == "info" and row["position"] is None
    ]
    begins: dict[int, int] = {}
    for row in rows:
        if is_ok(row, "resume") and row["position"] is not None:
            begins[row["op"]] = min(row["position"], begins.get(row["op"], row["position"]))
    lowest: dict[int, int] = {}
    for row in rows:
        if row["kind"] == "acquire":
            begin = begins.get(row["op"], 0)
            lowest[row["process"]] = min(begin, lowest.get(row["process"], begin))
    unrecorded += [
        UnrecordedCommit(op["call"], lowest[op["process"]], op["process"])
        for op in list_silent(rows)
        if op["process"] in lowest
    ]
    return unrecorded


def _find_advances(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists accepted commits of offsets that only grow, each with a later resume that could be below the commit.

    A late commit is one of unknown outcome, which may take effect at any time. The claim's value is the highest offset
    below the commit that no late commit could explain. A setback is a resume below an earlier commit or resume, if a
    late commit explains it. The group continues from the setback's offset, so earlier commits no longer count.
    """
    accepted = [row for row in rows if is_ok(row, "advance", "resume") and row["position"] is not None]
    resumes = sorted((row for row in accepted if row["kind"] == "resume"), key=lambda row: int(row["call"]))
    late = {row["position"] for row in rows if row["kind"] == "advance" and row["outcome"] == "info"}
    unrecorded = _list_unrecorded(rows)

    def find_excuses(begin: Row) -> list[UnrecordedCommit]:
        return [one for one in unrecorded if one.since < begin["ret"]]

    setbacks = [
        begin
        for begin in resumes
        if (begin["position"] in late or any(one.minimum <= begin["position"] for one in find_excuses(begin)))
        and any(one["position"] > begin["position"] and one["ret"] < begin["call"] for one in accepted)
    ]

    def find_limit(begin: Row) -> int:
        """Returns the lowest offset of this resume that a commit missing from the history could explain."""
        # A commit of this owner may be missing, at any offset: after the edit the owner begins lower.
        own = min((one.since for one in unrecorded if one.process == begin["process"]), default=NEVER)
        if any(one["call"] <= begin["call"] and one["ret"] > own for one in resumes):
            return 0
        return min((one.minimum for one in find_excuses(begin)), default=NEVER)

    def find_lower(commit: Row, limit: int) -> int:
        """Returns the highest offset below the commit that no late commit explains; a negative one if there is none."""
        lower = min(int(commit["position"]), limit) - 1
        while lower in late:
            lower -= 1
        return lower

    def is_setback_between(commit: Row, begin: Row) -> bool:
        return any(
            one is not begin and one["ret"] >= commit["call"] and one["call"] <= begin["call"] for one in setbacks
        )

    limits = [find_limit(begin) for begin in resumes]
    claims = []
    for row in accepted:
        if row["kind"] == "advance":
            since = max(get_return_time(row), last_fault_end)
            first = bisect_right(resumes, since, key=lambda one: int(one["call"]))
            lower_begins = (
                (find_lower(row, limit), begin)
                for begin, limit in zip(resumes[first:], limits[first:], strict=True)
                if not is_setback_between(row, begin)
            )
            lower, begin = next((one for one in lower_begins if one[0] >= 0), (None, None))
            words = f"the commit of {row['position']} by operation {row['op']}"
            claims.append(Claim(words, begin is not None, since, lower, row=row, other=begin))
    return claims


def _resume_below(rows: Rows, claim: Claim) -> Rows:
    """Makes a later owner begin below the offset that was committed."""
    if claim.other is None or not claim.exposed:
        return rows
    return replace_in(rows, claim.other, position=claim.value)


def _find_kept(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists fetches (``kept``) that found a commit. They are exposed if no commit that may be the last had expired."""
    keeps = [
        row for row in rows if row["kind"] == "keep" and row["outcome"] != "fail" and row["retention_ms"] is not None
    ]
    last_call: defaultdict[tuple[int | None, str | None], int] = defaultdict(int)
    """The last accepted commit of each member in each generation."""
    last_sub: dict[int, int] = {}
    """The last accepted commit of each operation."""
    for row in keeps:
        if row["outcome"] == "ok":
            last_sub[row["op"]] = max(row["sub"], last_sub.get(row["op"], -1))
            if row["generation"] is not None and row["owner"] is not None:
                member = row["generation"], row["owner"]
                last_call[member] = max(row["call"], last_call[member])

    def stays_until(row: Row) -> int:
        last_of_member = last_call[row["generation"], row["owner"]] if row["outcome"] == "ok" else 0
        return max(int(row["call"]) + int(row["retention_ms"]) * NANOSECONDS_PER_MILLISECOND, last_of_member)

    def is_exposed(fetch: Row) -> bool:
        since = max((row["call"] for row in keeps if get_return_time(row) < fetch["call"]), default=None)
        return since is not None and all(
            stays_until(row) > fetch["ret"] + SLACK  # the check's tolerance
            for row in keeps
            if get_return_time(row) >= since
            and row["call"] < fetch["ret"]
            and (row["outcome"] != "ok" or row["sub"] == last_sub[row["op"]] or get_return_time(row) > fetch["call"])
        )

    return [
        Claim(f"the commit {row['value']} that operation {row['op']} found", is_exposed(row), row=row)
        for row in rows
        if is_ok(row, "kept") and row["value"] is not None
    ]


def _find_replaced(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists fetches of offsets. A fetch is exposed if a commit had been replaced by another one before its call."""
    acked = sorted((row for row in rows if is_ok(row, "keep") and row["value"] is not None), key=get_return_time)
    claims = []
    for fetch in rows:
        if is_ok(fetch, "kept"):
            last = max((row["call"] for row in acked if get_return_time(row) < fetch["call"]), default=-1)
            replaced = [row for row in acked if get_return_time(row) < last and row["value"] != fetch["value"]]
            older = replaced[-1] if replaced else None
            claims.append(Claim(f"the answer of operation {fetch['op']}", older is not None, row=fetch, other=older))
    return claims


def _revive_commit(rows: Rows, claim: Claim) -> Rows:
    """Makes the fetch find a commit that had been replaced."""
    if claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.row, value=claim.other["value"])


def _forget_commit(rows: Rows, claim: Claim) -> Rows:
    """Makes the fetch find nothing."""
    if claim.row is None or not claim.exposed:
        return rows
    return replace_in(rows, claim.row, value=None)


_READS: Final = ("seek", "reset", "observe-begin", "observe", "observe-end")
"""Kinds of effects that show where a member read."""


def gather_members(effects: Mapping[str, Rows]) -> dict[str, Rows]:
    """Returns the rows of members by group and log: their holds, commits and reads."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for key, rows in effects.items():
        for row in rows:
            if row["group"] is not None:
                found[key if key.startswith(f"{row['group']}/") else f"{row['group']}/{key}"].append(row)
    return {key: sorted(rows, key=get_row_id) for key, rows in found.items()}


def _find_read_commits(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists commits of records that a member has read under its hold. They are exposed if all its reads ended ok."""
    reads: defaultdict[tuple[int, int], list[Row]] = defaultdict(list)
    """By process and assignment. A reset begins a new assignment, so the reads before it do not count."""
    resets: dict[int, int] = {}
    for row in rows:
        if row["kind"] in _READS and row["assignment"] is not None:
            reads[row["process"], row["assignment"]].append(row)
        if row["kind"] == "reset":
            resets[row["process"]] = min(row["call"], resets.get(row["process"], NEVER))
    claims = []
    for row in rows:
        if is_ok(row, "commit", "advance") and row["position"] is not None and row["assignment"] is not None:
            before = [one for one in reads[row["process"], row["assignment"]] if _is_before(one, row)]
            exposed = (
                bool(before)
                and all(one["outcome"] == "ok" and one["position"] is not None for one in before)
                and min(before, key=_get_call_order)["position"] < row["position"]
                and resets.get(row["process"], NEVER) > row["call"]
            )
            claims.append(Claim(f"the commit of {row['position']} by operation {row['op']}", exposed, row=row))
    return claims


def _get_call_order(row: Row) -> tuple[int, int, int]:
    return (row["call"], row["op"], row["sub"])


def _is_before(read: Row, commit: Row) -> bool:
    same = all(read[name] == commit[name] for name in ("process", "assignment"))
    return same and read["kind"] in _READS and (read["call"], read["op"]) <= (commit["call"], commit["op"])


def _read_less(rows: Rows, claim: Claim) -> Rows:
    """Makes the member's reads end before the last record that it committed."""
    if claim.row is None or not claim.exposed:
        return rows
    last = claim.row["position"] - 1
    edited: list[Row] = []
    for row in rows:
        if not _is_before(row, claim.row):
            edited.append(row)
        elif row["kind"] != "observe" or row["position"] < last:
            edited.append({**row, "position": min(row["position"], last)})
    return edited


def _select_read_positions(rows: Rows, claim: Claim) -> Rows:
    """Keeps the commit and the positions of its member's reads, without their records."""
    commit = claim.row
    assert commit is not None
    return [row for row in rows if row is commit or (_is_before(row, commit) and row["kind"] != "observe")]


_STEPS: Final = (
    "acquire",
    "fetched",
    "out-of-range",
    "start",
    "end",
    "lost",
    "release",
    "seek",
    "reset",
    "observe-begin",
)
"""Kinds of effects that may come between an acquire, the fetched offset and the seek."""


def _find_begins(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists the offsets at which new owners began to read, right after they had fetched the committed offset."""
    steps = [row for row in rows if row["kind"] in _STEPS]
    claims = []
    for acquire, fetched, seek in zip(steps, steps[1:], steps[2:], strict=False):
        kinds = (acquire["kind"], fetched["kind"], seek["kind"])
        same = acquire["op"] == seek["op"] and acquire["assignment"] == seek["assignment"] is not None
        if kinds == ("acquire", "fetched", "seek") and same and is_ok(seek, "seek") and seek["position"] is not None:
            exposed = fetched["position"] is not None and fetched["position"] >= 0
            claims.append(Claim(f"the begin by operation {seek['op']}", exposed, row=seek, other=fetched))
    return claims


def _begin_elsewhere(rows: Rows, claim: Claim) -> Rows:
    """Makes the owner begin one offset above the committed one."""
    if claim.row is None or claim.other is None or not claim.exposed:
        return rows
    return replace_in(rows, claim.row, position=claim.other["position"] + 1)


def _select_steps(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return [row for row in rows if row["op"] == claim.row["op"] and row["kind"] in _STEPS]


def _find_hold_ends(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists ends of holds. An end is exposed if it says how far the owner had read."""
    last: dict[tuple[int, int], Row] = {}
    for row in rows:
        if is_ok(row, *_ENDS) and row["assignment"] is not None:
            former = last.setdefault((row["process"], row["assignment"]), row)
            if (row["position"] or 0) > (former["position"] or 0):
                last[row["process"], row["assignment"]] = row
    return [
        Claim(f"the end of a hold in operation {row['op']}", row["position"] is not None, row=row)
        for row in last.values()
    ]


def _read_on(rows: Rows, claim: Claim) -> Rows:
    """Makes the former owner read one more record in the operation that reports the end of its hold."""
    if claim.row is None or not claim.exposed:
        return rows
    begun = append_to(rows, claim.row, kind="observe-begin")
    return append_to(begun, claim.row, kind="observe-end", position=claim.row["position"] + 1)


def _select_hold_end(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return [row for row in rows if row["kind"] in _ENDS and _get_hold(row) == _get_hold(claim.row)]


def _find_views(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists the effects ``claim``, each with the earlier ``claim`` or ``share`` of the newest view of the group."""
    known = [row for row in rows if is_ok(row, "claim", "share") and None not in (row["version"], row["value"])]
    claims = []
    for row in known:
        before = [one for one in known if one["value"] < row["value"] and one["group"] == row["group"]]
        newest = max(before, key=lambda one: one["version"], default=None)
        if row["kind"] == "claim":
            exposed = newest is not None and newest["owner"] != row["owner"]
            claims.append(Claim(f"the claim {row['value']} of {row['owner']}", exposed, row=row, other=newest))
    return claims


def _claim_by_older_view(rows: Rows, claim: Claim) -> Rows:
    if claim.row is None or claim.other is None or not claim.exposed:
        return rows
    return replace_in(rows, claim.row, version=claim.other["version"] - 1)


def _find_rejected_commits(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists commits that were certainly rejected, each with an offset that was fetched later."""
    possible = {row["value"] for row in rows if row["kind"] == "commit" and row["outcome"] != "fail"}
    fetched = [row for row in rows if is_ok(row, "fetched")]
    return [
        Claim(f"the commit by operation {row['op']}, which was rejected", later is not None, row=row, other=later)
        for row in rows
        if row["kind"] == "commit" and row["outcome"] == "fail" and row["value"] not in {None, *possible}
        for later in [next((one for one in fetched if one["call"] > row["call"]), None)]
    ]


def _fetch_rejected(rows: Rows, claim: Claim) -> Rows:
    """Makes a later fetch return the rejected commit."""
    if claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.other, value=claim.row["value"], position=claim.row["position"])


GROUP_PLANTS: Final = (
    Plant(
        anomaly="double-ownership",
        meaning="two owners hold one partition, lock or lease at the same time",
        kinds=frozenset({"acquire"}),
        find_claims=_find_holds,
        edit=_hold_twice,
        select=_select_hold,
        missed="no one else owned it, or one of both was not at work while they could have held it together",
    ),
    Plant(
        anomaly="zombie-commit",
        meaning="a commit of an earlier generation is accepted",
        kinds=frozenset({"commit"}),
        gather=gather_groups,
        find_claims=_find_member_commits,
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
        meaning="after the last fault, a later owner begins below an offset that had been committed",
        kinds=frozenset({"advance"}),
        gather=gather_offsets,
        find_claims=_find_advances,
        edit=_resume_below,
        missed="no owner began after this commit and the last heal, or a late commit could explain a lower offset",
    ),
    Plant(
        anomaly="early-expiry",
        meaning="a committed offset is missing before its retention time is over",
        kinds=frozenset({"kept"}),
        find_claims=_find_kept,
        edit=_forget_commit,
        missed="its time was over, or a commit that may go earlier could have replaced it",
    ),
    Plant(
        anomaly="revived-offset",
        meaning="a committed offset is found again after it was replaced",
        kinds=frozenset({"kept"}),
        find_claims=_find_replaced,
        edit=_revive_commit,
        missed="no commit had been replaced before its call",
    ),
    Plant(
        anomaly="commit-beyond-log",
        meaning="a member commits a record that it has not read",
        kinds=frozenset({"commit", "advance"}),
        gather=gather_members,
        find_claims=_find_read_commits,
        edit=_read_less,
        select=_select_read_positions,
        missed="a read of its member did not end ok, or it had read nothing that it committed",
    ),
    Plant(
        anomaly="misplaced-start",
        meaning="a new owner begins at a higher offset than its group had committed",
        kinds=frozenset({"fetched"}),
        gather=gather_members,
        find_claims=_find_begins,
        edit=_begin_elsewhere,
        select=_select_steps,
        missed="nothing was committed",
    ),
    Plant(
        anomaly="read-after-release",
        meaning="a member reads on after the end of its hold",
        kinds=frozenset(_ENDS),
        find_claims=_find_hold_ends,
        edit=_read_on,
        select=_select_hold_end,
        missed="it is not known how far its owner had read",
    ),
    Plant(
        anomaly="split-brain",
        meaning="a member claims a partition by an older view than an earlier claim of another member",
        kinds=frozenset({"claim"}),
        find_claims=_find_views,
        edit=_claim_by_older_view,
        select=select_two,
        missed="no other member had claimed it before, or by the newest view it belongs to the same member",
    ),
    Plant(
        anomaly="refused-but-done",
        meaning="a commit is fetched that was certainly rejected",
        kinds=frozenset({"fetched"}),
        find_claims=_find_rejected_commits,
        edit=_fetch_rejected,
        select=_select_commit,
        missed="no offset was fetched later",
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
