"""Decides from the text of a query whether it certainly has no rows, because a relation that it needs is empty.

In a history without anomalies about half of all tables are empty, and a query costs milliseconds even without rows. A
query *needs* a relation if the query has no rows whenever the relation is empty:

- Inner joins need both sides, and left joins the left side.
- A union needs a relation only if each of its parts needs it.
- An aggregate without groups needs nothing, because it always has a row.
- SQL that this module does not fully understand needs nothing: such a query is always run.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final

IsEmpty = Callable[[str], bool]
"""Function of a relation's name: whether the relation has no rows."""
EmptinessCondition = Callable[[IsEmpty], bool]
"""Function that says whether a query certainly has no rows, given ``IsEmpty`` for the relations."""

CACHE_SIZE: Final = 2_000

_TOKEN: Final = re.compile(r"'[^']*'|(?:[\w.]|\"\w+\")+|\S")
_WORD: Final = re.compile(r"'[^']*'|(\w+)")
"""Matches words outside of quoted texts."""
_WORD_ANYWHERE: Final = re.compile(r"\w+")
_ESCAPE: Final = re.compile(r"--|/\*|\\")
"""Matches comments and escapes, which are not analysed."""
_APOSTROPHE: Final = re.compile(r"--|/\*|[\\$]|\"[^\"]*'")
"""Matches comments, escapes and quoted names, in which an apostrophe need not begin a quoted text."""
_UNSUPPORTED_TOKENS: Final = frozenset("\"'$:;[")
"""Tokens of syntax that is not analysed: quoted names that are no words, other quotes, ``name: value``, lists."""

_CLAUSES_AFTER_FROM: Final = ("where", "group", "having", "order", "limit", "window", "qualify", "offset")
_CLAUSES_AFTER_GROUPING: Final = ("order", "window", "qualify")
"""Clauses that may contain aggregates, apart from the columns and ``having``."""
_JOINS: Final = (",", "join", "cross", "inner", "left")
_UNSUPPORTED_WORDS: Final = {
    "right", "full", "natural", "asof", "semi", "anti", "positional", "lateral", "except", "intersect",
    "rollup", "cube", "grouping", "pivot", "unpivot",
}  # fmt: skip
_NOT_AGGREGATES: Final = {
    "and", "as", "between", "by", "else", "end", "exists", "in", "is", "not", "or", "over", "then", "when",
    "cast", "chr", "coalesce", "concat", "greatest", "instr", "least", "length", "nullif", "replace", "regexp_extract",
    "regexp_replace", "substr", "substring",
}  # fmt: skip
"""Words before a parenthesis that are not aggregate functions. Any other word may be one."""
_SIGNS: Final = ",+-*<>=|&!"
"""Characters before a parenthesis that is no call."""


def _never(is_empty: IsEmpty) -> bool:
    return False


def _always(is_empty: IsEmpty) -> bool:
    return True


def find_all_words(texts: Iterable[str], sql: Mapping[str, str]) -> set[str]:
    """Returns all words of the texts and, transitively, of the relations that they name. ``sql``: by name, the SQL."""
    found: set[str] = set()
    pending = list(texts)
    while pending:
        for word in find_words(pending.pop()):
            if word not in found:
                found.add(word)
                if word in sql:
                    pending.append(sql[word])
    return found


@lru_cache(CACHE_SIZE)
def find_words(sql: str) -> tuple[str, ...]:
    """Returns all words, in lower case, that may be the name of a relation."""
    text = sql.lower()
    return tuple(dict.fromkeys(filter(None, (_WORD_ANYWHERE if _APOSTROPHE.search(text) else _WORD).findall(text))))


@lru_cache(CACHE_SIZE)
def find_rowless_condition(sql: str) -> EmptinessCondition:
    """Returns a condition under which ``sql`` certainly has no rows."""
    text = sql.lower()
    tokens = _TOKEN.findall(text)
    return (
        _never
        if _ESCAPE.search(text) or not _UNSUPPORTED_TOKENS.isdisjoint(tokens)
        else _analyse_query(_nest(iter(tokens)), {})
    )


def _nest(tokens: Iterator[str]) -> list[Any]:
    """Returns the tokens as a tree: each pair of parentheses becomes a list."""
    found: list[Any] = []
    for token in tokens:
        if token == ")":
            break
        found.append(_nest(tokens) if token == "(" else token)
    return found


