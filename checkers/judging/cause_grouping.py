"""Groups findings by cause: several checks' findings about one record are shown beneath one of them.

A finding belongs to another one in two cases:

- Its check declares that the other's anomaly is the better name (``Check.explained_by``), and both findings have a
  common subject: an offset, value, poll or answer of one key. The anomalies' names alone never suffice.
- Its check has already found the same contradiction, for example on another replica or in an earlier epoch
  (``Check.seen_again``).

So two independent causes do not hide each other. Grouping changes no verdict, and a forbidden finding is never shown
beneath a tolerated one.

The module also adds the name of a check to an error that its code raises, because a user may have written the check.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from assay.checkers.judging.verdict import Finding


def group_by_cause(
    findings: Sequence[Finding],
    explained_by: Mapping[str, Sequence[str]],
    forbids: Callable[[str], bool],
    seen_again: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Returns the findings in order, each with the index of the finding beneath which it is shown, if any.

    ``explained_by`` and ``seen_again`` are the declarations of these anomalies' checks.
    """
    by_subject: dict[tuple[str, str], list[int]] = {}
    for index, finding in enumerate(findings):
        for about in finding.about:
            by_subject.setdefault((finding.anomaly, about), []).append(index)
    parents: dict[int, int] = {}
    firsts: dict[tuple[str, str], int] = {}
    for index, finding in enumerate(findings):
        for anomaly in explained_by.get(finding.anomaly, ()):
            # the findings that explain this one, and have a subject in common with it
            heads = [head for about in finding.about for head in by_subject.get((anomaly, about), ())]
            if heads and (forbids(anomaly) or not forbids(finding.anomaly)):
                parents[index] = min(heads)
                break
        else:
            if finding.anomaly in seen_again and finding.about:
                first = firsts.setdefault((finding.anomaly, finding.about[0]), index)
                if first != index:
                    parents[index] = first
    return tuple(
        msgspec.structs.replace(finding, same_cause_as=_find_root(index, parents)) if index in parents else finding
        for index, finding in enumerate(findings)
    )


def _find_root(index: int, parents: Mapping[int, int]) -> int:
    """Returns the index of the top finding. The declarations have no cycles, so the loop ends."""
    while index in parents:
        index = parents[index]
    return index


@contextmanager
def attributing_errors(where: str) -> Iterator[None]:
    """Adds ``where`` as a note to an error raised in the block."""
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise


def find_attribution(error: BaseException) -> str | None:
    """Returns the first note that ``attributing_errors`` added, for example ``in the check 'early-send'``, or None."""
    notes: Sequence[str] = getattr(error, "__notes__", ())
    return next((note for note in notes if note.startswith("in the ")), None)
