"""Text of unknown origin on one line of a terminal: nothing in it that moves the cursor, changes colours or hides."""


def printable(text: str) -> str:
    """``text`` with every character that is not printable, line ends among them, as its escape (``\\x1b``)."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def encodable(text: str) -> str:
    """``text`` with every half of a character, which no file takes, as its escape (``\\udc80``)."""
    return text.encode(errors="backslashreplace").decode()


def plainly(error: Exception) -> str:
    """A reader's words for a damaged file, in one line and without the file's bytes that they may quote."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(error).partition("\n")[0])
    return " ".join(text.split())
