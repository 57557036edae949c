"""Where to cut a log so that it ends at an offset: a compressed set goes as a whole, and compaction leaves gaps."""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.log.segment import Segment


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in a log, and where the log ends once it is cut there."""

    keep: int
    """How many segments stay."""
    segment: Segment
    """The last of them."""
    position: int
    """The byte of it at which it is cut."""
    next_offset: int
    """The offset after its last message then."""
    end: int
    """The offset of the next append: further on than ``next_offset`` where the cut leaves a gap before it."""

    @property
    def gap(self) -> int:
        """``end`` if there is a gap before it, which only the name of a further segment can record; else 0."""
        return self.end if self.next_offset < self.end else 0


def cut_at(segments: Sequence[Segment], keep: int, offset: int) -> Cut:
    """The cut that leaves what is below ``offset``, which is in or at the end of the last of the first ``keep``
    segments.

    Raises ``CorruptLog``.
    """
    segment = segments[keep - 1]
    position, next_offset, end = segment.cut_point(offset)
    if next_offset < end and any(other.base_offset == end for other in segments[keep:]):
        return Cut(keep + 1, segments[keep], 0, end, end)  # the segment that records the gap is there
    return Cut(keep, segment, position, next_offset, end)