def _analyse_query(tokens: list[Any], named: Mapping[str, EmptinessCondition]) -> EmptinessCondition:
    """Returns the condition under which a query has no rows. ``named``: by name, the conditions of queries after
    ``with``."""
    if not tokens or not _UNSUPPORTED_WORDS.isdisjoint(token for token in tokens if isinstance(token, str)):
        return _never
    if tokens[0] == "with":
        return _analyse_with(tokens[1:], named)
    parts: list[list[Any]] = [[]]
    for token in tokens:
        if token == "union":
            parts.append([])
        elif token != "all" or parts[-1]:
            parts[-1].append(token)
    each = [_analyse_select(part, named) for part in parts]
    return each[0] if len(each) == 1 else lambda is_empty: all(part(is_empty) for part in each)


def _analyse_with(tokens: list[Any], named: Mapping[str, EmptinessCondition]) -> EmptinessCondition:
    """Parses the part after ``with``: ``name as (query), ...`` and the query that reads them."""
    match tokens:
        case [str(name), "as", list(inner), ",", *rest]:
            return _analyse_with(rest, {**named, _strip_quotes(name): _analyse_query(inner, named)})
        case [str(name), "as", list(inner), *rest]:
            return _analyse_query(rest, {**named, _strip_quotes(name): _analyse_query(inner, named)})
    return _never


def _analyse_select(tokens: list[Any], named: Mapping[str, EmptinessCondition]) -> EmptinessCondition:
    """Returns the condition under which one part of a union has no rows."""
    if len(tokens) == 1 and isinstance(tokens[0], list):
        return _analyse_query(tokens[0], named)
    if not tokens or tokens[0] != "select":
        return _never
    # The `from` of `is distinct from` begins no clause.
    start = next((index for index, one in enumerate(tokens) if one == "from" and tokens[index - 1] != "distinct"), None)
    if start is None:
        return _always if tokens[-4:] == ["where", "1", "=", "0"] and not _has_aggregate(tokens[1:-4]) else _never
    stop = next((index for index in range(start, len(tokens)) if tokens[index] in _CLAUSES_AFTER_FROM), len(tokens))
    rest = tokens[stop:]
    tail = next((index for index, one in enumerate(rest) if one in _CLAUSES_AFTER_GROUPING), len(rest))
    aggregates = "group" in rest or "having" in rest or _has_aggregate(tokens[1:start]) or _has_aggregate(rest[tail:])
    if aggregates and not _is_grouped(rest):
        return _never
    needed = list(_find_needed(tokens[start + 1 : stop], named))
    return lambda is_empty: any(one(is_empty) for one in needed)


def _is_grouped(tokens: list[Any]) -> bool:
    """Returns whether rows are grouped by columns. Then there is no group without rows."""
    for index, token in enumerate(tokens[:-2]):
        if token == "group" and tokens[index + 1] == "by":
            return isinstance(tokens[index + 2], str) and tokens[index + 2] != "all"
    return False


def _has_aggregate(tokens: list[Any]) -> bool:
    """Returns whether the tokens may have an aggregate function. A window function is none.

    Aggregates in subqueries count, too, because a correlated subquery may aggregate the outer rows.
    """
    for index, token in enumerate(tokens):
        if not isinstance(token, list):
            continue
        before, after = tokens[index - 1] if index else ",", tokens[index + 1] if index + 1 < len(tokens) else ","
        called = isinstance(before, str) and before[-1] not in _SIGNS and before not in _NOT_AGGREGATES
        if (called and after != "over") or _has_aggregate(token):
            return True
    return False


def _find_needed(tokens: list[Any], named: Mapping[str, EmptinessCondition]) -> Iterator[EmptinessCondition]:
    """Yields the condition of each relation after ``from`` that the query needs."""
    index, optional = 0, False  # `optional`: the next relation is the right side of a left join
    while index < len(tokens):
        item, after = tokens[index], tokens[index + 1] if index + 1 < len(tokens) else None
        if not optional:
            if isinstance(item, list):
                yield _analyse_query(item, named)
            elif not isinstance(after, list):  # otherwise it is a function
                name = _strip_quotes(item)
                yield named[name] if name in named else partial(_has_no_rows, name)
        index += 1
        after_item = index
        while index < len(tokens) and not _is_join(tokens, index):
            index += 1
        if optional and "on" not in tokens[after_item:index] and "using" not in tokens[after_item:index]:
            return  # as in `a left join b join c on ... on ...`: all further relations are on the optional side
        optional = index < len(tokens) and tokens[index] == "left"
        while index < len(tokens) and tokens[index] in (*_JOINS, "outer"):
            index += 1


def _is_join(tokens: list[Any], index: int) -> bool:
    """Returns whether a join begins here. ``left`` may also be a function."""
    called = index + 1 < len(tokens) and isinstance(tokens[index + 1], list)
    return tokens[index] in _JOINS and not (tokens[index] == "left" and called)


def _strip_quotes(name: str) -> str:
    return name.strip('"')


def _has_no_rows(name: str, is_empty: IsEmpty) -> bool:
    return is_empty(name)
