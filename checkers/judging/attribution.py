"""Says in which check an error was raised: a check of one's own may have any bug."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def attributed(where: str) -> Iterator[None]:
    """Adds to an error that is raised in the block whose check it was."""
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise


def whose(error: BaseException) -> str | None:
    """``in the check 'early-send'``, if a check raised the error: the first that was noted."""
    notes: Sequence[str] = getattr(error, "__notes__", ())
    return next((note for note in notes if note.startswith("in the ")), None)
