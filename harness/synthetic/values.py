"""Values in synthetic objects: the n-th record or element is a function of n, so none is kept in memory."""

from typing import Final

from assay.harness.synthetic.segments import Number

_BITS: Final = (1 << 40) - 1
_FACTOR: Final = 0x9E3779B97F4A7C15 & _BITS | 1
"""Odd, so that multiplying by it modulo 2**40 is a bijection (Knuth's golden ratio)."""

UNLANDED: Final = 1 << 41
"""First value of writes that did not take effect: this + 4 * operation + rank."""

OFFSETS: Final = 1000
"""Number of different offsets that rewinding groups commit."""

SCENE_VALUES: Final = 1 << 50
"""First of the values that scenes use and that no offset has."""


def compute_values_at(offset: Number) -> Number:
    """Returns the values at these offsets. The values are distinct and below 2**40."""
    # int64 wraps around in numpy, which leaves the lowest 40 bits correct.
    return offset * _FACTOR & _BITS


def compute_offset_of(number: Number) -> Number:
    """Returns the offset of the commit with this number."""
    return number % OFFSETS
