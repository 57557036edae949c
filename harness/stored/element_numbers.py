"""Numbers for elements that are text, keywords or other values, in sets, queues and transactions.

The checks in SQL compare integers. So each other value gets a number, which no integer of the file has. The texts of
the judgement then name the values instead.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from assay.harness.core.operation import Completed
from assay.harness.foreign import to_edn

FIRST: Final = 7_000_000_000_000_000_000
"""The number of the first value. All numbers from here on have 19 digits, so texts can be searched for them."""
_READS: Final = ("r", {"keyword": "r"})
"""The verb of a read, as text and as a keyword."""


class ElementNumbers:
    """Numbers of elements, in the order of their first use.

    An integer is its own number, unless texts could confuse it with the number of another value.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        """By number, the value as EDN."""
        self._numbers: dict[str, int] = {}

    def number(self, element: Any) -> int:
        if type(element) is int and abs(element) < FIRST:
            return element
        text = msgspec.json.encode(element, order="deterministic").decode()
        number = self._numbers.setdefault(text, FIRST + len(self._numbers))
        if number not in self.names:
            self.names[number] = to_edn(text)
        return number


def number_elements(done: Sequence[Completed], *, reads_lists: bool) -> tuple[list[Completed], Mapping[int, str]]:
    """Returns copies of transactions in which every element is an integer or null, and the name of each new number.

    ``reads_lists``: whether a read returns a list of elements.
    """
    numbers = _TransactionElements(reads_lists=reads_lists)
    return numbers.encode(done), numbers.names


class _TransactionElements(ElementNumbers):
    """Numbers of the elements of transactions. ``reads_lists``: a read returns a list of elements."""

    def __init__(self, *, reads_lists: bool) -> None:
        super().__init__()
        self._reads_lists = reads_lists

    def encode(self, done: Sequence[Completed]) -> list[Completed]:
        """Returns copies in which every element is an integer or null."""
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
                return [f, key, list(map(self.number, elements))]
            case [f, key, value] if value is not None:
                return [f, key, self.number(value)]
        return micro
