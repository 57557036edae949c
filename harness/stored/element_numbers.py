"""Numbers for the elements of transactions that are text, keywords or other values.

The checks in SQL compare integers. So each other value that a micro-operation writes or reads gets a number, which no
integer of the file has. The texts of the judgement then name the values instead.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from assay.harness.core.history import HistoryError
from assay.harness.core.operation import Completed
from assay.harness.foreign import to_edn

FIRST: Final = 7_000_000_000_000_000_000
"""The number of the first value. All numbers of values have as many digits."""
_APPEND: Final = ("append", {"keyword": "append"})
_READS: Final = ("r", {"keyword": "r"})
"""The verb of a read, as text and as a keyword."""


def number_elements(done: Sequence[Completed]) -> tuple[list[Completed], Mapping[int, str]]:
    """Returns copies in which every element is an integer or null, and the value of each new number as EDN.

    If any micro-operation appends, reads return lists of elements. Raises ``HistoryError`` for large integers.
    """
    numbers = _TransactionElements(reads_lists=any(_appends(one.operation.argument) for one in done))
    return numbers.encode(done), numbers.names


def _appends(micros: Any) -> bool:
    return isinstance(micros, list) and any(
        isinstance(micro, list) and micro[:1] and micro[0] in _APPEND for micro in micros
    )


class _TransactionElements:
    """Numbers of values, in the order of their first use. ``reads_lists``: a read returns a list of elements."""

    def __init__(self, *, reads_lists: bool) -> None:
        self._reads_lists = reads_lists
        self._numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        """By number, the value as EDN."""

    def encode(self, done: Sequence[Completed]) -> list[Completed]:
        """Returns copies in which every element is an integer or null. Raises ``HistoryError`` for large integers."""
        return [
            msgspec.structs.replace(
                one,
                operation=msgspec.structs.replace(one.operation, argument=self._encode_micros(one.operation.argument)),
                completion=msgspec.structs.replace(one.completion, result=self._encode_micros(one.completion.result)),
            )
            for one in done
        ]

    def _encode_micros(self, micros: Any) -> Any:
        """Returns a list of ``[f, key, value]`` with encoded values. Anything else stays as it is."""
        return list(map(self._encode_micro, micros)) if isinstance(micros, list) else micros

    def _encode_micro(self, micro: Any) -> Any:
        match micro:
            case [f, key, [*elements]] if self._reads_lists and f in _READS:
                return [f, key, [self._encode_element(one) for one in elements]]
            case [f, key, value] if value is not None:
                return [f, key, self._encode_element(value)]
        return micro

    def _encode_element(self, value: Any) -> int:
        if type(value) is int:
            if value >= FIRST:
                raise HistoryError(f"the element {value} is too large; elements are numbers below {FIRST}")
            return value
        text = msgspec.json.encode(value, order="deterministic").decode()
        number = self._numbers.setdefault(text, FIRST + len(self._numbers))
        self.names.setdefault(number, to_edn(text))
        return number
