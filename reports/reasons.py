"""Merges reasons to doubt a run: equal reasons of several anomalies become one sentence."""

from collections.abc import Sequence
from typing import Final

FORBIDDEN: Final = " is forbidden, but "
"""Separates an anomaly's name from the reason why it could not be judged."""
OF_SEVERAL: Final = (("its check had", "their checks had"), ("to which it applies", "to which they apply"))
"""Wording after the separator in the singular and in the plural."""


def join_reasons(reasons: Sequence[str]) -> list[str]:
    """Returns the reasons in order of first occurrence: ``a, b and c are forbidden, but their checks had no data``."""
    subjects: dict[tuple[bool, str], list[str]] = {}
    for reason in reasons:
        subject, about, rest = reason.partition(FORBIDDEN)
        # Only a line about one anomaly counts, because a traceback may contain the same words.
        about = "" if "\n" in reason else about
        subjects.setdefault((bool(about), rest if about else reason), []).append(subject)
    return [_format_reason(names, rest) if forbidden else rest for (forbidden, rest), names in subjects.items()]


def _format_reason(names: Sequence[str], rest: str) -> str:
    if len(names) == 1:
        return f"{names[0]}{FORBIDDEN}{rest}"
    for one, several in OF_SEVERAL:
        rest = rest.replace(one, several)
    return f"{', '.join(names[:-1])} and {names[-1]}{FORBIDDEN.replace(' is ', ' are ')}{rest}"
