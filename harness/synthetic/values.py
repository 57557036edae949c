"""What synthetic objects hold: the n-th record or element is a function of n, so that none need be kept in memory."""

from typing import Final

from assay.harness.synthetic.segments import Number

_BITS: Final = (1 << 40) - 1
_FACTOR: Final = 0x9E3779B97F4A7C15 & _BITS | 1
"""Odd, so that multiplying by it modulo 2**40 is a bijection (Knuth's golden ratio)."""

UNLANDED: Final = 1 << 41
"""Values of what never got there begin here: this + 4 * operation + rank."""

OFFSETS: Final = 1000
"""Offsets that groups commit when they read back and forth."""

SCENE_VALUES: Final = 1 << 50
"""Values of scenes that no offset has begin here."""


def values_at(offset: Number) -> Number:
    """The values at these offsets, no two alike and all below 2**40."""
    # int64 wraps around in numpy, which does not touch the lowest 40 bits.
    return offset * _FACTOR & _BITS


def offset_of(number: Number) -> Number:
    """The offset of the commit that has this number."""
    return number % OFFSETS
