"""Names the check in which an error was raised, because a user's own check may have any bug."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def attributing_errors(where: str) -> Iterator[None]:
    """Adds ``where`` as a note to an error raised in the block."""
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise


def find_attribution(error: BaseException) -> str | None:
    """Returns the first such note of an error, for example ``in the check 'early-send'``, or None."""
    notes: Sequence[str] = getattr(error, "__notes__", ())
    return next((note for note in notes if note.startswith("in the ")), None)
